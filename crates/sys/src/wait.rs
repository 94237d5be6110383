//! Owns waiting for children, and signals to processes by number: waitid(2), wait4(2), kill(2), pidfd_open(2),
//! pidfd_send_signal(2).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Number of a process in our pid namespace.
pub type Pid = u32;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(u8),
}

/// The end of a process and what it used, with the children it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub outcome: Outcome,
    /// User CPU time.
    pub cpu_user: Duration,
    /// System CPU time.
    pub cpu_system: Duration,
    /// Largest resident set, in KiB.
    pub max_rss_kib: u64,
}

/// Blocks until some child has ended and names it, but leaves it to be reaped. No child at all is an error (ECHILD).
pub fn next_ended() -> io::Result<Pid> {
    peek(libc::P_ALL, 0)
}

/// Blocks until `child` has ended, but leaves it to be reaped. An error (ECHILD) when it was reaped meanwhile.
pub fn ended(child: Pid) -> io::Result<()> {
    peek(libc::P_PID, child).map(|_| ())
}

fn peek(kind: libc::idtype_t, id: Pid) -> io::Result<Pid> {
    loop {
        // SAFETY: `siginfo_t` is plain data for which all zeros are valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one siginfo_t to a valid reference.
        let result = unsafe { libc::waitid(kind, id, &raw mut info, libc::WEXITED | libc::WNOWAIT) };
        if result == 0 {
            // SAFETY: waitid succeeded, so this is the information of a child.
            let pid = unsafe { info.si_pid() };
            return Pid::try_from(pid).map_err(io::Error::other);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Reaps `child`. `Ok(None)` when `child` has not ended within a wait that does not block for ended ones.
pub fn try_reap(child: Pid) -> io::Result<Option<Ended>> {
    wait4(child, libc::WNOHANG)
}

/// Waits for the end of `child` and reaps it.
pub fn reap(child: Pid) -> io::Result<Option<Ended>> {
    wait4(child, 0)
}

fn wait4(child: Pid, flags: libc::c_int) -> io::Result<Option<Ended>> {
    let child = raw(child)?;
    let mut status = 0;
    // SAFETY: `rusage` is plain data for which all zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: the kernel writes to two valid references.
        match unsafe { libc::wait4(child, &raw mut status, flags, &raw mut usage) } {
            0 => return Ok(None),
            pid if pid > 0 => break,
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    let outcome = if libc::WIFSIGNALED(status) {
        Outcome::Signal(u8::try_from(libc::WTERMSIG(status)).unwrap_or(u8::MAX))
    } else {
        Outcome::Code(libc::WEXITSTATUS(status))
    };
    Ok(Some(Ended {
        outcome,
        cpu_user: span(usage.ru_utime),
        cpu_system: span(usage.ru_stime),
        max_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    }))
}

fn span(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

/// A number that kill(2) takes for one process: never 0, -1 or a group.
fn raw(pid: Pid) -> io::Result<libc::pid_t> {
    match libc::pid_t::try_from(pid) {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Sends `signal` to one process. The caller knows that `pid` is still that process (its own child, not reaped).
pub fn kill(pid: Pid, signal: u8) -> io::Result<()> {
    let pid = raw(pid)?;
    // SAFETY: a system call on numbers.
    match unsafe { libc::kill(pid, libc::c_int::from(signal)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends `signal` to every process of the group that `leader` leads or led.
pub fn kill_group(leader: Pid, signal: u8) -> io::Result<()> {
    let leader = raw(leader)?;
    // SAFETY: a system call on numbers.
    match unsafe { libc::kill(-leader, libc::c_int::from(signal)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A stable reference to a process that may end at any time.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Refers to whatever `pid` is now.
    pub fn open(pid: Pid) -> io::Result<Self> {
        let pid = raw(pid)?;
        // SAFETY: a system call on numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match libc::c_int::try_from(fd) {
            // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
            Ok(fd) if fd >= 0 => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends `signal` to exactly that process.
    pub fn signal(&self, signal: u8) -> io::Result<()> {
        let (fd, signal) = (self.0.as_raw_fd(), libc::c_int::from(signal));
        // SAFETY: no siginfo is given, so the kernel reads no memory of ours.
        let sent = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, std::ptr::null::<libc::siginfo_t>(), 0)
        };
        if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_everyone_cannot_be_signalled_by_mistake() {
        for pid in [0, u32::MAX] {
            assert_eq!(kill(pid, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert_eq!(PidFd::open(pid).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn the_null_signal_reaches_ourselves() {
        let own = std::process::id();
        kill(own, 0).unwrap();
        PidFd::open(own).unwrap().signal(0).unwrap();
    }
}
