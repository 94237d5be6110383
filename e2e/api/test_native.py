"""Owns the native API: its document, its shapes, and that an unknown field is an error."""

import pytest

from harness import control


@pytest.fixture
def native():
    """A sandbox of the native API: client and id."""
    with control.client() as api:
        answer = api.post("/v1/sandboxes", json={"template": "base", "timeout_seconds": 120, "env": {"A": "b"}})
        assert answer.status_code in (200, 201), answer.text
        yield api, answer.json()["id"]
        api.delete(f"/v1/sandboxes/{answer.json()['id']}")


def test_a_command_runs_and_its_end_is_told(native):
    api, sandbox = native
    answer = api.post(
        f"/v1/sandboxes/{sandbox}/exec", json={"argv": ["sh", "-c", "echo $A; cat; exit 3"], "stdin": "in"}
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["stdout"], body["stderr"], body["exit"]["code"]) == ("b\nin", "", 3)
    assert body["exit"]["timed_out"] is False and body["truncated"] is False


def test_a_time_limit_is_told_with_what_was_printed(native):
    api, sandbox = native
    body = {"argv": ["sh", "-c", "echo partial; sleep 100"], "timeout_ms": 500}
    answer = api.post(f"/v1/sandboxes/{sandbox}/exec", json=body).json()
    assert answer["exit"]["timed_out"] is True and answer["stdout"] == "partial\n"


def test_the_facts_of_a_sandbox_are_those_asked_for():
    with control.client() as api:
        body = {
            "resources": {"memory_mib": 256, "cpu_millis": 500, "processes": 64, "disk_mib": 100},
            "metadata": {"k": "v"},
        }
        made = api.post("/v1/sandboxes", json=body).json()
        try:
            seen = api.get(f"/v1/sandboxes/{made['id']}").json()
            assert seen["state"] == "running" and seen["template"] == "base" and seen["metadata"] == {"k": "v"}
            assert seen["resources"] == {**seen["resources"], **body["resources"]}
            assert made["id"] in [row["id"] for row in api.get("/v1/sandboxes").json()["sandboxes"]]
        finally:
            assert api.delete(f"/v1/sandboxes/{made['id']}").status_code in (200, 204)


REFUSED = [
    {"tempalte": "base"},
    {"timeout_seconds": -1},
    {"timeout_seconds": 10**12},
    {"resources": {"memory_mib": 1}},
    {"resources": {"memory_mib": 2**31}},
    {"resources": {"processes": 0}},
    {"resources": {"disk_mib": 10**9}},
    {"resources": {"cpu_millis": 0}},
    {"resources": {"memory": 5}},
]


@pytest.mark.parametrize("body", REFUSED, ids=[str(row) for row in REFUSED])
def test_what_cannot_be_is_refused_with_its_kind(body):
    with control.client() as api:
        answer = api.post("/v1/sandboxes", json=body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["code"] == 400 and answer.json()["kind"] == "invalid_argument" and answer.json()["message"]


def test_the_document_of_the_api_names_its_routes():
    with control.client() as api:
        found = [path for path in ("/v1/openapi.json", "/openapi.json") if api.get(path).status_code == 200]
        assert found, "no OpenAPI document"
        document = api.get(found[0]).json()
        assert document["openapi"].startswith("3.") and "/v1/sandboxes" in document["paths"]


def test_what_happened_is_in_the_record(native):
    api, sandbox = native
    api.post(f"/v1/sandboxes/{sandbox}/exec", json={"argv": ["echo", "recorded"]})
    rows = api.get(f"/v1/sandboxes/{sandbox}/logs").json()["rows"]
    assert rows and all(row["at"] and row["event"] for row in rows)


def test_the_host_is_checked():
    with control.client() as api:
        checks = api.get("/v1/doctor").json()["checks"]
        assert checks and not [row for row in checks if row["verdict"] == "fail"]
