"""Owns the attempts on networks, on the host and on other sandboxes."""

import os
import socket
import struct

from .kit import ABSENT, FACTS, NO, UNREACHABLE, E, attempt, for_each, read


@attempt(*UNREACHABLE)
def connect_to_the_host():
    def connect(address):
        with socket.create_connection((address[0], address[1]), timeout=3):
            pass

    return for_each(FACTS["addresses"], connect)


@attempt(*UNREACHABLE)
def send_to_the_host():
    def send(address):
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as out:
            out.connect((address[0], 53))
            out.send(b"x")
            out.settimeout(1)
            out.recv(1)

    return for_each([a for a in FACTS["addresses"] if a[0] not in ("127.0.0.1", "::1")], send)


@attempt(*UNREACHABLE)
def raw_socket_out():
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    return out.sendto(b"\x08\x00" + bytes(6), ("8.8.8.8", 0))


@attempt(*UNREACHABLE, E.EPROTONOSUPPORT)
def raw_ip_out():
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    return out.sendto(bytes(20), ("10.0.0.1", 0))


@attempt(*UNREACHABLE, E.EPROTONOSUPPORT, E.ESOCKTNOSUPPORT)
def packet_socket():
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).fileno()


@attempt(*UNREACHABLE)
def vsock_socket():
    return socket.socket(40, socket.SOCK_STREAM).fileno()


@attempt(*UNREACHABLE)
def crypto_socket():
    return socket.socket(38, socket.SOCK_SEQPACKET).fileno()


@attempt(*UNREACHABLE, E.EPROTONOSUPPORT)
def odd_netlink_sockets():
    """All but routes and the table of sockets, which `ip` and `ss` read."""
    kinds = [2, 6, 7, 9, 10, 12, 16, 18, 20, 21]
    return for_each(kinds, lambda kind: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, kind).close())


@attempt(*NO, E.EPROTONOSUPPORT)
def change_the_network():
    """Asks the kernel for a new interface."""
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    kind = struct.pack("<HH", 10, 1) + b"dummy\0\0\0"
    info = struct.pack("<HH", 4 + len(kind), 18) + kind
    body = struct.pack("<BBHiII", 0, 0, 0, 0, 0, 0) + info
    link.send(struct.pack("<IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
    code = struct.unpack("<i", link.recv(4096)[16:20])[0]
    if code < 0:
        raise OSError(-code, os.strerror(-code))
    return "made an interface"


@attempt(E.ENOENT)
def see_an_interface_besides_loopback():
    found = [name for _, name in socket.if_nameindex() if name != "lo"]
    if found:
        return f"sees {found}"
    raise OSError(E.ENOENT, "only lo")


@attempt(*ABSENT)
def open_paths_of_the_host():
    return for_each(FACTS["host_paths"], lambda path: os.stat(path))


@attempt(*ABSENT, E.ELOOP)
def open_paths_that_mounts_name():
    """Whatever a line of mountinfo says about where a layer lives on the host is not there for us."""
    paths = []
    for line in open("/proc/self/mountinfo"):
        for option in line.split(" - ")[1].strip().split(" ")[-1].split(","):
            name, _, value = option.partition("=")
            if name in ("upperdir", "workdir", "lowerdir") or name.startswith("lowerdir"):
                paths += [path for path in value.split(":") if path.startswith("/") and path != "/"]
    return for_each(paths or [FACTS["data_dir"]], lambda path: os.listdir(path))


@attempt(*ABSENT)
def read_the_marker_of_another_sandbox():
    """The other sandbox wrote a file of this name; nothing that this one can reach has it."""
    roots = ["/", "/proc/1/root", "/proc/self/root", "/proc/thread-self/root", "/.."]
    roots += [f"/proc/{name}/root" for name in os.listdir("/proc") if name.isdigit()]
    return for_each(roots, lambda root: read(f"{root}{FACTS['marker']}"))


@attempt(E.ESRCH, *NO)
def see_a_process_of_another_sandbox():
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = read(f"/proc/{name}/cmdline", 4096)
        except OSError:
            continue
        if FACTS["marker"].encode() in line and FACTS["own_mark"].encode() not in line and int(name) != os.getpid():
            return f"sees {line!r}"
    raise OSError(E.ESRCH, "none")


@attempt(*ABSENT, E.ECONNREFUSED, E.EPROTOTYPE)
def connect_to_sockets_of_the_agent():
    paths = {line.split()[-1] for line in open("/proc/net/unix") if "/" in line.split()[-1] or "@" in line.split()[-1]}
    paths |= {
        "/run/.cofferdam/agent.sock",
        "/run/s/0/agent.sock",
        "run/node.sock",
        FACTS["data_dir"] + "/run/node.sock",
    }

    def connect(path):
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            with socket.socket(socket.AF_UNIX, kind) as out:
                try:
                    out.connect("\0" + path[1:] if path.startswith("@") else path)
                except OSError as error:
                    if error.errno != E.EPROTOTYPE:
                        raise
                    continue
                return
        raise OSError(E.EPROTOTYPE, path)

    return for_each(sorted(paths), connect)


@attempt(E.EBADF)
def find_an_inherited_descriptor():
    found = FACTS["descriptors"]
    if found:
        return f"inherited {found}"
    raise OSError(E.EBADF, "none")


@attempt(E.ERANGE)
def be_root_outside():
    inside, outside, count = map(int, open("/proc/self/uid_map").read().split()[:3])
    if outside < 0x1000_0000 or count > 65536:
        return f"{inside} is {outside} outside, and {count} of them"
    raise OSError(E.ERANGE, "a range of its own")


@attempt(E.EPERM)
def hold_a_capability_that_reaches_outside():
    bounding = int([line for line in open("/proc/self/status") if line.startswith("CapBnd")][0].split()[1], 16)
    names = {
        12: "net_admin",
        16: "sys_module",
        17: "sys_rawio",
        19: "sys_ptrace",
        20: "sys_pacct",
        21: "sys_admin",
        22: "sys_boot",
        24: "sys_resource",
        25: "sys_time",
        38: "perfmon",
        39: "bpf",
        2: "dac_read_search",
        34: "syslog",
        30: "audit_control",
        32: "mac_override",
        33: "mac_admin",
        40: "checkpoint_restore",
    }
    held = [name for bit, name in names.items() if bounding >> bit & 1]
    if held:
        return f"may hold {held}"
    raise OSError(E.EPERM, "none of them")


@attempt(E.EPERM)
def run_without_a_filter():
    mode = [line for line in open("/proc/self/status") if line.startswith("Seccomp:")][0].split()[1]
    if mode != "2":
        return f"seccomp mode {mode}"
    raise OSError(E.EPERM, "filtered")
