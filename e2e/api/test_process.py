"""Owns the meaning of processes and streams on the wire, where no SDK smooths anything."""

import base64
import json
import socket
import threading
import time

import httpx
import pytest

from harness import control, place, wire


def test_a_stream_begins_with_start_and_closes_with_end(box):
    result = box.start("/bin/sh", "-c", "printf out; printf err >&2; exit 3")
    assert result.pid > 1 and (result.stdout, result.stderr) == (b"out", b"err")
    assert result.end == {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}
    assert result.error is None


def test_a_signal_is_told_apart_from_an_exit(box):
    result = box.sh("kill -9 $$")
    assert result.end["exitCode"] == -1 and result.end.get("exited", False) is False
    assert result.end["status"] == "signal: killed"


@pytest.mark.parametrize("count", [8191, 8192, 32767, 32768, 32769, 65536, 1_000_000])
def test_output_is_exact_to_the_byte_and_cut_into_bounded_pieces(box, count):
    result = box.start(
        "/usr/bin/python3", "-c", f"import sys; sys.stdout.buffer.write(b'\\xe2' + b'\\xff\\x00a' * {count})"
    )
    assert result.stdout == b"\xe2" + b"\xff\x00a" * count
    assert max(size for _, size in result.chunks) <= 32 * 1024


def test_output_of_a_program_that_ends_at_once_is_never_lost(box):
    for _ in range(50):
        assert box.start("/bin/echo", "here").stdout == b"here\n"


def test_a_deadline_ends_the_stream_and_the_tree(box):
    begin = time.monotonic()
    result = box.sh("(setsid sh -c 'sleep 990.5 & sleep 990.5 & wait' &); echo partial; sleep 990.5", timeout_ms=1000)
    assert time.monotonic() - begin < 10
    assert result.stdout == b"partial\n" and result.error["code"] == "deadline_exceeded"
    control.eventually(lambda: box.sh("pgrep -f '[s]leep 990.5' | wc -l", user="root").text == "0\n", seconds=2)


def test_a_pipe_held_open_by_a_child_holds_the_stream(box):
    begin = time.monotonic()
    result = box.sh("(sleep 1; echo late) & echo early")
    assert result.text == "early\nlate\n" and time.monotonic() - begin >= 1


def test_the_process_that_ended_can_still_be_asked(box):
    pid = box.start("/bin/sh", "-c", "exit 5").pid
    with box.http.stream(
        "POST",
        "/process.Process/Connect",
        content=wire.frame({"process": {"pid": pid}}),
        headers=wire.stream_headers(),
    ) as answer:
        result = wire.Result()
        for flags, payload in wire.frames(answer.iter_raw()):
            wire.take(result, flags, json.loads(payload))
    assert result.pid == pid and result.end["exitCode"] == 5


def test_input_is_refused_where_there_is_none(box):
    with background(box, "sleep 30", stdin=False) as pid:
        message = {"process": {"pid": pid}, "input": {"stdin": base64.b64encode(b"x").decode()}}
        assert wire.unary(box.http, "process.Process/SendInput", message).json()["code"] == "internal"
        message = {"process": {"pid": pid}, "pty": {"size": {"cols": 1, "rows": 1}}}
        assert wire.unary(box.http, "process.Process/Update", message).json()["code"] == "internal"


class background:
    """A process that runs while the block does; its pid."""

    def __init__(self, box, script, **request):
        self.box = box
        body = {"process": {"cmd": "/bin/bash", "args": ["-c", script]}, "tag": "the-tag", **request}
        self.stream = box.http.stream(
            "POST", "/process.Process/Start", content=wire.frame(body), headers=wire.stream_headers("user")
        )

    def __enter__(self):
        answer = self.stream.__enter__()
        self.events = wire.frames(answer.iter_raw())
        return json.loads(next(self.events)[1])["event"]["start"]["pid"]

    def __exit__(self, *problem):
        return self.stream.__exit__(*problem)


