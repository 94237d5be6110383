"""Owns abuse: whatever is done inside, the control plane answers, the processes and files of the sandbox can be looked
at, another sandbox is untouched, and DELETE finishes in two seconds."""

import contextlib
import threading
import time

import httpx
import pytest

from harness import control, wire

TYPED = {"resource_exhausted", "unavailable", "internal", "deadline_exceeded", "failed_precondition", "aborted"}


@pytest.fixture
def neighbour():
    """Another sandbox, which notices nothing."""
    with control.box() as made:
        made.write("/home/user/kept", b"kept")
        yield made
        begin = time.monotonic()
        assert made.sh("cat kept").text == "kept"
        assert time.monotonic() - begin < 20


def unleash(box, script, user="user"):
    """Runs a script and does not wait for it."""

    def run():
        with contextlib.suppress(httpx.HTTPError, AssertionError):
            box.sh(script, user=user, timeout_ms=120_000)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    time.sleep(3)
    return thread


def assert_in_control(box):
    """Everything but exec works as ever; exec works, or fails in a typed way; nothing hangs; DELETE is quick."""
    begin = time.monotonic()
    assert box.info().json()["state"] == "running"
    assert box.id in control.running()
    assert box.http.get("/health").status_code in (200, 204)
    assert wire.unary(box.http, "process.Process/List", {}).status_code == 200
    assert wire.unary(box.http, "filesystem.Filesystem/Stat", {"path": "/etc/hostname"}).status_code == 200
    assert box.read("/etc/hostname")
    assert time.monotonic() - begin < 30, "the control path is starved"
    result = box.start("/bin/true", timeout_ms=15_000)
    assert result.exit_code == 0 or result.end or result.error["code"] in TYPED, result
    begin = time.monotonic()
    assert box.kill().status_code == 204
    taken = time.monotonic() - begin
    assert taken < 2, f"DELETE took {taken:.1f} s"
    assert box.info().status_code == 404


ABUSES = {
    "fork_bomb": "bomb() { bomb | bomb & }; bomb; sleep 60",
    "fork_bomb_of_sessions": 'python3 -c "\nimport os\nwhile True:\n    try:\n        if os.fork() == 0: os.setsid()\n    except OSError: pass"',
    "memory_bomb": "python3 -c \"a = []\nwhile True: a.append(bytearray(b'x') * (1 << 24))\"",
    "memory_bombs": "for i in $(seq 50); do python3 -c \"a = bytearray(b'x') * (1 << 26); import time; time.sleep(100)\" & done; wait",
    "disk_fill": "dd if=/dev/zero of=/home/user/big bs=1M; dd if=/dev/zero of=/var/tmp/big bs=1M; sleep 60",
    "inode_fill": "mkdir -p /home/user/many && cd /home/user/many && python3 -c \"\ni = 0\nwhile True:\n    open(str(i), 'w').close(); i += 1\"; sleep 60",
    "tmp_and_shm_fill": "dd if=/dev/zero of=/dev/shm/big bs=1M; dd if=/dev/zero of=/tmp/big bs=1M; dd if=/dev/zero of=/run/big bs=1M; sleep 60",
    "a_million_open_files": "python3 -c \"\nimport os, time\nfor _ in range(62):\n    if os.fork() == 0:\n        held = []\n        try:\n            while True: held.append(os.open('/etc/hostname', os.O_RDONLY))\n        except OSError: time.sleep(100)\ntime.sleep(100)\"",
    "inotify_exhaustion": 'python3 -c "\nimport ctypes, os, time\nlibc = ctypes.CDLL(None)\nfor _ in range(200):\n    if os.fork() == 0:\n        while libc.inotify_init() >= 0: pass\n        time.sleep(100)\ntime.sleep(100)"',
    "pid_exhaustion": "for i in $(seq 5000); do sleep 300 & done; sleep 60",
    "zombie_flood": 'python3 -c "\nimport os, time\nwhile True:\n    try:\n        if os.fork() == 0: os._exit(0)\n    except OSError: time.sleep(0.01)"',
    "thread_flood": 'python3 -c "\nimport threading, time\nwhile True:\n    try: threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n    except RuntimeError: time.sleep(0.1)"',
    "cpu_burn": "for i in $(seq 64); do (while :; do :; done) & done; wait",
    "output_flood": "yes $(head -c 4000 /dev/zero | tr '\\0' y) & yes >&2 & wait",
    "pipes_and_sockets": "python3 -c \"\nimport os, socket, time\nfor _ in range(50):\n    if os.fork() == 0:\n        held = []\n        try:\n            while True:\n                held.append(socket.socketpair()); held[-1][0].setblocking(False); held[-1][0].send(b'x' * 200000)\n        except OSError: time.sleep(100)\ntime.sleep(100)\"",
    "deep_directories": "python3 -c \"\nimport os\nwhile True:\n    os.mkdir('d'); os.chdir('d')\"; sleep 60",
    "stopped_processes": "for i in $(seq 200); do sleep 300 & kill -STOP $!; done; sleep 60",
    "keys_and_queues": 'python3 -c "\nimport ctypes\nlibc = ctypes.CDLL(None)\nfor i in range(100000):\n    libc.msgget(i + 1, 0o1666); libc.shmget(i + 1, 1 << 20, 0o1666); libc.semget(i + 1, 100, 0o1666)"; sleep 60',
}


