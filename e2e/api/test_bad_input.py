"""Owns bad input: every row of the tables is answered with the documented status and body, nothing crashes, and the
server does its work afterwards."""

import errno
import json
import select
import socket
import struct
import time

import httpx
import pytest

from harness import control, place, wire

NOWHERE = "inosuchsandboxatall00"


@pytest.fixture(autouse=True)
def works_afterwards():
    """Whatever was sent: the roles that were there are there, and the control plane answers."""
    before = roles()
    yield
    assert roles() == before, "a role ended"
    with control.client() as api:
        assert api.get("/health").status_code == 204
        assert api.get("/v2/sandboxes").status_code == 200


def roles():
    """Pids of the roles."""
    return {path.name: path.read_text() for path in (place.DATA_DIR / "run").glob("*.pid")}


def assert_error(answer, status, text=None):
    """The status, and the one body of errors."""
    assert answer.status_code == status, f"{answer.status_code} {answer.text[:300]}"
    assert answer.headers["content-type"].startswith("application/json")
    body = answer.json()
    assert body["code"] == status and isinstance(body["message"], str) and body["message"], body
    assert "panicked" not in answer.text and "src/" not in answer.text
    if text is not None:
        assert text in body["message"], body["message"]


CREATE = [
    (b"{", 400, None),
    (b"", 400, None),
    (b"[]", 400, None),
    (b"null", 400, None),
    (b'"base"', 400, None),
    (b"{}", 400, "templateID"),
    (b'{"templateID": 5}', 400, None),
    (b'{"templateID": ""}', 400, None),
    (b'{"templateID": "base", "timeout": -1}', 400, None),
    (b'{"templateID": "base", "timeout": 0}', 400, "Timeout must be greater than 0"),
    (b'{"templateID": "base", "timeout": 99999999999}', 400, None),
    (b'{"templateID": "base", "timeout": 1e300}', 400, None),
    (b'{"templateID": "base", "timeout": 18446744073709551616}', 400, None),
    (b'{"templateID": "base", "timeout": "300"}', 400, None),
    (b'{"templateID": "base", "timeout": NaN}', 400, None),
    (b'{"templateID": "base", "metadata": {"a": 1}}', 400, None),
    (b'{"templateID": "base", "metadata": []}', 400, None),
    (b'{"templateID": "base", "envVars": {"A=B": "x"}}', 400, None),
    (b'{"templateID": "base", "envVars": {"": "x"}}', 400, None),
    (b'{"templateID": "base", "envVars": {"A": "x\\u0000y"}}', 400, None),
    (b'{"templateID": "no-such-template"}', 404, "not found"),
    (b'{"templateID": "base:nosuchtag"}', 404, "nosuchtag"),
    (b'{"templateID": "../../etc/passwd"}', 404, None),
    (b'{"templateID": "a\\u0000b"}', 404, None),
    (b'{"templateID": "\xff\xfe"}', 400, None),
    (b"[" * 100_000, 400, None),
]


@pytest.mark.parametrize("path", ["/v2/sandboxes", "/sandboxes"])
@pytest.mark.parametrize(("body", "status", "text"), CREATE, ids=[row[0][:48].decode("latin1") for row in CREATE])
def test_a_create_that_cannot_be_is_refused(path, body, status, text):
    with control.client() as api:
        answer = api.post(path, content=body, headers={"Content-Type": "application/json"})
    if status == 404 and text is None:
        status = answer.status_code
        assert status in (400, 404)
    assert_error(answer, status, text)


def test_a_body_beyond_the_bound_is_refused():
    huge = json.dumps({"templateID": "base", "metadata": {"a": "x" * 2_000_000}}).encode()
    with control.client() as api:
        answer = api.post("/v2/sandboxes", content=huge, headers={"Content-Type": "application/json"})
    assert_error(answer, answer.status_code)
    assert answer.status_code in (400, 413)