def test_a_tag_finds_a_process_and_a_signal_ends_it(box):
    one = background(box, "sleep 30", stdin=False)
    with one as pid:
        listed = wire.unary(box.http, "process.Process/List", {}).json()["processes"]
        assert [(row["pid"], row["tag"]) for row in listed] == [(pid, "the-tag")]
        message = {"process": {"tag": "the-tag"}, "signal": "SIGNAL_SIGTERM"}
        assert wire.unary(box.http, "process.Process/SendSignal", message).status_code == 200
        result = wire.Result()
        for flags, payload in one.events:
            wire.take(result, flags, json.loads(payload))
        assert result.end["status"] == "signal: terminated"


def test_protobuf_is_spoken_as_well_as_json(box):
    headers = {"Content-Type": "application/proto", "Connect-Protocol-Version": "1"}
    answer = box.http.post("/process.Process/List", content=b"", headers=headers)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/proto"
    answer = box.http.post("/filesystem.Filesystem/Stat", content=b"\x0a\x04/etc", headers=headers)
    assert answer.status_code == 200 and b"/etc" in answer.content


def test_a_silent_stream_is_kept_alive(box):
    request = {"process": {"cmd": "/bin/sleep", "args": ["4"]}}
    headers = {**wire.stream_headers("user"), "Keepalive-Ping-Interval": "1"}
    with box.http.stream("POST", "/process.Process/Start", content=wire.frame(request), headers=headers) as answer:
        events = [json.loads(payload) for _, payload in wire.frames(answer.iter_raw())]
    assert sum("keepalive" in event.get("event", {}) for event in events) >= 2


def test_a_killed_sandbox_resets_open_streams_and_is_not_found_from_then_on(box):
    head = "POST /process.Process/Start HTTP/1.1\r\nHost: x\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in {**box.headers(), **wire.stream_headers("user")}.items()
    )
    body = wire.frame({"process": {"cmd": "/bin/sleep", "args": ["60"]}})
    with socket.create_connection((place.HOST, int(place.PORT)), timeout=10) as connection:
        connection.sendall(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert b" 200 " in connection.recv(4096)
        killer = threading.Thread(target=box.kill)
        killer.start()
        with pytest.raises(ConnectionResetError):
            while connection.recv(4096):
                pass
        answer = httpx.get(place.URL + "/health", headers=box.headers())
        assert answer.status_code == 502
        assert answer.json() == {"sandboxId": box.id, "message": "The sandbox was not found", "code": 502}
        killer.join()


def test_deleting_is_quick_and_final_even_under_full_load(box):
    threading.Thread(
        target=lambda: swallow(lambda: box.sh("for i in $(seq 20); do (while :; do :; done) & done; wait"))
    ).start()
    control.eventually(lambda: wire.unary(box.http, "process.Process/List", {}).json().get("processes"))
    begin = time.monotonic()
    assert box.kill().status_code == 204
    assert time.monotonic() - begin < 2
    assert box.kill().status_code == 404 and box.info().status_code == 404


def swallow(call):
    """Runs what is expected to be cut off."""
    try:
        call()
    except (httpx.HTTPError, AssertionError):
        pass


def test_the_inside_says_what_it_uses_and_has_in_its_environment(boxes):
    box = boxes(envVars={"FROM_CREATE": "yes"})
    environment = box.http.get("/envs").json()
    assert environment["FROM_CREATE"] == "yes" and environment["E2B_SANDBOX_ID"] == box.id
    measure = box.http.get("/metrics").json()
    assert measure["mem_total"] > 0 and measure["disk_total"] > 0 and measure["cpu_count"] >= 1
    assert 0 < measure["mem_used"] <= measure["mem_total"]


def test_a_sandbox_ends_by_itself_at_its_deadline(boxes):
    box = boxes(timeout=2)
    assert box.sh("echo alive").text == "alive\n"
    time.sleep(2)
    control.eventually(lambda: box.info().status_code == 404, seconds=2)
    control.eventually(lambda: box.id not in control.running(), seconds=2)


def test_refreshing_only_extends(box):
    before = box.info().json()["endAt"]
    assert box.api.post(f"/sandboxes/{box.id}/refreshes", json={"duration": 1}).status_code == 204
    assert box.info().json()["endAt"] == before
    assert box.api.post(f"/sandboxes/{box.id}/refreshes", json={"duration": 3600}).status_code == 204
    assert box.info().json()["endAt"] > before
