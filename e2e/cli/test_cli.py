"""Owns the command line as a person and a script use it: streams, exit codes, tables and JSON, and what it refuses."""

import hashlib
import io
import json
import os
import pty
import re
import subprocess
import tarfile
import time
import uuid

import pytest

from harness import control, place


def run(*args, stdin=b"", check=True, timeout=120, **environment):
    """Runs the program; standard output and error as text."""
    result = subprocess.run(
        [place.BINARY, *args],
        input=stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **environment},
    )
    if check:
        assert result.returncode == 0, (args, result.returncode, result.stderr.decode())
    return result


@pytest.fixture
def sandbox(box):
    """The id of a sandbox."""
    return box.id


def test_run_streams_and_passes_the_exit_code_on():
    result = run("run", "--", "sh", "-c", "echo out; echo err >&2; exit 42", check=False)
    assert (result.returncode, result.stdout, result.stderr) == (42, b"out\n", b"err\n")


def test_run_leaves_no_sandbox():
    mark = uuid.uuid4().hex
    run("run", "--metadata", f"mark={mark}", "--", "true")
    assert run("ps", "-q", "--filter", f"mark={mark}").stdout == b""


def test_run_sets_limits_environment_user_and_input():
    script = "import os, sys; print(os.environ['A'], os.getuid(), sys.stdin.read())"
    result = run(
        "run",
        "-i",
        "--memory",
        "256M",
        "--cpu",
        "0.5",
        "-e",
        "A=b",
        "-u",
        "root",
        "--",
        "python3",
        "-c",
        script,
        stdin=b"in",
    )
    assert result.stdout == b"b 0 in\n"


def test_a_time_limit_is_124_and_keeps_what_was_printed():
    begin = time.monotonic()
    result = run("run", "--timeout", "1s", "--", "sh", "-c", "echo before; sleep 100", check=False)
    assert result.returncode == 124 and result.stdout == b"before\n"
    assert time.monotonic() - begin < 30


def test_a_program_that_does_not_exist_is_127_and_one_that_cannot_run_126(sandbox):
    assert run("exec", sandbox, "/no/such/program", check=False).returncode == 127
    assert run("exec", sandbox, "/etc/passwd", check=False).returncode == 126


def test_a_signal_is_128_and_its_number(sandbox):
    assert run("exec", sandbox, "sh", "-c", "kill -9 $$", check=False).returncode == 137


def test_a_terminal_is_a_terminal():
    leader, follower = pty.openpty()
    command = [place.BINARY, "run", "-it", "--", "sh", "-c", "tty; stty size; read x; echo got-$x"]
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True)
    os.close(follower)
    os.write(leader, b"typed\n")
    seen = b""
    while b"got-typed" not in seen:
        seen += os.read(leader, 1000)
    assert b"/dev/pts/" in seen
    assert process.wait(timeout=60) == 0
    os.close(leader)


def test_ps_shows_a_table_for_people_and_json_for_programs(sandbox):
    table = run("ps").stdout.decode()
    assert re.search(r"^ID +STATE +TEMPLATE", table) and sandbox in table and "\x1b" not in table
    rows = {row["id"]: row for row in json.loads(run("ps", "--json").stdout)}
    assert rows[sandbox]["state"] == "running" and rows[sandbox]["template"] == "base"
    assert sandbox in run("ps", "-q").stdout.decode().split()