def test_too_much_metadata_or_environment_is_refused():
    with control.client() as api:
        many = {f"k{n}": "v" for n in range(1000)}
        assert_error(api.post("/v2/sandboxes", json={"templateID": "base", "metadata": many}), 400)
        assert_error(api.post("/v2/sandboxes", json={"templateID": "base", "envVars": {"A": "x" * 500_000}}), 400)


PATHS = [
    ("GET", "/sandboxes/{id}", 404),
    ("DELETE", "/sandboxes/{id}", 404),
    ("POST", "/sandboxes/{id}/connect", 404),
    ("POST", "/v2/sandboxes/{id}/connect", 404),
    ("POST", "/sandboxes/{id}/timeout", 404),
    ("POST", "/sandboxes/{id}/refreshes", 404),
]


@pytest.mark.parametrize(("method", "path", "status"), PATHS)
def test_an_unknown_sandbox_is_404_and_a_malformed_one_400(method, path, status):
    body = {"timeout": 10, "duration": 10}
    with control.client() as api:
        assert_error(api.request(method, path.format(id=NOWHERE), json=body), status)
        for malformed in ("UPPER", "a%2Fb", "%00", "a%20b", "..%2F..%2Fetc", "x" * 200, "%ff"):
            answer = api.request(method, path.format(id=malformed), json=body)
            assert_error(answer, answer.status_code)
            assert answer.status_code in (400, 404), malformed


@pytest.mark.parametrize(("method", "path", "status"), PATHS)
@pytest.mark.parametrize("key", [None, "", "e2b_", "e2b_" + "0" * 40, "e2b_" + "0" * 100_0, "Bearer x"])
def test_no_key_or_a_wrong_one_is_401(method, path, status, key):
    with control.client(key) as api:
        assert_error(api.request(method, path.format(id=NOWHERE), json={"timeout": 10}), 401)


def test_lists_check_what_they_are_asked():
    with control.client() as api:
        for query in ("limit=0", "limit=-1", "limit=101", "limit=x", "nextToken=%FF", "nextToken=rubbish", "state=odd"):
            assert_error(api.get(f"/v2/sandboxes?{query}"), 400)
        assert_error(api.get("/v2/sandboxes?startedAfter=yesterday"), 400)
        assert_error(api.get("/v2/sandboxes?order=sideways"), 400)
        assert api.get("/v2/sandboxes?template=no-such").json() == []


def test_an_unknown_route_is_a_404_of_ours_and_a_wrong_method_405():
    with control.client() as api:
        assert_error(api.get("/no/such/route"), 404)
        assert_error(api.put("/v2/sandboxes", json={}), 405)


TIMEOUTS = [(-1, 400), (1e18, 400), ("x", 400), (None, 400), (3601 * 24 * 365, 400)]


@pytest.mark.parametrize(("timeout", "status"), TIMEOUTS)
def test_an_absurd_timeout_changes_nothing(box, timeout, status):
    before = box.info().json()["endAt"]
    assert_error(box.api.post(f"/sandboxes/{box.id}/timeout", json={"timeout": timeout}), status)
    assert box.info().json()["endAt"] == before


def test_files_outside_of_what_can_be_are_refused(box):
    for path, status in [("~other/x", 400), ("a\0b", 400), ("x" * 5000, 400), ("/proc/1/mem", 400), ("/dev/zero", 400)]:
        answer = box.http.get("/files", params={"path": path})
        assert answer.status_code in (status, 403, 404), (path, answer.status_code, answer.text[:200])
        assert_error(answer, answer.status_code)
    assert_error(box.http.get("/files", params={"path": "/home/user/none"}), 404)
    assert_error(box.http.get("/files", params={"path": "/home/user"}), 400)
    assert_error(box.http.get("/files", params={"path": "/etc/hostname", "username": "nobody-such"}), 401)


