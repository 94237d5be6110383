"""Owns what a server holds on its host, seen from outside: its roles, and a count of everything it could leak."""

import functools
import os
import pathlib

from . import control, place

SANDBOX_UID_MIN = 0x1000_0000
CGROUPS = pathlib.Path("/sys/fs/cgroup")


def roles():
    """Pids by the name of their role, of those that live."""
    found = {}
    for path in (place.DATA_DIR / "run").glob("*.pid"):
        try:
            pid = int(path.read_text())
        except (OSError, ValueError):
            continue
        if os.path.exists(f"/proc/{pid}"):
            found[path.stem] = pid
    found.setdefault("launcher", launcher(found.get("node")))
    return {role: pid for role, pid in found.items() if pid is not None}


def launcher(node):
    """The launcher: the child of the node that was started as one."""
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"launcher" in path.read_bytes().split(b"\0") and parent(path.parent.name) == node:
                return int(path.parent.name)
        except OSError:
            continue
    return None


def parent(pid):
    """The pid of the parent of a process."""
    return int(pathlib.Path(f"/proc/{pid}/status").read_text().split("PPid:\t")[1].split()[0])


def count():
    """How many of each kind of thing this server holds."""
    return {
        "control groups": len(control_groups()),
        "mounts": len(mounts()),
        "loop devices": len(loop_devices()),
        "processes of sandboxes": len(processes()),
        "network namespaces": len({link for link in map(network, processes()) if link}),
        "files": len(files()),
    }


def processes():
    """Pids of processes with a uid of a sandbox of this server."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            status = pathlib.Path(f"/proc/{name}/status").read_text()
        except OSError:
            continue
        uid = int(status.split("Uid:\t")[1].split()[0])
        zombie = "State:\tZ" in status
        if uid >= SANDBOX_UID_MIN and not zombie and is_ours(name):
            found.append(int(name))
    return found


def is_ours(pid):
    """True when the process is in a control group of this server."""
    try:
        return f"cofferdam-{instance()}" in pathlib.Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return False


def of_sandbox(sandbox):
    """Pids of the processes of a sandbox, told by the environment that every one of them has."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = pathlib.Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if f"E2B_SANDBOX_ID={sandbox}".encode() in environment.split(b"\0"):
            found.append(int(name))
    return found


@functools.cache
def instance():
    """The name by which this server tells its control groups from those of others, read off a sandbox of its own."""
    with control.box() as box:
        box.sh("sleep 60 >/dev/null 2>&1 &")
        groups = pathlib.Path(f"/proc/{of_sandbox(box.id)[0]}/cgroup").read_text()
    return groups.split("/cofferdam-")[1].split("/")[0]


def network(pid):
    """The network namespace of a process."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return None


def control_groups():
    """Control groups of sandboxes of this server, in every hierarchy."""
    return [path for path in CGROUPS.glob(f"**/cofferdam-{instance()}/**/") if path.is_dir()]


def mounts():
    """Lines of the mount table that the roles share."""
    pid = roles()["supervisor"]
    return pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()


def loop_devices():
    """Loop devices on files of this data directory."""
    found = []
    for path in pathlib.Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if path.read_text().startswith(str(place.DATA_DIR)):
                found.append(path)
        except OSError:
            continue
    return found


def files():
    """Files below the data directory, the record and the database apart: those grow by design."""
    found = []
    for folder, _, names in os.walk(place.DATA_DIR):
        if not folder.startswith(str(place.DATA_DIR / "api")):
            found += [os.path.join(folder, name) for name in names]
    return found
