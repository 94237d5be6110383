"""Owns chaos: sandboxes are made, used and ended while roles are killed at random moments; afterwards the records are
what is, and everything that was taken is given back."""

import os
import random
import signal
import threading
import time

import httpx

from harness import control, host

CYCLES = int(os.environ.get("COFFERDAM_E2E_CHAOS_CYCLES", "60"))
WORKERS = 3
VICTIMS = ("node", "api", "launcher")


class Killer(threading.Thread):
    """Kills a random role at random moments until told to stop."""

    def __init__(self, seed):
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.done = threading.Event()
        self.killed = []

    def run(self):
        while not self.done.wait(self.random.uniform(0.2, 2.0)):
            role = self.random.choice(VICTIMS)
            pid = host.roles().get(role)
            if pid is not None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self.killed.append(role)


def patient(call, good, seconds=60):
    """Asks until the answer is a good one; a role that is restarted and a create that is in flight are waited for."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = call()
            if answer.status_code in good:
                return answer
            problem = f"{answer.status_code} {answer.text[:200]}"
            assert answer.status_code in (409, 429, 500, 502, 503, 504), problem
        except httpx.TransportError as error:
            problem = repr(error)
        assert time.monotonic() < deadline, problem
        time.sleep(0.1)


def cycle(api, number):
    """One life: create, use, end. What the client was told holds; the id it was given is never lost."""
    key = {"Idempotency-Key": f"chaos-{os.getpid()}-{number}"}
    body = {"templateID": "base", "timeout": 300, "metadata": {"chaos": str(number)}}
    made = patient(lambda: api.post("/v2/sandboxes", json=body, headers=key), {201}).json()
    sandbox = made["sandboxID"]
    run = {"argv": ["bash", "-c", f"echo {number} > /tmp/x && sleep 0.$((RANDOM % 5)) && cat /tmp/x"]}
    answer = patient(lambda: api.post(f"/v1/sandboxes/{sandbox}/exec", json=run), {200})
    assert answer.json()["stdout"] == f"{number}\n", answer.text
    patient(lambda: api.delete(f"/sandboxes/{sandbox}"), {204, 404})
    patient(lambda: api.get(f"/sandboxes/{sandbox}"), {404})


def settled(base):
    """True once nothing is held that was not held before."""
    now = host.count()
    return all(now[kind] <= base[kind] for kind in base)


def test_killing_roles_at_random_loses_and_leaks_nothing():
    seed = int(os.environ.get("COFFERDAM_E2E_SEED", time.time_ns() % 2**32))
    print(f"seed {seed}, {CYCLES} cycles")
    with control.client() as api:
        cycle(api, -1)
        for left in control.running():
            api.delete(f"/sandboxes/{left}")
    control.eventually(lambda: not control.running(), seconds=30)
    time.sleep(2)
    base = host.count()
    supervisor = host.roles()["supervisor"]
    killer, problems = Killer(seed), []
    numbers = Numbers(killer)

    def work():
        with control.client() as api:
            for number in numbers:
                try:
                    cycle(api, number)
                except Exception as error:
                    problems.append((number, repr(error)))

    killer.start()
    workers = [threading.Thread(target=work) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    killer.done.set()
    killer.join()
    print(
        f"{numbers.next} cycles, killed {len(killer.killed)}: "
        + ", ".join(f"{role} {killer.killed.count(role)}" for role in VICTIMS)
    )
    assert not problems, f"seed {seed}: {problems}"
    assert host.roles()["supervisor"] == supervisor
    control.eventually(lambda: set(host.roles()) >= {"node", "api", "launcher"}, seconds=15)
    assert patient_list() == set(), f"seed {seed}"
    try:
        control.eventually(lambda: settled(base), seconds=30, every=0.5)
    except AssertionError:
        raise AssertionError(f"seed {seed}: before {base}, now {host.count()}") from None


class Numbers:
    """Numbers of cycles that threads share: as many as were asked for, and more until enough roles were killed."""

    def __init__(self, killer):
        self.killer, self.next, self.lock = killer, 0, threading.Lock()

    def __iter__(self):
        return self

    def __next__(self):
        with self.lock:
            if self.next >= CYCLES and len(self.killer.killed) >= CYCLES // 4:
                raise StopIteration
            self.next += 1
            return self.next


def patient_list():
    """The ids that the control plane lists, once it answers."""
    return {row["sandboxID"] for row in patient(lambda: control.client().get("/v2/sandboxes"), {200}).json()}


def test_sandboxes_survive_the_death_of_every_role(boxes):
    """The same process runs on, its output is complete, its files are there, and the deadline still holds."""
    box = boxes(timeout=120)
    box.write("/home/user/kept", b"kept")
    script = "for i in $(seq 1 100); do echo $i; sleep 0.1; done > /home/user/count"
    box.sh(f"setsid sh -c '{script}' >/dev/null 2>&1 &")
    before = box.info().json()["endAt"]
    for role in ("launcher", "node", "api", "node", "api"):
        os.kill(host.roles()[role], signal.SIGKILL)
        patient(box.info, {200})
        control.eventually(lambda: try_sh(box, "cat kept") == "kept", seconds=15)
    control.eventually(lambda: try_sh(box, "tail -1 count") == "100\n", seconds=30)
    assert try_sh(box, "wc -l < count") == "100\n"
    assert box.info().json()["endAt"] == before
    assert box.kill().status_code == 204


def try_sh(box, script):
    """Output of a script, or nothing while a role is away."""
    try:
        return box.sh(script).text
    except (httpx.TransportError, AssertionError, ValueError):
        return None


def test_the_node_ends_a_sandbox_at_its_deadline_while_the_api_is_down(boxes):
    box = boxes(timeout=4)
    box.sh("sleep 500 >/dev/null 2>&1 &")
    pids = host.of_sandbox(box.id)
    assert pids
    api = host.roles()["api"]
    os.kill(api, signal.SIGSTOP)
    try:
        control.eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), seconds=8)
    finally:
        os.kill(api, signal.SIGCONT)
    control.eventually(lambda: patient(box.info, {200, 404}).status_code == 404, seconds=10)


def test_a_sandbox_whose_first_process_is_killed_from_outside_is_gone_from_the_records(boxes):
    box = boxes()
    box.sh("sleep 500 >/dev/null 2>&1 &")
    first = parent_in_namespace(host.of_sandbox(box.id)[0])
    os.kill(first, signal.SIGKILL)
    control.eventually(lambda: box.info().status_code == 404, seconds=10)
    assert httpx.get(f"{box.api.base_url}/health", headers=box.headers()).status_code == 502


def parent_in_namespace(pid):
    """The pid, out here, of pid 1 of the namespace that a process is in."""
    while True:
        lines = dict(line.split(":\t", 1) for line in open(f"/proc/{pid}/status").read().splitlines() if ":\t" in line)
        if lines["NSpid"].split()[-1] == "1":
            return pid
        pid = int(lines["PPid"])
