"""Owns the Connect protocol as bytes: frames, streams and the events of a process."""

import base64
import dataclasses
import json
import struct


@dataclasses.dataclass
class Result:
    """What came of a process: its events, in order, and the end of the stream."""

    pid: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    end: dict | None = None
    error: dict | None = None
    chunks: list = dataclasses.field(default_factory=list)

    @property
    def exit_code(self):
        """Its exit code; `None` when it did not end."""
        return None if self.end is None else self.end.get("exitCode", 0)

    @property
    def text(self):
        """Standard output as text."""
        return self.stdout.decode(errors="replace")


def frame(payload, flags=0):
    """One frame."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return struct.pack(">BI", flags, len(data)) + data


def frames(pieces):
    """Cuts a byte stream into pairs of flags and payload."""
    held = b""
    for piece in pieces:
        held += piece
        while len(held) >= 5:
            flags, length = struct.unpack(">BI", held[:5])
            if len(held) < 5 + length:
                break
            yield flags, held[5 : 5 + length]
            held = held[5 + length :]
    assert not held, f"the stream ended within a frame: {held!r}"


def basic(user):
    """The header that selects a user of the sandbox."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:".encode()).decode()} if user else {}


def stream_headers(user=None, timeout_ms=None):
    """Headers of a streaming call."""
    headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", **basic(user)}
    if timeout_ms:
        headers["Connect-Timeout-Ms"] = str(timeout_ms)
    return headers


def start(http, request, user, timeout_ms):
    """Runs `Process/Start` to the end of its stream."""
    result = Result()
    headers = stream_headers(user, timeout_ms)
    with http.stream("POST", "/process.Process/Start", content=frame(request), headers=headers) as answer:
        if answer.status_code != 200:
            answer.read()
            result.error = {"status": answer.status_code, **answer.json()}
            return result
        for flags, payload in frames(answer.iter_raw()):
            take(result, flags, json.loads(payload or b"{}"))
    return result


def take(result, flags, message):
    """Adds one message of a stream to a result."""
    if flags & 2:
        result.error = message.get("error")
        return
    event = message.get("event", {})
    if "start" in event:
        result.pid = event["start"]["pid"]
    elif "end" in event:
        result.end = event["end"]
    for name in ("stdout", "stderr"):
        data = base64.b64decode(event.get("data", {}).get(name, ""))
        if data:
            result.chunks.append((name, len(data)))
            setattr(result, name, getattr(result, name) + data)


def unary(http, method, message, user=None, **headers):
    """A unary call in JSON."""
    headers = {"Content-Type": "application/json", "Connect-Protocol-Version": "1", **basic(user), **headers}
    return http.post(f"/{method}", content=json.dumps(message).encode(), headers=headers)
