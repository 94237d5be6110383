"""Owns the attempts on mounts, roots and namespaces."""

import ctypes
import os
import signal
import struct

from .kit import CLONE, FACTS, NO, E, attempt, for_each, mount, syscall, write


@attempt()
def mount_tmpfs():
    return mount(b"none", b"/mnt", b"tmpfs")


@attempt()
def mount_proc():
    return mount(b"proc", b"/mnt", b"proc")


@attempt()
def mount_sysfs():
    return mount(b"sysfs", b"/mnt", b"sysfs")


@attempt()
def mount_bind():
    return mount(b"/", b"/mnt", None, 4096)


@attempt()
def mount_overlay():
    return mount(b"o", b"/mnt", b"overlay", 0, b"lowerdir=/usr,upperdir=/tmp,workdir=/var/tmp")


@attempt()
def remount_proc_sys_writable():
    return mount(None, b"/proc/sys", None, 32 | 4096)


@attempt()
def remount_root():
    return mount(None, b"/", None, 32)


@attempt(*NO, E.EINVAL)
def unmount_the_masks():
    return for_each([b"/proc/sys", b"/proc/kcore", b"/proc", b"/sys"], lambda path: syscall(166, path, 2))


@attempt()
def pivot_root():
    return syscall(155, b"/", b"/")


@attempt()
def new_mount_api_fsopen():
    return syscall(430, b"tmpfs", 0)


@attempt()
def new_mount_api_open_tree_clone():
    return syscall(428, -100, b"/", 1)


@attempt()
def new_mount_api_move_mount():
    return syscall(429, -100, b"/tmp", -100, b"/mnt", 0)


@attempt()
def new_mount_api_mount_setattr():
    return syscall(442, -100, b"/proc/sys", 0, ctypes.create_string_buffer(32), 32)


@attempt()
def chroot_and_climb_out():
    """The classic: a second chroot while a directory outside of the first is open. It ends at the root that is there."""
    os.makedirs("/tmp/jail", exist_ok=True)
    os.chroot("/tmp/jail")
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    if os.path.exists(FACTS["data_dir"]):
        return f"sees {FACTS['data_dir']}"
    raise OSError(E.EPERM, "the root above is the sandbox's own")


@attempt(*NO, E.EINVAL)
def unshare_each():
    return for_each(CLONE, lambda name: syscall(272, CLONE[name]))


@attempt(*NO, E.EINVAL)
def clone_each():
    def clone(name):
        os.waitpid(syscall(56, CLONE[name] | signal.SIGCHLD, 0, 0, 0, 0), 0)

    return for_each([name for name in CLONE if name != "time"], clone)


@attempt()
def clone3_new_user():
    return syscall(435, struct.pack("<11Q", CLONE["user"], *[0] * 3, signal.SIGCHLD, *[0] * 6), 88)


@attempt(*NO, E.EINVAL)
def setns_of_pid_1():
    def enter(kind):
        fd = os.open(f"/proc/1/ns/{kind}", os.O_RDONLY)
        syscall(308, fd, 0)

    return for_each(["mnt", "user", "pid", "net", "ipc", "uts", "cgroup"], enter)


@attempt(*NO, E.EINVAL)
def setns_by_pidfd():
    return syscall(308, os.pidfd_open(1), CLONE["mnt"] | CLONE["user"])


@attempt()
def rewrite_uid_map():
    return write("/proc/self/uid_map", "0 0 1")
