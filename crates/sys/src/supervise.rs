//! prctl(2), unshare(2), wait(2): what a supervisor needs of the kernel.
//!
//! Owns becoming the reaper of orphans, the private mount namespace of the roles, and reaping.

use rustix::process::{Pid, WaitOptions};
use rustix::thread::UnshareFlags;
use std::fs;
use std::io;

/// True when this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes this process the parent of every orphan among its descendants, so that nothing ends as a zombie of a process
/// that does not reap.
pub fn become_subreaper() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(io::Error::from)
}

/// Moves this process, which must have one thread, into a mount namespace of its own. Mounts of the host still arrive;
/// ours never leave.
pub fn enter_private_mounts() -> io::Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    // SAFETY: the caller has one thread, so no other thread loses the file system state that it shares with this one;
    // CLONE_NEWNS touches no memory.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC).map_err(io::Error::from)
}

/// Reaps every ended child of this thread except those in `keep`, which someone else waits for. Returns how many.
pub fn reap_orphans(keep: &[u32]) -> io::Result<usize> {
    let children = fs::read_to_string("/proc/thread-self/children")?;
    let orphans = children.split_ascii_whitespace().filter_map(|text| text.parse::<u32>().ok());
    let mut reaped = 0;
    for pid in orphans.filter(|pid| !keep.contains(pid)) {
        let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
        match rustix::process::waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(Some(_)) => reaped += 1,
            Ok(None) | Err(rustix::io::Errno::CHILD) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(reaped)
}