def test_files_and_directories_are_copied_both_ways(sandbox, tmp_path):
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "bytes").write_bytes(os.urandom(3_000_000))
    (source / "script").write_text("#!/bin/sh\necho ran\n")
    (source / "script").chmod(0o755)
    (source / "ümlaut").write_text("x")
    run("cp", str(source), f"{sandbox}:/home/user/copy")
    assert run("exec", sandbox, "/home/user/copy/script").stdout == b"ran\n"
    run("cp", f"{sandbox}:/home/user/copy", str(tmp_path / "back"))
    for path in source.rglob("*"):
        if path.is_file():
            back = tmp_path / "back" / path.relative_to(source)
            assert hashlib.sha256(back.read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest()


def test_kill_ends_and_says_which(sandbox):
    assert run("kill", sandbox).stdout.decode().split() == [sandbox]
    gone = run("exec", sandbox, "true", check=False)
    assert gone.returncode == 125 and gone.stderr.decode().strip() and "Traceback" not in gone.stderr.decode()
    assert run("kill", sandbox, check=False).returncode != 0


def test_logs_show_what_happened(sandbox):
    run("exec", sandbox, "echo", "recorded")
    assert run("logs", sandbox).stdout.strip()


def test_keys_are_made_shown_masked_and_revoked():
    made = json.loads(run("key", "create", "--name", "short", "--json").stdout)
    assert re.fullmatch(r"e2b_[0-9a-f]{40}", made["secret"])
    assert run("ps", "-q", COFFERDAM_API_KEY=made["secret"], check=True).returncode == 0
    listed = run("key", "ls", "--json").stdout.decode()
    assert made["id"] in listed and made["secret"] not in listed
    run("key", "revoke", made["id"])
    refused = run("ps", COFFERDAM_API_KEY=made["secret"], check=False)
    assert refused.returncode != 0 and made["secret"] not in refused.stderr.decode()


def rootfs():
    """A tar of a root file system that has nothing but a static shell."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name in ("bin", "etc", "tmp", "proc", "sys", "dev", "root", "home", "home/user"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        tar.add("/bin/busybox", "bin/busybox")
        for name in ("sh", "echo", "cat", "ls", "id", "sleep"):
            entry = tarfile.TarInfo(f"bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
        passwd = b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"
        entry = tarfile.TarInfo("etc/passwd")
        entry.size = len(passwd)
        tar.addfile(entry, io.BytesIO(passwd))
    return archive.getvalue()


def test_a_template_is_imported_used_and_removed(tmp_path):
    archive = tmp_path / "busybox.tar.gz"
    archive.write_bytes(rootfs())
    name = f"busybox-{uuid.uuid4().hex[:8]}"
    run("template", "import", str(archive), "--name", name)
    try:
        assert name in run("template", "ls").stdout.decode()
        assert run("run", "--template", name, "--", "sh", "-c", "echo $((6 * 7)); id -u").stdout == b"42\n1000\n"
    finally:
        run("template", "rm", name)
    refused = run("run", "--template", name, "--", "true", check=False)
    assert refused.returncode == 125 and name in refused.stderr.decode()


def test_a_template_of_rubbish_is_refused_and_leaves_nothing(tmp_path):
    rubbish = tmp_path / "rubbish.tar"
    rubbish.write_bytes(os.urandom(100_000))
    evil = tmp_path / "evil.tar"
    with tarfile.open(evil, "w") as tar:
        for name in ("../../../tmp/escaped", "/tmp/escaped", "a/../../../tmp/escaped"):
            entry = tarfile.TarInfo(name)
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"x"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/tmp"
        tar.addfile(link)
        entry = tarfile.TarInfo("link/escaped")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    for source in (rubbish, evil):
        name = f"rubbish-{uuid.uuid4().hex[:8]}"
        result = run("template", "import", str(source), "--name", name, "--format", "rootfs", check=False)
        assert not os.path.exists("/tmp/escaped")
        if result.returncode == 0:
            run("template", "rm", name)
        assert name not in run("template", "ls").stdout.decode()


def test_doctor_says_that_this_host_will_do():
    result = run("doctor", "--json", check=False)
    checks = json.loads(result.stdout)
    checks = checks["checks"] if isinstance(checks, dict) else checks
    assert result.returncode == 0 and not [check for check in checks if check["verdict"] == "fail"], checks


def test_bench_measures():
    result = json.loads(run("bench", "create", "-n", "4", "--concurrency", "2", "--json", timeout=300).stdout)
    assert result


WRONG = [
    [],
    ["no-such-verb"],
    ["run"],
    ["run", "--memory", "-5", "--", "true"],
    ["run", "--timeout", "forever", "--", "true"],
    ["exec", "NOT AN ID", "true"],
    ["cp", "a", "b"],
    ["kill"],
]


@pytest.mark.parametrize("args", WRONG, ids=[" ".join(row) or "nothing" for row in WRONG])
def test_what_makes_no_sense_is_refused_with_2(args):
    result = run(*args, check=False)
    assert result.returncode == 2 and result.stderr.strip()


def test_a_server_that_is_not_there_is_said_so_in_a_line():
    result = run("ps", COFFERDAM_URL="http://127.0.0.1:1", check=False)
    assert (
        result.returncode not in (0, 2) and b"http://127.0.0.1:1" in result.stderr and b"panicked" not in result.stderr
    )


def test_completions_are_printed():
    for shell in ("bash", "zsh", "fish"):
        assert b"cofferdam" in run("completions", shell).stdout


def test_help_names_every_verb():
    text = run("--help").stdout.decode()
    for verb in "serve run ps exec cp kill logs template key doctor bench completions".split():
        assert re.search(rf"^ +{verb}\b", text, re.MULTILINE), verb


def test_a_killed_client_leaves_no_sandbox_for_long():
    """Interrupted as a person does it, `run` takes its sandbox with it."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen([place.BINARY, "run", "--metadata", f"mark={mark}", "--", "sleep", "600"])
    look = lambda: run("ps", "-q", "--filter", f"mark={mark}").stdout.split()
    control.eventually(look)
    process.send_signal(2)
    assert process.wait(timeout=30) != 0
    control.eventually(lambda: not look())