@pytest.mark.parametrize("user", ["user", "root"])
@pytest.mark.parametrize("name", list(ABUSES))
def test_abuse_is_contained(name, user, neighbour, boxes):
    box = boxes()
    unleash(box, ABUSES[name], user)
    assert_in_control(box)


@pytest.mark.parametrize("user", ["user", "root"])
def test_killing_everything_leaves_a_sandbox_that_works(user, neighbour, boxes):
    """`kill -9 -1` reaches whatever the user may signal, and the sandbox takes commands afterwards."""
    box = boxes()
    with contextlib.suppress(httpx.HTTPError, AssertionError):
        box.start(
            "/usr/bin/python3", "-c", "import os\nfor _ in range(3): os.kill(-1, 9)", user=user, timeout_ms=20_000
        )
    control.eventually(lambda: box.sh("echo alive", user=user, timeout_ms=10_000).text == "alive\n", seconds=30)
    assert_in_control(box)


@pytest.mark.parametrize("user", ["user", "root"])
def test_killing_pid_1_is_either_refused_or_the_end(user, boxes):
    """Signals from inside do not reach pid 1; whatever happens, the record says the truth."""
    box = boxes()
    box.sh("for s in 1 2 3 9 11 15 19 20; do kill -$s 1; done", user=user, timeout_ms=20_000)
    time.sleep(1)
    assert box.sh("echo alive").text == "alive\n"
    assert_in_control(box)


def test_room_comes_back_after_a_full_disk(box):
    box.sh("dd if=/dev/zero of=/home/user/big bs=1M 2>/dev/null")
    assert box.sh("rm big && echo x > small && cat small").text == "x\n"


def test_the_disk_limit_is_the_one_configured(boxes):
    box = boxes()
    total = box.info().json()["diskSizeMB"]
    result = box.sh("dd if=/dev/zero of=/home/user/big bs=1M 2>&1 | tail -1; stat -c %s big; rm big")
    written = int(result.text.split()[-1]) >> 20
    assert total * 0.8 <= written <= total, result.text


def test_a_memory_limit_kills_the_hog_and_not_the_sandbox(boxes):
    box = boxes()
    limit = box.info().json()["memoryMB"]
    result = box.start("/usr/bin/python3", "-c", f"a = bytearray(b'x') * ({limit} << 20); print(len(a))")
    assert result.end["exitCode"] != 0 and result.stdout == b""
    assert box.sh("echo alive").text == "alive\n"


def test_a_process_limit_is_a_limit_and_typed(boxes):
    box = boxes()
    script = "import os, time\nn = 0\ntry:\n    while True:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\nexcept OSError as e: print(n, e.errno, flush=True)"
    count, code = box.start("/usr/bin/python3", "-c", script + "\nos.kill(0, 9)", timeout_ms=60_000).text.split()
    assert int(code) == 11 and 500 < int(count) < 1100
