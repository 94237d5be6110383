//! Owns the place in which the launcher lives: mounts of its own with an empty root, so that a shell copies next to
//! nothing, and neither it nor the launcher can reach a file of the host.

use super::failure::{Failure, Step};
use crate::isolation::cgroup;
use cofferdam_sys::mount::{self, FileSystem};
use cofferdam_sys::{clone, credentials, directory, exec, landlock};
use std::ffi::CString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What is done to a path below `/proc` or `/sys` that exists on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mask {
    /// Reads as an empty file.
    File,
    /// Reads as an empty directory.
    Directory,
    /// Can be read only.
    ReadOnly,
}

/// Paths as OCI runtimes treat them, and the debugging file systems.
const HIDDEN: [&str; 18] = [
    "proc/acpi",
    "proc/asound",
    "proc/interrupts",
    "proc/kcore",
    "proc/keys",
    "proc/latency_stats",
    "proc/scsi",
    "proc/sched_debug",
    "proc/timer_list",
    "proc/timer_stats",
    "proc/key-users",
    "proc/kpagecount",
    "proc/kpageflags",
    "proc/kallsyms",
    "sys/firmware",
    "sys/fs",
    "sys/kernel",
    "sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"];

/// Where the launcher attaches layers on kernels that take them by path only.
pub(super) const LOWER: &str = "/lower";
pub(super) const UPPER: &str = "/upper";

/// What was found out once about this host.
#[derive(Debug)]
pub(super) struct Home {
    /// Paths relative to the root of a sandbox.
    pub(super) masks: Vec<(CString, Mask)>,
    /// The version of Landlock.
    pub(super) landlock: Option<u32>,
    /// Overlays take their layers as descriptors.
    pub(super) layers_by_descriptor: bool,
    /// Kept for its effect on the kernel; without it, parking is slower.
    _fast_joins: Option<OwnedFd>,
}

impl Home {
    /// Moves this process there. Its working directory is the empty root afterwards.
    pub(super) fn enter() -> Result<Self, Failure> {
        credentials::keep_capabilities_on_uid_change().step("keep capabilities")?;
        credentials::clear_groups().step("clear groups")?;
        credentials::become_id(0).step("become root")?;
        exec::forbid_inspection().step("forbid inspection")?;
        exec::leave_session_keyring().step("leave the session keyring")?;
        clone::unshare_mounts().step("unshare mounts")?;
        let fast_joins = cgroup::favour_joins().ok();
        let root = new_root().step("make an empty root")?;
        let top = directory::locate_at(Path::new("/")).step("open the old root")?;
        mount::attach(&root, &top, c"").step("attach the empty root")?;
        mount::enter_directory(&root).step("enter the empty root")?;
        mount::pivot_to_working_directory().step("leave the host's mounts")?;
        for (kind, name) in [("proc", "/proc"), ("sysfs", "/sys")] {
            // Without these two in its sight, the kernel lets no user namespace mount its own.
            let system = FileSystem::open(kind).step("open proc or sysfs")?;
            let mounted = system.mount(mount::NO_SPECIAL).step("mount proc or sysfs")?;
            mount::attach_at(mounted, Path::new(name)).step("attach proc or sysfs")?;
        }
        credentials::bound_capabilities(credentials::LAUNCHER).step("bound capabilities")?;
        credentials::keep_capabilities(credentials::LAUNCHER).step("give up capabilities")?;
        Ok(Self {
            masks: masks(),
            landlock: landlock::version(),
            layers_by_descriptor: layers_by_descriptor(),
            _fast_joins: fast_joins,
        })
    }
}

fn new_root() -> std::io::Result<OwnedFd> {
    let system = FileSystem::open("tmpfs")?;
    system.set("mode", "755")?;
    system.set("size", "64k")?;
    let root = system.mount(mount::PLAIN)?;
    for name in ["proc", "sys", "lower", "upper"] {
        directory::make(&root, name, 0o755)?;
    }
    Ok(root)
}

fn masks() -> Vec<(CString, Mask)> {
    let hidden = HIDDEN.iter().filter_map(|path| {
        let found = fs::metadata(Path::new("/").join(path)).ok()?;
        // What is for root of the host alone is for nobody inside.
        let is_open = found.permissions().mode() & 0o007 != 0;
        is_open.then_some((*path, if found.is_dir() { Mask::Directory } else { Mask::File }))
    });
    let read_only = READ_ONLY.iter().filter(|path| Path::new("/").join(path).exists());
    let all = hidden.chain(read_only.map(|path| (*path, Mask::ReadOnly)));
    all.filter_map(|(path, mask)| Some((CString::new(path).ok()?, mask))).collect()
}

/// Kernels before 6.13 refuse the key with a descriptor.
fn layers_by_descriptor() -> bool {
    let attempt = || {
        let layer = directory::locate_at(Path::new(LOWER))?;
        FileSystem::open("overlay")?.set_fd("lowerdir+", layer)
    };
    attempt().is_ok()
}
