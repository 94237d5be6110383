//! Owns the cgroups of slots behind one trait: where they are, what limits they hold, what they counted, and that
//! nothing is left in them. Which of the two versions the host has is decided once, here.
//!
//! A slot has two groups: one of the agent with a reserve of its own, and `work` with the limits of the sandbox. A memory
//! or fork bomb in `work` therefore never takes the agent with it. The groups of every slot lie below one directory per
//! data directory, `cofferdam-<instance>`.

mod file;
mod v1;
mod v2;

use crate::isolation::Slot;
use cofferdam_core::Resources;
use cofferdam_sys::mount::{self, FileSystem};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Memory that the agent may use on top of the sandbox's own, page cache of files it moves included.
const AGENT_MEMORY_BYTES: u64 = 96 * 1024 * 1024;
/// Threads that the agent may have: one per connection and per process that a client started, and some.
const AGENT_THREADS: u64 = 2560;
/// The spawner lives in `work` and is not the user's.
const SPAWNERS: u64 = 1;
/// Length over which the CPU quota counts.
const CPU_PERIOD_US: u64 = 100_000;

/// Files through which processes join; each write of "0" moves the writer. The kernel checks such writes against
/// whoever opened the file, so a process of the sandbox may do it with these and with no others.
#[derive(Debug)]
pub(crate) struct JoinFiles {
    /// Groups of the agent.
    pub(crate) agent: Vec<OwnedFd>,
    /// Groups of everything else.
    pub(crate) work: Vec<OwnedFd>,
}

/// What the groups of a slot counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counted {
    pub(crate) cpu_us: u64,
    pub(crate) memory_used: u64,
    pub(crate) memory_cache: u64,
    pub(crate) memory_peak: u64,
    pub(crate) processes: u64,
    pub(crate) oom_kills: u64,
    pub(crate) process_refusals: u64,
}

/// One version of cgroups. Everything blocks, but not for long.
pub(crate) trait Hierarchy: Send + Sync + std::fmt::Debug {
    /// Which version, for people.
    fn version(&self) -> &'static str;

    /// Makes the groups of a slot, without limits yet.
    fn create(&self, slot: Slot) -> io::Result<()>;

    /// Opens the files through which its processes join.
    fn join_files(&self, slot: Slot) -> io::Result<JoinFiles>;

    /// Puts limits in force.
    fn limit(&self, slot: Slot, resources: &Resources) -> io::Result<()>;

    /// What was counted.
    fn counted(&self, slot: Slot) -> io::Result<Counted>;

    /// Whether the text of `/proc/<pid>/cgroup` is that of a process of the slot.
    fn holds(&self, slot: Slot, proc_cgroup: &str) -> bool;

    /// Asks for `work` to stand still or to go on.
    fn set_frozen(&self, slot: Slot, frozen: bool) -> io::Result<()>;

    /// Whether it stands still.
    fn is_frozen(&self, slot: Slot) -> io::Result<bool>;

    /// Thaws what is frozen; where the kernel can kill a group as a whole, does that too.
    fn release(&self, slot: Slot) -> io::Result<()>;

    /// Pids in any group of the slot; none when there is no group.
    fn processes(&self, slot: Slot) -> io::Result<Vec<u32>>;

    /// Removes the groups. A missing one is fine; one with processes is `ResourceBusy`.
    fn remove(&self, slot: Slot) -> io::Result<()>;

    /// Slots that have groups.
    fn slots(&self) -> io::Result<Vec<Slot>>;

    /// Removes what is shared by all slots, if no slot is left.
    fn remove_shared(&self);
}

/// What this host has.
enum Found {
    Unified(PathBuf),
    Legacy(Vec<(PathBuf, Vec<String>)>),
}

fn find() -> io::Result<Found> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    for (root, _) in mount_points(&mounts, "cgroup2") {
        let controllers = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if v2::CONTROLLERS.iter().all(|wanted| controllers.split_ascii_whitespace().any(|c| c == *wanted)) {
            return Ok(Found::Unified(root));
        }
    }
    let legacy = mount_points(&mounts, "cgroup");
    v1::check(&legacy)?;
    Ok(Found::Legacy(legacy))
}

/// The version that would be used.
pub(crate) fn version() -> io::Result<u8> {
    Ok(match find()? {
        Found::Unified(_) => 2,
        Found::Legacy(_) => 1,
    })
}

/// Finds what this host has and makes the shared part.
pub(crate) fn open(instance: &str) -> io::Result<Box<dyn Hierarchy>> {
    let group = format!("cofferdam-{instance}");
    Ok(match find()? {
        Found::Unified(root) => Box::new(v2::Unified::open(&root, &group)?),
        Found::Legacy(mounts) => Box::new(v1::Legacy::open(&mounts, &group)?),
    })
}

/// While any hierarchy has the option `favordynmods`, joining a group does not wait for a grace period of RCU (10 ms).
/// An empty hierarchy of our own, never attached anywhere, is enough; the effect lasts while the mount is open.
pub(crate) fn favour_joins() -> io::Result<OwnedFd> {
    let system = FileSystem::open("cgroup")?;
    system.set_flag("none")?;
    system.set("name", "cofferdam")?;
    system.set_flag("favordynmods")?;
    system.mount(mount::NO_SPECIAL)
}

/// Mount points of a file system type with the options of their superblock, out of the text of mountinfo, proc(5).
fn mount_points(mountinfo: &str, kind: &str) -> Vec<(PathBuf, Vec<String>)> {
    let parse = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ');
        // Only a mount of the whole hierarchy counts, not a bind mount of some group.
        let (root, point) = (front.nth(3)?, front.next()?);
        let mut back = back.split(' ');
        let (found, _source, options) = (back.next()?, back.next()?, back.next()?);
        let options = options.split(',').map(str::to_owned).collect();
        (found == kind && root == "/").then(|| (Path::new(point).to_owned(), options))
    };
    mountinfo.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_found_with_their_controllers() {
        let text = "30 24 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                    31 24 0:27 /docker/1 /x rw - cgroup cgroup rw,memory\n\
                    32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let legacy = mount_points(text, "cgroup");
        assert_eq!(legacy.len(), 1);
        assert_eq!(legacy[0].0, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert!(legacy[0].1.contains(&"cpuacct".to_owned()));
        assert_eq!(mount_points(text, "cgroup2").len(), 1);
    }
}