def test_a_path_does_not_leave_the_sandbox(box):
    """`..` is cleaned; what is above the root of the sandbox is the root of the sandbox."""
    box.write("/marker", b"inside", user="root")
    assert box.read("../../../../../../../marker") == b"inside"
    assert box.read("/../../../../marker") == b"inside"
    inside = box.read("/../../../../etc/hostname").strip()
    assert inside != open("/etc/hostname", "rb").read().strip()
    box.sh("ln -s / up; ln -s ../../../../../../../../.. higher")
    assert box.read("up/marker") == b"inside"
    assert box.read("higher/marker") == b"inside"


def test_forms_of_an_upload_that_cannot_be_are_refused(box):
    octets = {"Content-Type": "application/octet-stream"}
    assert_error(box.http.post("/files", content=b"x", headers=octets), 400)
    assert_error(box.http.post("/files", params={"path": "/home/user"}, content=b"x", headers=octets), 400)
    assert_error(
        box.http.post("/files", params={"path": "f"}, content=b"x", headers={"Content-Type": "text/plain"}), 400
    )
    assert_error(
        box.http.post("/files", params={"path": "f"}, content=b"x", headers={**octets, "Content-Encoding": "br"}), 400
    )
    assert_error(
        box.http.post(
            "/files", params={"path": "f"}, content=b"no gzip", headers={**octets, "Content-Encoding": "gzip"}
        ),
        400,
    )
    assert_error(
        box.http.post("/files", params={"path": "f"}, content=b"x", headers={**octets, "X-Metadata-" + "k" * 300: "v"}),
        400,
    )
    multipart = {"Content-Type": "multipart/form-data; boundary=B"}
    for body in (
        b"",
        b"--B",
        b"--B\r\n\r\n",
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="/tmp/x"\r\n\r\nno end',
    ):
        answer = box.http.post("/files", content=body, headers=multipart)
        assert answer.status_code in (200, 400), (body, answer.status_code)
    assert_error(box.http.post("/files", content=b"x", headers={"Content-Type": "multipart/form-data"}), 400)
    twice = [("file", ("/tmp/same", b"1")), ("file", ("/tmp/same", b"2"))]
    assert_error(box.http.post("/files", files=twice), 400)


def test_an_upload_that_breaks_off_leaves_the_sandbox_usable(box):
    head = (
        f"POST /files?path=/home/user/cut HTTP/1.1\r\nHost: {place.HOST}:{place.PORT}\r\n"
        + "".join(f"{name}: {value}\r\n" for name, value in box.headers().items())
        + "Content-Type: application/octet-stream\r\nContent-Length: 1000000\r\n\r\n"
    )
    for _ in range(20):
        with socket.create_connection((place.HOST, int(place.PORT)), timeout=10) as connection:
            connection.sendall(head.encode() + b"x" * 1000)
    assert box.sh("echo fine").text == "fine\n"


def test_ten_gibibytes_onto_a_small_disk_are_refused_quickly(box):
    """Announced or not: the answer comes when the disk is full, not after ten gibibytes."""
    begin = time.monotonic()
    answer = upload(box, 10 << 30)
    assert b" 507 " in answer.split(b"\r\n")[0], answer[:300]
    assert b"not enough disk space" in answer
    assert time.monotonic() - begin < 60
    assert box.sh("rm -f /home/user/huge; echo x > y && cat y").text == "x\n"


def upload(box, size):
    """Sends zeroes until the server answers; the head of its answer."""
    with socket.create_connection((place.HOST, int(place.PORT)), timeout=60) as connection:
        head = f"POST /files?path=/home/user/huge&username=user HTTP/1.1\r\nHost: {place.HOST}:{place.PORT}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in box.headers().items())
        head += f"Content-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n"
        connection.sendall(head.encode())
        block, sent = bytes(1 << 20), 0
        connection.settimeout(30)
        try:
            while sent < size:
                connection.sendall(block)
                sent += len(block)
                if readable(connection):
                    break
        except (BrokenPipeError, ConnectionResetError):
            pass
        return connection.recv(65536)


