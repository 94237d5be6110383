"""Owns what the synchronous Python SDK does with commands: run, stream, feed, time out, kill, find again."""

import time

import pytest
from e2b import CommandExitException, NotFoundException, PtySize, Sandbox, TimeoutException

from harness.control import eventually


def alive(sandbox, pattern):
    """The processes whose command line matches, the one that looks left out."""
    return sandbox.commands.run(f"pgrep -f '[{pattern[0]}]{pattern[1:]}' || true", user="root").stdout.split()


def test_a_real_project_is_written_tested_and_read(sandbox, project):
    root = "/home/user/bank-project"
    written = sandbox.files.write_files([{"path": f"{root}/{path}", "data": text} for path, text in project.items()])
    assert [entry.path for entry in written] == [f"{root}/{path}" for path in project]
    # Byte code would be taken for that of the repaired file, which has the same size and second.
    result = sandbox.commands.run("python3 -B report.py", cwd=root)
    assert "FAILED (failures=1)" in result.stderr
    assert '"run": 3' in sandbox.files.read(f"{root}/report.json")
    assert "test_wrong" in sandbox.files.read(f"{root}/report.json")
    repaired = project["tests/test_account.py"].replace("balance, 1", "balance, 0")
    sandbox.files.write(f"{root}/tests/test_account.py", repaired)
    assert sandbox.commands.run("python3 -m unittest", cwd=root).stderr.rstrip().endswith("OK")


def test_a_real_node_program_runs(sandbox):
    sandbox.files.write(
        "/home/user/sum.mjs",
        "import fs from 'fs';\nconsole.log(JSON.parse(fs.readFileSync(0)).reduce((a, b) => a + b));",
    )
    assert sandbox.commands.run("echo '[1, 2, 39]' | node /home/user/sum.mjs").stdout == "42\n"


def test_a_git_history_is_made(sandbox):
    script = (
        "git init -q repo && cd repo && git config user.email a@b.c && git config user.name n"
        " && echo one > f && git add f && git commit -qm first && git log --format=%s"
    )
    assert sandbox.commands.run(script).stdout == "first\n"


def test_streams_are_told_apart_and_arrive_as_they_come(sandbox):
    seen = []
    result = sandbox.commands.run(
        "echo one; sleep 0.3; echo two >&2; sleep 0.3; echo three",
        on_stdout=lambda text: seen.append(("out", text)),
        on_stderr=lambda text: seen.append(("err", text)),
    )
    assert seen == [("out", "one\n"), ("err", "two\n"), ("out", "three\n")]
    assert (result.stdout, result.stderr, result.exit_code) == ("one\nthree\n", "two\n", 0)


@pytest.mark.parametrize("code", [1, 42, 127, 255])
def test_an_exit_code_is_an_exception_with_the_output(sandbox, code):
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run(f"echo out; echo err >&2; exit {code}")
    assert (caught.value.exit_code, caught.value.stdout, caught.value.stderr) == (code, "out\n", "err\n")


def test_a_program_that_does_not_exist_ends_with_127(sandbox):
    with pytest.raises(CommandExitException) as caught:
        sandbox.commands.run("/no/such/program")
    assert caught.value.exit_code == 127


def test_output_without_end_is_whole(sandbox):
    result = sandbox.commands.run("seq 1 200000; printf end")
    assert result.stdout.endswith("\n200000\nend")
    assert result.stdout.count("\n") == 200_000


def test_broken_utf8_at_the_border_of_a_chunk_breaks_nothing(sandbox):
    text = "é" * 40_000 + "€"
    sandbox.files.write("/home/user/text", text)
    assert sandbox.commands.run("cat text").stdout == text
    lone = sandbox.commands.run(r"head -c 8191 /dev/zero | tr '\0' a; printf '\342'; printf b").stdout
    assert lone.startswith("a" * 8191) and lone.endswith("b") and len(lone) == 8193


def test_standard_input_is_fed_and_closed(sandbox):
    handle = sandbox.commands.run("cat; echo closed", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "first line\n")
    sandbox.commands.send_stdin(handle.pid, "x" * 200_000 + "\n")
    sandbox.commands.close_stdin(handle.pid)
    result = handle.wait()
    assert result.stdout == "first line\n" + "x" * 200_000 + "\nclosed\n"


def test_a_command_is_found_again_by_pid_from_another_client(sandbox):
    handle = sandbox.commands.run(
        "while ! test -e go; do sleep 0.05; done; echo went; exit 3", background=True, timeout=0
    )
    handle.disconnect()
    other = Sandbox.connect(sandbox.sandbox_id)
    assert handle.pid in [process.pid for process in other.commands.list()]
    again = other.commands.connect(handle.pid)
    other.files.write("/home/user/go", "")
    with pytest.raises(CommandExitException) as caught:
        again.wait()
    assert (caught.value.exit_code, caught.value.stdout) == (3, "went\n")


def test_a_listed_command_shows_how_it_was_started(sandbox):
    handle = sandbox.commands.run("sleep 100", background=True, envs={"A": "b"}, cwd="/tmp")
    listed = {process.pid: process for process in sandbox.commands.list()}[handle.pid]
    assert listed.cmd == "/bin/bash" and listed.args == ["-l", "-c", "sleep 100"]
    assert listed.envs == {"A": "b"} and listed.cwd == "/tmp"
    assert sandbox.commands.kill(handle.pid) is True


