"""Owns the attempts on the processes that guard the sandbox, and on devices."""

import ctypes
import os
import stat
import struct

from .kit import ABSENT, NO, E, attempt, for_each, read, syscall, write


def guards():
    """Processes that guard the sandbox: pid 1, and those that belong to root and cannot be looked into."""
    found = [1]
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) < 20 and int(name) not in (1, os.getpid(), os.getppid()):
            try:
                os.readlink(f"/proc/{name}/exe")
            except OSError:
                found.append(int(name))
    return found


@attempt()
def ptrace_attach():
    return for_each(guards(), lambda pid: syscall(101, 16, pid, 0, 0))


@attempt()
def ptrace_seize():
    return for_each(guards(), lambda pid: syscall(101, 0x4206, pid, 0, 0))


@attempt()
def process_vm_read():
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("<QQ", ctypes.addressof(buffer), 8)
    remote = struct.pack("<QQ", 0x400000, 8)
    return for_each(guards(), lambda pid: syscall(310, pid, local, 1, remote, 1, 0))


@attempt()
def process_vm_write():
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("<QQ", ctypes.addressof(buffer), 8)
    remote = struct.pack("<QQ", 0x400000, 8)
    return for_each(guards(), lambda pid: syscall(311, pid, local, 1, remote, 1, 0))


@attempt()
def read_memory_of_pid_1():
    return for_each(guards(), lambda pid: read(f"/proc/{pid}/mem"))


@attempt()
def read_environment_of_pid_1():
    return for_each(guards(), lambda pid: read(f"/proc/{pid}/environ"))


@attempt()
def walk_root_of_pid_1():
    return for_each(guards(), lambda pid: os.listdir(f"/proc/{pid}/root/"))


@attempt()
def walk_directory_of_pid_1():
    return for_each(guards(), lambda pid: os.listdir(f"/proc/{pid}/cwd/"))


@attempt()
def list_descriptors_of_pid_1():
    return for_each(guards(), lambda pid: os.listdir(f"/proc/{pid}/fd"))


@attempt()
def read_maps_of_pid_1():
    return for_each(guards(), lambda pid: read(f"/proc/{pid}/maps"))


@attempt(*NO, E.ETXTBSY, E.EROFS)
def overwrite_the_agent():
    def overwrite(path):
        os.close(os.open(path, os.O_WRONLY))

    paths = [f"/proc/{pid}/exe" for pid in guards()]
    for folder, _, names in os.walk("/run/.cofferdam"):
        paths += [os.path.join(folder, name) for name in names]
    return for_each(paths, overwrite)


@attempt(*ABSENT)
def overwrite_the_agent_through_its_directory():
    return for_each(["/run/.cofferdam/agent", "/run/.cofferdam"], lambda path: os.rename(path, "/tmp/agent-moved"))


@attempt()
def take_a_descriptor_of_pid_1():
    return for_each(range(3, 8), lambda fd: syscall(438, os.pidfd_open(1), fd, 0))


@attempt()
def compare_kernel_objects():
    return syscall(312, os.getpid(), 1, 0, 0, 0)


@attempt(*NO, E.EINVAL)
def adjust_oom_of_pid_1():
    return for_each(guards(), lambda pid: write(f"/proc/{pid}/oom_score_adj", "1000"))


@attempt()
def hide_from_the_oom_killer():
    return write("/proc/self/oom_score_adj", "-1000")


@attempt(*NO, E.ESRCH)
def change_limits_of_pid_1():
    return syscall(302, 1, 7, struct.pack("<QQ", 3, 3), None)


def node(name, mode, major, minor):
    """Makes a device node and opens it."""
    path = f"/tmp/device-{name}"
    os.mknod(path, mode | 0o600, os.makedev(major, minor))
    os.close(os.open(path, os.O_RDWR))


DEVICES = [
    ("mem", stat.S_IFCHR, 1, 1),
    ("kmsg", stat.S_IFCHR, 1, 11),
    ("disk-a", stat.S_IFBLK, 254, 0),
    ("disk-b", stat.S_IFBLK, 8, 0),
    ("disk-c", stat.S_IFBLK, 253, 0),
    ("loop", stat.S_IFBLK, 7, 0),
    ("loop-control", stat.S_IFCHR, 10, 237),
    ("kvm", stat.S_IFCHR, 10, 232),
    ("fuse", stat.S_IFCHR, 10, 229),
    ("tun", stat.S_IFCHR, 10, 200),
    ("null", stat.S_IFCHR, 1, 3),
]


@attempt()
def make_and_open_a_device():
    return for_each(DEVICES, lambda row: node(*row))


@attempt(*ABSENT)
def open_a_device_of_the_host():
    names = "mem kmem port kmsg kvm fuse vda sda loop0 loop-control net/tun btrfs-control vhost-net mapper/control rtc0 hpet"
    return for_each([f"/dev/{name}" for name in names.split()], lambda path: os.close(os.open(path, os.O_RDONLY)))


@attempt(E.ENOENT)
def find_an_unexpected_device():
    expected = set("null zero full random urandom tty ptmx pts shm mqueue fd stdin stdout stderr console core".split())
    found = set(os.listdir("/dev")) - expected
    if found:
        return f"/dev has {sorted(found)}"
    raise OSError(E.ENOENT, "nothing unexpected")