def readable(connection):
    """True when the server said something."""
    return bool(select.select([connection], [], [], 0)[0])


STREAMS = [
    b"",
    b"\0",
    b"\0\0\0\0",
    struct.pack(">BI", 0, 0),
    struct.pack(">BI", 0, 100) + b"{}",
    struct.pack(">BI", 0, 0xFFFFFFFF),
    struct.pack(">BI", 1, 2) + b"{}",
    wire.frame(b"not json"),
    wire.frame(b"\xff\xfe"),
    wire.frame({}),
    wire.frame({"process": {}}),
    wire.frame({"process": {"cmd": ""}}),
    wire.frame({"process": {"cmd": "/bin/true", "args": "x"}}),
    wire.frame({"process": {"cmd": "/bin/true\0"}}),
    wire.frame({"process": {"cmd": "/bin/true", "envs": {"A=": "x"}}}),
    wire.frame({"process": {"cmd": "/bin/true", "args": ["x" * 3_000_000]}}),
    wire.frame({"process": {"cmd": "/bin/true", "cwd": "/none"}}),
    wire.frame({"process": {"cmd": "/no/such/program"}}),
    wire.frame({"process": {"cmd": "/etc/passwd"}}),
    wire.frame({"process": {"cmd": "/bin/true"}, "pty": {"size": {"cols": 1 << 40, "rows": -1}}}),
]


@pytest.mark.parametrize("body", STREAMS, ids=[repr(row[:40]) for row in STREAMS])
def test_a_stream_that_cannot_be_ends_with_an_error(box, body):
    answer = box.http.post("/process.Process/Start", content=body, headers=wire.stream_headers("user"))
    if answer.status_code != 200:
        assert 400 <= answer.status_code < 500, answer.status_code
        assert answer.json()["message"] is not None
        return
    flags, payload = list(wire.frames([answer.content]))[-1]
    assert flags & 2, "the stream has no end"
    assert json.loads(payload)["error"]["code"] in (
        "invalid_argument",
        "unimplemented",
        "resource_exhausted",
        "internal",
    ), payload
    assert box.sh("echo fine").text == "fine\n"


UNARY = [
    ("process.Process/SendInput", {}, 501),
    ("process.Process/SendInput", {"process": {"pid": 99999}, "input": {"stdin": "AAAA"}}, 404),
    ("process.Process/SendInput", {"process": {"pid": 99999}, "input": {"stdin": "not base64!"}}, 400),
    ("process.Process/SendSignal", {"process": {"pid": 99999}, "signal": "SIGNAL_SIGKILL"}, 404),
    ("process.Process/SendSignal", {"process": {"pid": -5}, "signal": "SIGNAL_SIGKILL"}, 400),
    ("process.Process/Update", {"process": {"tag": "none"}, "pty": {"size": {"cols": 1, "rows": 1}}}, 404),
    ("process.Process/NoSuchMethod", {}, 404),
    ("no.such.Service/Method", {}, 404),
    ("filesystem.Filesystem/Stat", {"path": "/none"}, 404),
    ("filesystem.Filesystem/Stat", {"path": 5}, 400),
    ("filesystem.Filesystem/ListDir", {"path": "/etc/hostname"}, 400),
    ("filesystem.Filesystem/ListDir", {"path": "/none", "depth": 4294967295}, 404),
    ("filesystem.Filesystem/MakeDir", {"path": "/etc/hostname"}, 400),
    ("filesystem.Filesystem/MakeDir", {"path": "~other"}, 400),
    ("filesystem.Filesystem/Move", {"source": "/none", "destination": "/tmp/x"}, 404),
]


@pytest.mark.parametrize(("method", "message", "status"), UNARY)
def test_a_call_that_cannot_be_is_refused_in_the_words_of_connect(box, method, message, status):
    answer = wire.unary(box.http, method, message, user="user")
    assert answer.status_code in ((status, 501) if "Such" in method or "such" in method else (status,)), answer.text[
        :200
    ]
    if method.startswith(("process", "filesystem")) and "NoSuch" not in method:
        assert isinstance(answer.json()["code"], str) and answer.json()["message"]


