//! Owns the outer half of a park: the new process, its ids and its groups. The inner half is in `shell`.

use super::Launcher;
use super::failure::{Failure, Step};
use super::overlay::as_slot;
use super::protocol::{GO, Park};
use super::shell::Shell;
use crate::isolation::Slot;
use cofferdam_sys::clone::{self, Cloned, Namespaces};
use cofferdam_sys::mount::{self, FileSystem};
use cofferdam_sys::{directory, pidfd, seqpacket};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// Character devices that every program expects, with their numbers.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// What the node gets of a shell.
pub(super) struct MadeShell {
    pub(super) pid: u32,
    pub(super) pidfd: OwnedFd,
    pub(super) control: OwnedFd,
    pub(super) user_namespace: OwnedFd,
}

impl Launcher {
    pub(super) fn park(&self, park: &Park, mut descriptors: Vec<OwnedFd>) -> Result<MadeShell, Failure> {
        if descriptors.len() != 1 + park.agent_groups + park.work_groups {
            return Err(io::ErrorKind::InvalidInput.into()).step("take the descriptors of a park");
        }
        let work_groups = descriptors.split_off(1 + park.agent_groups);
        let agent_groups = descriptors.split_off(1);
        let listener = descriptors.remove(0);
        let (control, inner_control) = seqpacket::pair().step("make the control socket")?;
        let (pid, pidfd) = as_slot(park.slot, || {
            let devices = devices().step("make the devices")?;
            match clone::clone(&self.proof, Namespaces::SANDBOX).step("make the first process")? {
                Cloned::Parent { pid, pidfd } => Ok((pid, pidfd)),
                Cloned::Child => {
                    let shell = Shell { control: inner_control, listener, devices, work_groups };
                    shell.run(self)
                }
            }
        })?;
        match self.admit(park.slot, pid, agent_groups, &control) {
            Ok(user_namespace) => Ok(MadeShell { pid, pidfd, control, user_namespace }),
            Err(failure) => {
                pidfd::kill(&pidfd).step("kill a half-made shell")?;
                Err(failure)
            }
        }
    }

    /// Gives the new process its ids and its groups, and lets it go on.
    fn admit(
        &self,
        slot: Slot,
        pid: u32,
        groups: Vec<OwnedFd>,
        control: &OwnedFd,
    ) -> Result<OwnedFd, Failure> {
        clone::map_ids(pid, slot.uid_base(), Slot::UID_COUNT).step("map ids")?;
        let line = format!("{pid}\n");
        for group in groups {
            File::from(group).write_all(line.as_bytes()).step("join the agent's cgroup")?;
        }
        let user_namespace = clone::open_namespace(pid, "user").step("open the user namespace")?;
        seqpacket::send(control, GO, &[]).step("start the shell")?;
        Ok(user_namespace)
    }
}

/// A device file system of its own for each sandbox: device inodes that two share would let them see and lock each
/// other. It is made outside, where making devices is allowed, by the uid that is root inside.
fn devices() -> io::Result<OwnedFd> {
    let system = FileSystem::open("tmpfs")?;
    for (key, value) in [("mode", "755"), ("size", "64k"), ("nr_inodes", "256")] {
        system.set(key, value)?;
    }
    let mounted = system.mount(mount::NO_SET_ID_NO_PROGRAMS)?;
    for (name, major, minor) in DEVICES {
        directory::make_device(&mounted, name, major, minor)?;
    }
    for (name, target) in LINKS {
        directory::make_link(&mounted, name, target)?;
    }
    for name in ["pts", "shm", "mqueue"] {
        directory::make(&mounted, name, 0o755)?;
    }
    Ok(mounted)
}
