"""Owns what the attempts are made of: the register, raw system calls, and the trial of one in a process of its own.

An attempt that ends with one of the errors it names was denied. One that returns has succeeded, and says how.
It imports nothing but the standard library, and importing it does nothing.
"""

import ctypes
import errno
import json
import os
import signal
import stat

E = errno
NO = (E.EPERM, E.EACCES, E.ENOSYS)
ABSENT = (*NO, E.ENOENT, E.ENXIO, E.ENODEV, E.EROFS)
UNREACHABLE = (*NO, E.ENETUNREACH, E.EHOSTUNREACH, E.ECONNREFUSED, E.EADDRNOTAVAIL, E.EAFNOSUPPORT, E.ETIMEDOUT)
CLONE = {
    "mnt": 0x20000,
    "cgroup": 0x2000000,
    "uts": 0x4000000,
    "ipc": 0x8000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "time": 0x80,
}
ATTEMPTS = {}
FACTS = {}


def attempt(*errors):
    """Registers an attempt that is to fail with one of these errors."""

    def register(function):
        ATTEMPTS[function.__name__] = (function, errors or NO)
        return function

    return register


def libc():
    """The C library, with errno kept."""
    return ctypes.CDLL(None, use_errno=True)


def syscall(number, *args):
    """A raw system call; raises what the kernel says."""
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc().syscall(ctypes.c_long(number), *converted)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), f"system call {number}")
    if result == 0 and number in (56, 435):
        os._exit(0)  # The child of a clone that worked; its parent tells.
    return result


def mount(source, target, kind, flags=0, data=None):
    """mount(2)."""
    return syscall(165, source, target, kind, flags, data)


def write(path, text):
    """Opens for writing and writes, as a shell's `>` without O_CREAT."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def open_for_writing(path):
    """Opens for writing and changes nothing: being let in is enough. A mask of /dev/null is not the file."""
    fd = os.open(path, os.O_WRONLY)
    found = os.fstat(fd)
    os.close(fd)
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == os.makedev(1, 3):
        raise OSError(E.ENOENT, "masked", path)


def read(path, count=64):
    """The first bytes of a file."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, count)
    finally:
        os.close(fd)


def for_each(values, action):
    """Every one has to be denied: raises the last denial, or the first error that is none; returns what worked."""
    last = None
    for value in values:
        try:
            action(value)
        except OSError as error:
            last = error
            if error.errno not in FACTS["denials"]:
                raise
            continue
        return f"{value!r} worked"
    if last is None:
        raise OSError(E.ENOENT, "nothing to try")
    raise last


def perform(name):
    """One attempt in a process of its own; its row."""
    function, errors = ATTEMPTS[name]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(20)
        FACTS["denials"] = errors
        try:
            result = function()
            row = {"verdict": "SUCCEEDED", "detail": repr(result)}
        except OSError as error:
            denied = error.errno in errors
            row = {
                "verdict": "denied" if denied else "UNEXPECTED",
                "detail": f"{errno.errorcode.get(error.errno)}: {error}",
            }
        except BaseException as error:
            row = {"verdict": "BROKEN", "detail": repr(error)}
        os.write(writer, json.dumps(row).encode()[:4000])
        os._exit(0)
    os.close(writer)
    text = b"".join(iter(lambda: os.read(reader, 4096), b""))
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if text:
        return json.loads(text)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGSYS, signal.SIGSEGV)
    return {"verdict": "denied" if killed else "BROKEN", "detail": f"ended with {status:#x}"}
