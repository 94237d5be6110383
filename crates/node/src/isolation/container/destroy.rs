//! Owns the end of a slot: its processes, cgroups, subvolume and run directory, in this order, from whatever state they
//! are in. Everything is found by the number of the slot, so there is nothing to remember and nothing to get wrong.

use super::{LOOK_INTERVAL, Step, StepFailure};
use crate::isolation::Slot;
use crate::isolation::cgroup::Hierarchy;
use crate::storage::Volume;
use cofferdam_sys::pidfd;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// Processes that do not die in this time hang in the kernel; the slot stays and can be tried again.
const END_WAIT: Duration = Duration::from_secs(10);

pub(super) fn destroy(cgroups: &dyn Hierarchy, volume: &Volume, slot: Slot) -> Result<(), StepFailure> {
    let deadline = Instant::now() + END_WAIT;
    end_processes(cgroups, slot, deadline)?;
    remove_groups(cgroups, slot, deadline)?;
    volume.destroy(slot).step("destroy the disk")?;
    match fs::remove_dir_all(slot.run_dir()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.step("remove the run directory"),
    }
}

/// Kills until no process is left. The end of the first one ends its pid namespace and so all others; killing what the
/// groups list covers shells that died half-made.
fn end_processes(cgroups: &dyn Hierarchy, slot: Slot, deadline: Instant) -> Result<(), StepFailure> {
    loop {
        let pids = cgroups.processes(slot).step("list processes")?;
        if pids.is_empty() {
            return Ok(());
        }
        // Killing comes before thawing: what is frozen must not run another instruction.
        let killed = kill_all(cgroups, slot, &pids).step("kill processes")?;
        cgroups.release(slot).step("thaw for the end")?;
        for process in &killed {
            let left = deadline.saturating_duration_since(Instant::now());
            pidfd::wait_end(process, left).step("wait for a process to end")?;
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into()).step("wait for processes to end");
        }
        if killed.is_empty() {
            thread::sleep(LOOK_INTERVAL);
        }
    }
}

fn kill_all(cgroups: &dyn Hierarchy, slot: Slot, pids: &[u32]) -> io::Result<Vec<OwnedFd>> {
    let mut killed = Vec::with_capacity(pids.len());
    for pid in pids {
        // Gone meanwhile: nothing to kill.
        let Ok(process) = pidfd::open(*pid) else { continue };
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        // The pid may be a stranger's by now. Read after the pidfd was opened, this is about the process it names.
        if cgroups.holds(slot, &cgroup) {
            pidfd::kill(&process)?;
            killed.push(process);
        }
    }
    Ok(killed)
}

/// A group stays busy for a moment after its last process ended.
fn remove_groups(cgroups: &dyn Hierarchy, slot: Slot, deadline: Instant) -> Result<(), StepFailure> {
    loop {
        match cgroups.remove(slot) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                // A process that joined in the meantime, of a park that was cut off, would keep it busy for ever.
                end_processes(cgroups, slot, deadline)?;
                thread::sleep(LOOK_INTERVAL);
            }
            other => return other.step("remove cgroups"),
        }
    }
}