def test_a_killed_command_is_gone_and_killing_it_again_is_false(sandbox):
    handle = sandbox.commands.run("sleep 1000", background=True)
    assert handle.kill() is True
    with pytest.raises(CommandExitException):
        handle.wait()
    eventually(lambda: handle.pid not in [process.pid for process in sandbox.commands.list()])
    assert sandbox.commands.kill(handle.pid) is False
    with pytest.raises(CommandExitException):
        sandbox.commands.run(f"kill -0 {handle.pid}", user="root")


def test_a_timeout_ends_the_command_and_everything_it_started(sandbox):
    with pytest.raises(TimeoutException):
        sandbox.commands.run("(setsid sh -c 'sleep 999.25 & sleep 999.25' &) ; sleep 999.25", timeout=1)
    eventually(lambda: alive(sandbox, "sleep 999.25") == [], seconds=2)


def test_a_timeout_keeps_what_was_printed(sandbox):
    seen = []
    with pytest.raises(TimeoutException):
        sandbox.commands.run("echo before; sleep 999", timeout=1, on_stdout=seen.append)
    assert seen == ["before\n"]


def test_a_timeout_of_a_background_command_is_raised_by_wait(sandbox):
    handle = sandbox.commands.run("sleep 998.5", background=True, timeout=1)
    with pytest.raises(TimeoutException):
        handle.wait()
    eventually(lambda: alive(sandbox, "sleep 998.5") == [], seconds=2)


def test_leaving_the_stream_leaves_the_command(sandbox):
    handle = sandbox.commands.run("sleep 2; echo done > /home/user/done", background=True)
    handle.disconnect()
    eventually(lambda: sandbox.files.exists("/home/user/done"))
    assert sandbox.files.read("/home/user/done") == "done\n"


def test_killing_the_sandbox_says_so_to_a_running_command(sandbox):
    handle = sandbox.commands.run("sleep 60", background=True)
    sandbox.kill()
    with pytest.raises(TimeoutException, match="sandbox was killed or reached its end of life"):
        handle.wait()


def test_the_environment_is_layered():
    sandbox = Sandbox.create(envs={"OUTER": "sandbox", "BOTH": "sandbox"})
    try:
        show = 'echo "$OUTER $BOTH $HOME $USER $E2B_SANDBOX $E2B_SANDBOX_ID"'
        result = sandbox.commands.run(show, envs={"BOTH": "command"})
        assert result.stdout.split() == ["sandbox", "command", "/home/user", "user", "true", sandbox.sandbox_id]
    finally:
        sandbox.kill()


def test_users_are_whom_the_caller_names(sandbox):
    assert sandbox.commands.run("whoami; pwd").stdout == "user\n/home/user\n"
    assert sandbox.commands.run("id -u; pwd", user="root").stdout == "0\n/root\n"
    assert sandbox.commands.run("sudo -n id -u").stdout == "0\n"
    script = "chown nobody:nogroup /tmp/x && stat -c %U:%G /tmp/x && apt-get --version >/dev/null && dpkg -l | wc -l"
    owned = sandbox.commands.run(f"touch /tmp/x && {script}", user="root").stdout.split()
    assert owned[0] == "nobody:nogroup" and int(owned[1]) > 50


def test_a_directory_that_does_not_exist_is_refused(sandbox):
    with pytest.raises(Exception, match="does not exist"):
        sandbox.commands.run("pwd", cwd="/no/such/directory")


def test_a_terminal_has_the_size_it_was_given_and_gets(sandbox):
    terminal = sandbox.pty.create(size=PtySize(rows=25, cols=81))
    output = bytearray()
    sandbox.pty.send_stdin(terminal.pid, b"stty size > first; echo $TERM; tty\n")
    eventually(lambda: sandbox.files.exists("first") and sandbox.files.read("first") == "25 81\n")
    sandbox.pty.resize(terminal.pid, PtySize(rows=33, cols=100))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit 7\n")
    with pytest.raises(CommandExitException) as caught:
        terminal.wait(on_pty=output.extend)
    text = output.decode(errors="replace")
    assert caught.value.exit_code == 7
    assert "33 100" in text and "xterm-256color" in text and "/dev/pts/" in text


def test_control_c_reaches_the_foreground_of_a_terminal(sandbox):
    terminal = sandbox.pty.create(size=PtySize(rows=24, cols=80))
    sandbox.pty.send_stdin(terminal.pid, b"sleep 1000\n")
    time.sleep(0.5)
    sandbox.pty.send_stdin(terminal.pid, b"\x03")
    sandbox.pty.send_stdin(terminal.pid, b"echo after-$((40 + 2)); exit 0\n")
    output = bytearray()
    terminal.wait(on_pty=output.extend)
    assert "after-42" in output.decode(errors="replace")


def test_a_terminal_is_killed(sandbox):
    terminal = sandbox.pty.create(size=PtySize(rows=24, cols=80))
    assert sandbox.pty.kill(terminal.pid) is True
    assert eventually(lambda: sandbox.pty.kill(terminal.pid) is False)


def test_input_for_nobody_is_not_found(sandbox):
    with pytest.raises(NotFoundException):
        sandbox.commands.send_stdin(999_999, "x")
