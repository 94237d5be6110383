//! Owns processes by descriptor: pidfd_open(2), pidfd_send_signal(2), and poll(2) on them; and what proc(5) says about
//! the identity of a process.

use crate::call::failed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Opens a process of this pid namespace. The caller checks by its start time that it is the one it means.
pub fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(failed("pidfd_open"))
}

/// Kills a process. One that has ended is killed already.
pub fn kill(pidfd: impl AsFd) -> io::Result<()> {
    match rustix::process::pidfd_send_signal(pidfd, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(failed("pidfd_send_signal")(errno)),
    }
}

/// Waits until a process has ended; false when the time is over first.
pub fn wait_end(pidfd: impl AsFd, at_most: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    let timeout = Timespec::try_from(at_most).map_err(|_| io::ErrorKind::InvalidInput)?;
    loop {
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed("poll")(errno)),
        }
    }
}

/// When a process started, in clock ticks since boot.
pub fn start_ticks(pid: u32) -> io::Result<u64> {
    parse_start_ticks(&fs::read_to_string(format!("/proc/{pid}/stat"))?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "malformed /proc/<pid>/stat"))
}

/// The name in field 2 may hold anything, parentheses and blanks too; field 22 is counted from its end.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Which boot of the host this is.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim_end().to_owned())
}

/// Sets how readily the kernel kills a process for memory (-1000 never, 1000 first). Lowering needs CAP_SYS_RESOURCE.
pub fn set_oom_score_adj(pid: u32, value: i16) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/oom_score_adj"), value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_process_name() {
        let tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        for name in ["(bash)", "(a) b)", "(:-) 1 2 3)"] {
            assert_eq!(parse_start_ticks(&format!("7 {name}{tail}")), Some(4242), "{name}");
        }
        assert_eq!(parse_start_ticks("7 (x) S 1"), None);
    }

    #[test]
    fn this_process_is_running_and_has_a_start() {
        let pid = std::process::id();
        assert!(start_ticks(pid).unwrap() > 0);
        assert!(!wait_end(open(pid).unwrap(), Duration::ZERO).unwrap());
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
