"""Owns the attempts on what the kernel shows and takes: settings, control groups, system calls, other doors."""

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import struct
import time

from .kit import ABSENT, CLONE, NO, E, attempt, for_each, mount, open_for_writing, read, syscall, write


@attempt(*ABSENT)
def write_kernel_settings():
    names = "kernel/core_pattern kernel/hostname kernel/modprobe kernel/sysrq kernel/ns_last_pid vm/drop_caches vm/overcommit_memory fs/file-max net/ipv4/ip_forward kernel/unprivileged_bpf_disabled kernel/random/uuid"
    return for_each(names.split(), lambda name: open_for_writing(f"/proc/sys/{name}"))


@attempt(*ABSENT, E.EIO, E.EINVAL)
def write_other_kernel_files():
    paths = "/proc/sysrq-trigger /proc/irq/default_smp_affinity /proc/acpi/wakeup /proc/mtrr /proc/timer_list /proc/latency_stats /proc/scsi/scsi"
    return for_each(paths.split(), open_for_writing)


@attempt(*ABSENT)
def read_secrets_of_the_kernel():
    """Masked files are absent, refused or empty."""

    def see(path):
        if os.path.isdir(path):
            if not os.listdir(path):
                raise OSError(E.ENOENT, "an empty directory")
            return
        if not read(path):
            raise OSError(E.ENOENT, "an empty file")

    return for_each(
        "/proc/kcore /proc/keys /proc/timer_list /proc/sched_debug /proc/scsi /proc/acpi /sys/firmware /proc/kmsg /sys/kernel/debug /sys/kernel/security /sys/kernel/tracing".split(),
        see,
    )


@attempt(*ABSENT)
def write_to_sys():
    """Every file below /sys that looks writable, up to a bound."""
    tried = ["/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/transparent_hugepage/enabled"]
    for folder, _, names in os.walk("/sys"):
        tried += [os.path.join(folder, name) for name in names[:3]]
        if len(tried) > 3000:
            break
    return for_each(tried, open_for_writing)


@attempt(*ABSENT)
def make_a_control_group():
    roots = ["/sys/fs/cgroup", *[f"/sys/fs/cgroup/{n}" for n in "memory pids cpu freezer unified devices".split()]]
    return for_each(roots, lambda root: os.mkdir(f"{root}/escape"))


@attempt(*ABSENT)
def move_to_another_control_group():
    found = []
    for folder, _, names in os.walk("/sys/fs/cgroup"):
        found += [
            os.path.join(folder, n)
            for n in names
            if n
            in (
                "cgroup.procs",
                "tasks",
                "release_agent",
                "notify_on_release",
                "devices.allow",
                "memory.max",
                "memory.limit_in_bytes",
            )
        ]
    return for_each(found, lambda path: write(path, str(os.getpid())))


@attempt(*NO, E.EINVAL, E.ENODEV)
def mount_a_control_group():
    kinds = [(b"cgroup", b"memory"), (b"cgroup", b"rdma"), (b"cgroup", b"none,name=x"), (b"cgroup2", None)]
    return for_each(kinds, lambda kind: mount(b"c", b"/mnt", kind[0], 0, kind[1]))


@attempt()
def keyctl():
    return syscall(250, 0, -3, 0, 0, 0)


@attempt()
def add_key():
    return syscall(248, b"user", b"x", b"y", 1, -3)


@attempt()
def request_key():
    return syscall(249, b"user", b"x", None, -3)


@attempt()
def bpf_map():
    return syscall(321, 0, struct.pack("<IIII", 1, 4, 4, 1) + bytes(112), 128)


@attempt()
def bpf_program():
    return syscall(321, 5, bytes(128), 128)


@attempt()
def io_uring():
    return syscall(425, 1, ctypes.create_string_buffer(120))


@attempt()
def kexec_load():
    return syscall(246, 0, 0, None, 0)


@attempt()
def kexec_file_load():
    return syscall(320, -1, -1, 0, None, 0)


@attempt()
def load_a_module():
    return syscall(175, ctypes.create_string_buffer(64), 64, b"")


@attempt()
def load_a_module_by_descriptor():
    return syscall(313, os.open("/bin/true", os.O_RDONLY), b"", 0)


@attempt()
def unload_a_module():
    return syscall(176, b"none", 0)


@attempt()
def userfaultfd():
    return syscall(323, 1)


