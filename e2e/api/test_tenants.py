"""Owns what keeps tenants apart: another tenant's objects do not exist, and a quota is a quota under any race."""

import concurrent.futures

import httpx

from harness import control, place, tenant, wire


def test_another_tenants_sandbox_does_not_exist(box):
    with tenant.tenant() as key, control.client(key) as other:
        calls = [
            ("GET", f"/sandboxes/{box.id}", None),
            ("DELETE", f"/sandboxes/{box.id}", None),
            ("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 10}),
            ("POST", f"/sandboxes/{box.id}/connect", {"timeout": 10}),
            ("POST", f"/sandboxes/{box.id}/timeout", {"timeout": 10}),
            ("POST", f"/sandboxes/{box.id}/refreshes", {"duration": 10}),
            ("GET", f"/v1/sandboxes/{box.id}", None),
            ("DELETE", f"/v1/sandboxes/{box.id}", None),
            ("POST", f"/v1/sandboxes/{box.id}/exec", {"argv": ["true"]}),
            ("GET", f"/v1/sandboxes/{box.id}/logs", None),
        ]
        missing = "inosuchsandboxatall00"
        for method, path, body in calls:
            answer = other.request(method, path, json=body)
            assert answer.status_code == 404, (method, path, answer.status_code, answer.text)
            unknown = other.request(method, path.replace(box.id, missing), json=body)
            assert unknown.status_code == 404
            assert unknown.text.replace(missing, box.id) == answer.text or "request_id" in answer.text, (
                "tells them apart"
            )
        assert other.get("/v2/sandboxes").json() == []
        assert other.get("/v1/sandboxes").json()["sandboxes"] == []
    assert box.info().status_code == 200


def test_another_tenants_token_does_not_open_a_sandbox(box, boxes):
    with tenant.tenant() as key:
        other = boxes(key=key)
        headers = {**box.headers(), "X-Access-Token": other.token}
        answer = wire.unary(httpx.Client(base_url=place.URL, headers=headers), "process.Process/List", {})
        assert answer.status_code == 401


def test_a_quota_of_sandboxes_is_429_and_room_is_room_again(boxes):
    with tenant.tenant(sandboxes=2) as key:
        first, _ = boxes(key=key), boxes(key=key)
        with control.client(key) as api:
            answer = api.post("/v2/sandboxes", json={"templateID": "base"})
            assert answer.status_code == 429, answer.text
            assert answer.json()["code"] == 429 and answer.json()["message"]
            first.kill()
            answer = api.post("/v2/sandboxes", json={"templateID": "base"})
            assert answer.status_code == 201
            api.delete(f"/sandboxes/{answer.json()['sandboxID']}")


def test_a_quota_holds_when_many_ask_at_once():
    with tenant.tenant(sandboxes=5) as key:

        def create(_):
            with control.client(key) as api:
                answer = api.post("/v2/sandboxes", json={"templateID": "base", "timeout": 120})
                return answer.status_code, answer.json().get("sandboxID")

        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(create, range(20)))
        made = [sandbox for status, sandbox in answers if status == 201]
        assert sorted({status for status, _ in answers}) == [201, 429]
        assert len(made) == 5 == len(set(made))
        with control.client(key) as api:
            for sandbox in made:
                assert api.delete(f"/sandboxes/{sandbox}").status_code == 204


def test_quotas_of_cpu_and_memory_are_429():
    for quota in ({"cpu_millis": 1000}, {"memory_mib": 100}):
        with tenant.tenant(**quota) as key, control.client(key) as api:
            assert api.post("/v2/sandboxes", json={"templateID": "base"}).status_code == 429


def test_a_key_does_only_what_its_scopes_say(box):
    with tenant.tenant(scopes="sandboxes:read") as key, control.client(key) as api:
        assert api.get("/v2/sandboxes").status_code == 200
        answer = api.post("/v2/sandboxes", json={"templateID": "base"})
        assert answer.status_code == 403 and answer.json()["code"] == 403


def test_a_revoked_key_is_401_at_once():
    with control.client() as api:
        made = api.post("/v1/keys", json={"name": "short-lived"}).json()
        with control.client(made["secret"]) as other:
            assert other.get("/v2/sandboxes").status_code == 200
            assert api.delete(f"/v1/keys/{made['id']}").status_code in (200, 204)
            assert other.get("/v2/sandboxes").status_code == 401


def test_the_text_of_a_key_is_nowhere_in_the_data_directory():
    secret = place.KEY.removeprefix("e2b_").encode()
    for path in (place.DATA_DIR / "api").rglob("*"):
        if path.is_file():
            assert secret not in path.read_bytes(), path


def test_the_same_idempotency_key_makes_one_sandbox():
    with tenant.tenant() as key, control.client(key, **{"Idempotency-Key": "the-same-1"}) as api:
        body = {"templateID": "base", "timeout": 120}

        def create(_):
            return api.post("/v2/sandboxes", json=body)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(create, range(8)))
        good = {answer.json()["sandboxID"] for answer in answers if answer.status_code == 201}
        assert len(good) == 1 and {answer.status_code for answer in answers} <= {201, 409}
        again = create(0)
        assert again.status_code == 201 and again.json()["sandboxID"] in good
        other = api.post("/v2/sandboxes", json={**body, "timeout": 121})
        assert other.status_code == 422, other.text
        assert len(control.running(key)) == 1
        assert api.delete(f"/sandboxes/{good.pop()}").status_code == 204
