"""Owns `serve` as an operator meets it: what it refuses, what it writes, and what it leaves."""

import json
import os
import re
import stat
import subprocess

import httpx
import pytest

from harness import place


def serve(*args, timeout=60):
    """Runs `serve` to its end; it must not start."""
    return subprocess.run([place.BINARY, "serve", *args], capture_output=True, text=True, timeout=timeout, check=False)


def assert_refused(result):
    """Non-zero, one clear line, no `ready`."""
    assert result.returncode not in (0, None) and "ready" not in result.stdout.split()
    lines = [line for line in result.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, result.stderr
    assert "panicked" not in result.stderr


def test_a_second_server_on_the_same_data_directory_is_refused():
    assert_refused(serve("--data-dir", str(place.DATA_DIR), "--listen", "127.0.0.1:0"))
    assert httpx.get(place.URL + "/health").status_code == 204


def test_an_address_that_is_taken_is_refused(tmp_path):
    assert_refused(serve("--data-dir", str(tmp_path / "d"), "--listen", f"{place.HOST}:{place.PORT}"))


@pytest.mark.parametrize("text", ["nonsense = 1", "[node]\nparked = -1", "not toml", "[quota]\nsandboxes = 'many'"])
def test_a_configuration_that_is_not_understood_is_refused(tmp_path, text):
    config = tmp_path / "config.toml"
    config.write_text(text)
    assert_refused(serve("--data-dir", str(tmp_path / "d"), "--listen", "127.0.0.1:0", "--config", str(config)))


def test_a_data_directory_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    assert_refused(serve("--data-dir", str(tmp_path / "file"), "--listen", "127.0.0.1:0"))
    assert_refused(serve("--data-dir", "/proc/none", "--listen", "127.0.0.1:0"))


def test_the_key_has_its_form_and_is_readable_by_its_owner_only():
    path = place.DATA_DIR.with_suffix(".key")
    assert re.fullmatch(r"e2b_[0-9a-f]{40}", path.read_text().strip())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_only_the_node_is_privileged():
    """The api role has no capability, and its uid is not root's."""
    pids = {path.stem: int(path.read_text()) for path in (place.DATA_DIR / "run").glob("*.pid")}
    status = dict(
        line.split(":\t", 1) for line in open(f"/proc/{pids['api']}/status").read().splitlines() if ":\t" in line
    )
    assert status["Uid"].split()[0] != "0"
    assert int(status["CapEff"], 16) == 0 and int(status["CapPrm"], 16) == 0


def test_nothing_in_the_data_directory_is_open_to_others():
    assert stat.S_IMODE((place.DATA_DIR / "node").stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE((place.DATA_DIR / "api").stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE((place.DATA_DIR / "run").stat().st_mode) & 0o007 == 0


def test_the_hosts_mount_table_shows_no_mount_of_ours():
    assert str(place.DATA_DIR) not in open("/proc/self/mountinfo").read()


def test_it_listens_where_it_was_told_and_nowhere_else():
    found = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=False).stdout
    pids = {path.read_text().strip() for path in (place.DATA_DIR / "run").glob("*.pid")}
    ours = {line.split()[3] for line in found.splitlines() if pids & set(re.findall(r"pid=(\d+)", line))}
    assert ours == {f"{place.HOST}:{place.PORT}"}


def test_the_record_can_be_verified_offline():
    segments = [path for path in (place.DATA_DIR / "api" / "audit").rglob("*") if path.is_file()]
    assert segments and os.path.getsize(segments[0]) > 0
    first = segments[0].read_text().splitlines()[0]
    assert json.loads(first)
