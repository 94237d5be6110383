"""Owns the proof that nothing inside gets out: every attempt, as root and as the ordinary user, is denied and its denial
asserted, next to another sandbox that must not be seen."""

import ipaddress
import json
import pathlib
import socket
import subprocess

import pytest

from harness import control, place

from .inside import ATTEMPTS

SOURCES = sorted((pathlib.Path(__file__).parent / "inside").glob("*.py"))
MARKER = "/marker-of-the-other-sandbox"


def facts():
    """What an attacker could know about the host."""
    lines = subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True, check=False).stdout.splitlines()
    found = [line.split()[3].split("/")[0] for line in lines]
    hosts = [address for address in found if not ipaddress.ip_address(address).is_link_local]
    hosts += ["127.0.0.1", "::1", "169.254.169.254", "10.0.0.1", "192.168.0.1", "172.17.0.1", "8.8.8.8"]
    return {
        "addresses": [[host, int(place.PORT)] for host in dict.fromkeys(hosts)],
        "data_dir": str(place.DATA_DIR),
        "host_paths": [str(place.DATA_DIR), str(place.DATA_DIR / "node"), place.BINARY, str(pathlib.Path(__file__))],
        "marker": MARKER,
        "own_mark": "inside",
    }


@pytest.fixture(scope="module", params=["root", "user"])
def rows(request):
    """Everything tried by this user: name to row."""
    with control.box() as other, control.box() as one:
        other.write(MARKER, b"secret of the other", user="root")
        other.start("/bin/bash", "-c", f"exec -a victim{MARKER} sleep 600 >/dev/null 2>&1 &", user="root")
        for source in SOURCES:
            one.write(f"/opt/inside/{source.name}", source.read_bytes(), user="root")
        one.sh("mkdir -p /mnt", user="root")
        argument = json.dumps(facts())
        result = one.start(
            "/usr/bin/python3", "-Bm", "inside", argument, cwd="/opt", user=request.param, timeout_ms=300_000
        )
        assert result.end is not None, (result.error, result.stdout[-500:], result.stderr[-500:])
        assert result.exit_code == 0, result.stderr.decode()
        yield {row["name"]: row for row in map(json.loads, result.text.splitlines())}
        assert one.sh("echo alive").text == "alive\n"
        assert one.kill().status_code == 204


@pytest.mark.parametrize("name", list(ATTEMPTS))
def test_attempt_is_denied(rows, name):
    row = rows[name]
    assert row["verdict"] == "denied", f"{row['verdict']}: {row['detail']}"


def test_the_host_has_what_the_attempts_look_for():
    """The attempts would find it if they were out: otherwise their denial proves nothing."""
    assert place.DATA_DIR.exists() and pathlib.Path(place.BINARY).exists()
    with socket.create_connection((place.HOST, int(place.PORT)), timeout=5):
        pass