@attempt()
def perf_event_open():
    return syscall(298, struct.pack("<II", 1, 128) + bytes(120), 0, -1, -1, 0)


@attempt()
def open_by_handle():
    handle = struct.pack("<II", 8, 1) + struct.pack("<II", 2, 0)
    return syscall(304, os.open("/", os.O_RDONLY), ctypes.create_string_buffer(handle, 64), 0)


@attempt()
def name_to_handle():
    return syscall(
        303, -100, b"/", ctypes.create_string_buffer(struct.pack("<II", 64, 0), 128), ctypes.byref(ctypes.c_int()), 0
    )


@attempt()
def modify_ldt():
    return syscall(154, 1, struct.pack("<IIII", 0, 0, 0xFFFFF, 0x51), 16)


@attempt()
def iopl():
    return syscall(172, 3)


@attempt()
def ioperm():
    return syscall(173, 0x80, 1, 1)


@attempt()
def set_the_clock():
    now = struct.pack("<qq", int(time.time()), 0)
    calls = [(164, now, None), (227, 0, now), (159, ctypes.create_string_buffer(struct.pack("<I", 1), 208))]
    return for_each(calls, lambda call: syscall(*call))


@attempt()
def reboot():
    return syscall(169, 0xFEE1DEAD, 672274793, 0, None)


@attempt()
def swap_on():
    return syscall(167, b"/tmp/none", 0)


@attempt()
def account():
    return syscall(163, b"/tmp/none")


@attempt()
def quotactl():
    return syscall(179, 0x80000700, b"/", 0, ctypes.create_string_buffer(64))


@attempt()
def read_the_kernel_log():
    return syscall(103, 3, ctypes.create_string_buffer(64), 64)


@attempt()
def set_the_host_name():
    return syscall(170, b"escaped", 7)


@attempt()
def hang_up():
    return syscall(153)


@attempt()
def odd_personality():
    return syscall(135, 0x0400000)


@attempt()
def fanotify():
    return syscall(300, 0x4, 0)


@attempt(*NO, E.EINVAL)
def raise_a_hard_limit():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return syscall(302, 0, resource.RLIMIT_NOFILE, struct.pack("<QQ", hard * 2, hard * 2), None)


@attempt()
def real_time_scheduling():
    return os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))


@attempt()
def better_priority():
    return os.setpriority(os.PRIO_PROCESS, 0, -20)


@attempt(*NO, E.EINVAL)
def own_a_file_as_nobody_inside():
    open("/tmp/owned", "w").close()
    return os.chown("/tmp/owned", 70_000, 70_000)


@attempt(*NO, E.EINVAL)
def become_nobody_inside():
    return os.setuid(70_000)


def machine(code):
    """Runs machine code that ends with `ret`; what it left in eax."""
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
    if result < 0:
        raise OSError(-result, os.strerror(-result), "machine code")
    return result


@attempt()
def unshare_by_the_32_bit_door():
    return machine(
        b"\x53\xb8" + struct.pack("<I", 310) + b"\xbb" + struct.pack("<I", CLONE["user"]) + b"\xcd\x80\x5b\xc3"
    )


@attempt()
def keyctl_by_the_32_bit_door():
    return machine(b"\x53\xb8" + struct.pack("<I", 288) + b"\x31\xdb\xb9\xfd\xff\xff\xff\x31\xd2\xcd\x80\x5b\xc3")


@attempt()
def unshare_by_the_x32_door():
    return syscall(0x40000000 | 272, CLONE["user"])


@attempt(*NO, E.EIO, E.ENOTTY)
def type_into_a_terminal():
    _, follower = os.openpty()
    os.setsid()
    fcntl.ioctl(follower, 0x540E, 0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return fcntl.ioctl(follower, 0x5412, b"x")


@attempt(*NO, E.ENOTTY)
def paste_into_a_terminal():
    _, follower = os.openpty()
    return fcntl.ioctl(follower, 0x541C, b"\x03")


@attempt(*NO, E.ENOTTY, E.EOPNOTSUPP, E.EINVAL)
def freeze_the_file_system():
    return fcntl.ioctl(os.open("/", os.O_RDONLY), 0xC0045877, 0)


@attempt(*NO, E.ENOTTY, E.EOPNOTSUPP)
def make_a_file_immutable():
    open("/tmp/immutable", "w").close()
    return fcntl.ioctl(os.open("/tmp/immutable", os.O_RDONLY), 0x40086602, struct.pack("<L", 0x10))
