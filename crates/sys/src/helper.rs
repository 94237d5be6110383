//! Owns starting other programs of the host: fork(2), execve(2), with an environment and descriptors that the caller names.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Descriptor under which a helper finds the socket it was given.
pub const SOCKET: i32 = 3;

/// Starts a program with `socket` as descriptor 3, null as input, an empty environment, and nothing else of ours.
pub fn spawn_with_socket(program: &Path, arguments: &[&OsStr], socket: OwnedFd) -> io::Result<Child> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdin(Stdio::null());
    let fd = socket.as_raw_fd();
    let place = move || {
        // SAFETY: takes two numbers, both open or free in the child; dup2 is safe between fork and exec.
        let result = unsafe { libc::dup2(fd, SOCKET) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        if fd == SOCKET {
            // SAFETY: as above; clears close-on-exec, which dup2 onto itself leaves.
            let result = unsafe { libc::fcntl(SOCKET, libc::F_SETFD, 0) };
            if result < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: `place` makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(place) };
    let child = command.spawn();
    drop(socket);
    child
}

/// The socket that [`spawn_with_socket`] left for this process. Call it once, first thing.
pub fn inherited_socket() -> io::Result<OwnedFd> {
    // SAFETY: takes a number; fails when it is not open.
    let result = unsafe { libc::fcntl(SOCKET, libc::F_SETFD, libc::FD_CLOEXEC) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the parent left this descriptor for us and nothing else in this process has claimed it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(SOCKET) })
}

/// Runs a program of the host to its end, with a plain PATH and no input.
pub fn run(program: &str, arguments: &[&OsStr]) -> io::Result<Output> {
    Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
}
