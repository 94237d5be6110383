"""Owns the control plane in plain HTTP: what a client without an SDK sends, with nothing hidden."""

import contextlib
import time

import httpx

from . import place, wire

ENVD_PORT = 49983


def client(key=place.KEY, **headers):
    """A client of the control plane."""
    if key is not None:
        headers["X-API-Key"] = key
    return httpx.Client(base_url=place.URL, headers=headers, timeout=60)


class Box:
    """A sandbox as its control plane and its envd show it, in plain HTTP."""

    def __init__(self, key=place.KEY, **body):
        body.setdefault("templateID", "base")
        body.setdefault("timeout", 300)
        self.api = client(key)
        answer = self.api.post("/v2/sandboxes", json=body)
        assert answer.status_code == 201, f"{answer.status_code} {answer.text}"
        self.facts = answer.json()
        self.id = self.facts["sandboxID"]
        self.token = self.facts["envdAccessToken"]
        self.http = httpx.Client(base_url=place.URL, headers=self.headers(), timeout=60)

    def headers(self, port=ENVD_PORT):
        """What routes a request to the sandbox and lets it in."""
        return {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(port), "X-Access-Token": self.token}

    def info(self):
        """`GET /sandboxes/{id}`."""
        return self.api.get(f"/sandboxes/{self.id}")

    def kill(self):
        """`DELETE /sandboxes/{id}`."""
        return self.api.delete(f"/sandboxes/{self.id}")

    def start(self, *argv, user="user", stdin=False, timeout_ms=60_000, **process):
        """Runs a program to its end through `Process/Start`."""
        request = {"process": {"cmd": argv[0], "args": list(argv[1:]), **process}, "stdin": stdin}
        return wire.start(self.http, request, user, timeout_ms)

    def sh(self, script, **options):
        """Runs a shell script to its end."""
        return self.start("/bin/bash", "-c", script, **options)

    def write(self, path, content, user="user"):
        """Writes a file."""
        answer = self.http.post(
            "/files",
            params={"path": path, "username": user},
            content=content,
            headers={"Content-Type": "application/octet-stream"},
        )
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"

    def read(self, path, user="user"):
        """Reads a file."""
        answer = self.http.get("/files", params={"path": path, "username": user})
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
        return answer.content

    def close(self):
        """Ends it, whatever state it is in, and closes the clients."""
        with contextlib.suppress(httpx.HTTPError):
            self.kill()
        self.api.close()
        self.http.close()


@contextlib.contextmanager
def box(**body):
    """A sandbox for the length of a block."""
    made = Box(**body)
    try:
        yield made
    finally:
        made.close()


def running(key=place.KEY):
    """The ids of all sandboxes that the control plane lists."""
    ids, token = set(), None
    with client(key) as api:
        while True:
            answer = api.get("/v2/sandboxes", params={"nextToken": token} if token else {})
            assert answer.status_code == 200, answer.text
            ids |= {row["sandboxID"] for row in answer.json()}
            token = answer.headers.get("X-Next-Token")
            if not token:
                return ids


def eventually(check, seconds=10.0, every=0.05):
    """Waits until `check()` is true; fails with its last answer."""
    deadline = time.monotonic() + seconds
    while True:
        answer = check()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"still {answer!r} after {seconds} s"
        time.sleep(every)
