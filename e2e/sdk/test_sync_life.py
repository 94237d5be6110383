"""Owns the life of a sandbox as the synchronous Python SDK sees it: create, find, keep, lose."""

import datetime
import time
import uuid

import httpx
import pytest
from e2b import AuthenticationException, NotFoundException, Sandbox, SandboxException, SandboxQuery, SandboxState

from harness import place
from harness.control import eventually


def every(paginator):
    """All rows of all pages."""
    rows = []
    while paginator.has_next:
        rows += paginator.next_items()
    return rows


def test_a_sandbox_is_what_it_was_asked_to_be():
    before = datetime.datetime.now(datetime.timezone.utc)
    sandbox = Sandbox.create("base", timeout=120, metadata={"who": "me", "näme": "ü & = %"})
    try:
        info = sandbox.get_info()
        assert info.sandbox_id == sandbox.sandbox_id and info.state == SandboxState.RUNNING
        assert info.metadata == {"who": "me", "näme": "ü & = %"}
        assert info.name == "base" and info.cpu_count >= 1 and info.memory_mb >= 128
        assert abs((info.end_at - info.started_at).total_seconds() - 120) < 5
        assert abs((info.started_at - before).total_seconds()) < 30
        assert sandbox.is_running()
    finally:
        assert sandbox.kill() is True
    assert sandbox.kill() is False
    assert not sandbox.is_running()


def test_connecting_extends_and_never_shortens(sandbox):
    before = sandbox.get_info().end_at
    again = Sandbox.connect(sandbox.sandbox_id, timeout=10)
    assert again.get_info().end_at == before
    Sandbox.connect(sandbox.sandbox_id, timeout=900)
    assert (sandbox.get_info().end_at - before).total_seconds() > 500


def test_a_timeout_that_passes_ends_the_sandbox_within_a_second(sandbox):
    sandbox.set_timeout(2)
    assert sandbox.is_running()
    time.sleep(3)
    assert not sandbox.is_running()
    with pytest.raises(NotFoundException):
        Sandbox.connect(sandbox.sandbox_id)
    with pytest.raises(SandboxException):
        sandbox.commands.run("true")


def test_metadata_filters_and_pages_find_exactly_the_ones_meant():
    group = uuid.uuid4().hex
    made = [Sandbox.create(timeout=120, metadata={"group": group, "n": str(n), "odd &=%": "a b+c"}) for n in range(5)]
    try:
        query = SandboxQuery(metadata={"group": group})
        rows = every(Sandbox.list(query=query, limit=2))
        assert [row.sandbox_id for row in rows] == [one.sandbox_id for one in reversed(made)]
        one = every(Sandbox.list(query=SandboxQuery(metadata={"group": group, "n": "3", "odd &=%": "a b+c"})))
        assert [row.sandbox_id for row in one] == [made[3].sandbox_id]
        assert every(Sandbox.list(query=SandboxQuery(metadata={"group": group, "n": "9"}))) == []
        paused = SandboxQuery(metadata={"group": group}, state=[SandboxState.PAUSED])
        assert every(Sandbox.list(query=paused)) == []
        since = SandboxQuery(metadata={"group": group}, started_after=rows[1].started_at)
        assert {row.sandbox_id for row in every(Sandbox.list(query=since))} == {one.sandbox_id for one in made[3:]}
        ascending = every(Sandbox.list(query=query, order="asc"))
        assert [row.sandbox_id for row in ascending] == [one.sandbox_id for one in made]
        made[0].kill()
        assert made[0].sandbox_id not in {row.sandbox_id for row in every(Sandbox.list(query=query))}
    finally:
        for one in made:
            one.kill()


def test_a_block_leaves_nothing():
    with Sandbox.create(timeout=60) as sandbox:
        assert sandbox.commands.run("echo in").stdout == "in\n"
    assert not sandbox.is_running()


def test_what_does_not_exist_or_is_not_allowed_is_said_so():
    with pytest.raises(NotFoundException):
        Sandbox.connect("inosuchsandboxatall00")
    with pytest.raises(SandboxException, match="not found"):
        Sandbox.create("no-such-template")
    with pytest.raises(AuthenticationException):
        Sandbox.create(api_key="e2b_" + "0" * 40)
    assert Sandbox.kill("inosuchsandboxatall00") is False


def test_a_server_inside_is_reached_by_host_name_and_by_headers(sandbox):
    sandbox.commands.run("mkdir -p www && echo served > www/index.html")
    sandbox.commands.run("python3 -m http.server -b 127.0.0.1 -d www 8123", background=True)
    host = f"8123-{sandbox.sandbox_id}.{place.DOMAIN}"
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "8123"}
    for route in ({"Host": host}, headers):
        answer = eventually(lambda: (a := httpx.get(place.URL, headers=route)).status_code == 200 and a)
        assert answer.text == "served\n"
    closed = httpx.get(place.URL, headers={"Host": host.replace("8123", "8124")}, timeout=30)
    assert closed.status_code == 502 and "port is not open" in closed.json()["message"]


def test_measures_are_there_and_plausible(sandbox):
    measure = eventually(lambda: sandbox.get_metrics(), seconds=60, every=1)[-1]
    assert measure.mem_total > 0 and measure.disk_total > 0 and measure.cpu_count >= 1