def test_rubbish_as_a_unary_message_is_refused(box):
    for content in (b"", b"{", b"\xff", b"[1]", b"x" * 5_000_000):
        headers = {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
        answer = box.http.post("/filesystem.Filesystem/Stat", content=content, headers=headers)
        assert 400 <= answer.status_code < 500, (content[:10], answer.status_code)
    answer = box.http.post("/filesystem.Filesystem/Stat", content=b"{}", headers={"Content-Type": "text/plain"})
    assert answer.status_code in (400, 415)


def test_an_unknown_user_is_unauthenticated(box):
    answer = wire.unary(box.http, "filesystem.Filesystem/Stat", {"path": "/"}, user="root123")
    assert answer.status_code == 401
    assert answer.json()["code"] == "unauthenticated" and "invalid username: 'root123'" in answer.json()["message"]


ROUTES = [
    ({"E2b-Sandbox-Id": NOWHERE, "E2b-Sandbox-Port": "49983"}, 502, "was not found"),
    ({"E2b-Sandbox-Id": "NOT AN ID", "E2b-Sandbox-Port": "49983"}, 400, None),
    ({"E2b-Sandbox-Id": NOWHERE}, 400, None),
    ({"E2b-Sandbox-Port": "49983"}, 400, None),
    ({"E2b-Sandbox-Id": NOWHERE, "E2b-Sandbox-Port": "x"}, 400, None),
    ({"E2b-Sandbox-Id": NOWHERE, "E2b-Sandbox-Port": "70000"}, 400, None),
    ({"Host": f"49983-{NOWHERE}.{place.DOMAIN}"}, 502, "was not found"),
    ({"Host": f"99999-{NOWHERE}.{place.DOMAIN}"}, 400, "Invalid sandbox port"),
    ({"Host": f"49983-NO_ID.{place.DOMAIN}"}, 400, "Invalid sandbox ID"),
]


@pytest.mark.parametrize(("headers", "status", "text"), ROUTES)
def test_a_request_to_no_sandbox_is_told_so(headers, status, text):
    answer = httpx.get(place.URL + "/health", headers=headers, timeout=30)
    assert answer.status_code == status, answer.text
    assert text is None or text in answer.text


def test_the_inside_is_closed_without_its_token(box):
    bare = {name: value for name, value in box.headers().items() if name != "X-Access-Token"}
    for headers in (bare, {**bare, "X-Access-Token": "wrong"}, {**bare, "X-API-Key": place.KEY}):
        with httpx.Client(base_url=place.URL, headers=headers) as http:
            for answer in (
                wire.unary(http, "process.Process/List", {}),
                http.get("/files", params={"path": "/etc/hostname"}),
                http.get("/metrics"),
                http.get("/envs"),
                http.post("/process.Process/Start", content=wire.frame({}), headers=wire.stream_headers()),
            ):
                assert answer.status_code == 401, answer.text
                assert answer.json()["code"] == 401
            assert http.get("/health").status_code in (200, 204)
    assert box.http.post("/init", json={}).status_code == 404


HTTP = [
    b"",
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\n" + b"A: " + b"x" * 200_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"GET /" + b"%2e" * 50_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\0" * 1000,
]


@pytest.mark.parametrize("data", HTTP, ids=[repr(row[:30]) for row in HTTP])
def test_what_is_no_http_harms_nobody(data):
    with socket.create_connection((place.HOST, int(place.PORT)), timeout=10) as connection:
        connection.settimeout(10)
        # A server may have refused before all was sent: then the connection is gone in the middle.
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            head = connection.recv(200)
        except OSError as error:
            assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), error
            return
    assert head == b"" or b" 4" in head.split(b"\r\n")[0] or b" 5" in head.split(b"\r\n")[0] or b" 200" in head, head
