//! Owns the mounts of a sandbox that do not depend on its template. They are made while the shell waits, below a small
//! root of its own, and moved onto the template's directories when it comes.

use super::failure::{Failure, Step};
use super::home::Mask;
use cofferdam_sys::directory;
use cofferdam_sys::mount::{self, Attributes, FileSystem};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Mounts that move onto the template.
pub(super) const MOVED: [(&str, &CStr); 3] = [("proc", c"proc"), ("sys", c"sys"), ("dev", c"dev")];
/// An empty directory to hide others with.
const NOTHING: &CStr = c"nothing";
/// Terminals of one sandbox; the kernel has 4096 for all.
const TERMINALS_MAX: &str = "256";

pub(super) struct Tree {
    /// The small root.
    pub(super) root: OwnedFd,
}

impl Tree {
    /// Builds the mounts and makes the small root the root of this process; nothing else stays in its mount namespace.
    pub(super) fn build(devices: OwnedFd) -> Result<Self, Failure> {
        let root = small_root().step("make the small root")?;
        let old = directory::locate_at(Path::new("/")).step("open the launcher's root")?;
        mount::attach(&root, &old, c"").step("attach the small root")?;
        mount::attach(&devices, &root, c"dev").step("attach the devices")?;
        let on = |kind, target, attributes, options: &[(&str, &str)]| {
            mount_on(kind, &root, target, attributes, options).step("mount proc, sys, pts or mqueue")
        };
        on("proc", c"proc", mount::NO_SPECIAL, &[])?;
        on("sysfs", c"sys", mount::INERT, &[])?;
        let terminals = [("ptmxmode", "666"), ("mode", "620"), ("gid", "5"), ("max", TERMINALS_MAX)];
        on("devpts", c"dev/pts", mount::NO_SET_ID_NO_PROGRAMS, &terminals)?;
        on("mqueue", c"dev/mqueue", mount::NO_SPECIAL, &[])?;
        mount::enter_directory(&root).step("enter the small root")?;
        mount::pivot_to_working_directory().step("leave the launcher's mounts")?;
        Ok(Self { root })
    }

    /// Hides or protects what the kernel shows of the host.
    pub(super) fn mask(&self, masks: &[(CString, Mask)]) -> Result<(), Failure> {
        for (path, mask) in masks {
            let covered = || match mask {
                Mask::File => mount::attach(mount::clone_tree(&self.root, c"dev/null")?, &self.root, path),
                Mask::Directory => self.cover(NOTHING, path),
                Mask::ReadOnly => self.cover(path, path),
            };
            match covered() {
                // What is not there in this sandbox needs no mask.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other.step("mask a path of the kernel")?,
            }
        }
        Ok(())
    }

    fn cover(&self, source: &CStr, target: &CStr) -> io::Result<()> {
        let clone = mount::clone_tree(&self.root, source)?;
        mount::set_attributes(&clone, mount::INERT)?;
        mount::attach(clone, &self.root, target)
    }

    /// Shared memory, as large as the sandbox's memory allows; what is in it counts as memory of the sandbox.
    pub(super) fn mount_shared_memory(&self, bytes: u64) -> Result<(), Failure> {
        let size = bytes.to_string();
        let options = [("mode", "1777"), ("size", size.as_str())];
        mount_on("tmpfs", &self.root, c"dev/shm", mount::NO_SET_ID_NO_DEVICES, &options)
            .step("mount shared memory")
    }
}

fn small_root() -> io::Result<OwnedFd> {
    let system = FileSystem::open("tmpfs")?;
    system.set("mode", "755")?;
    system.set("size", "64k")?;
    let root = system.mount(mount::NO_SPECIAL)?;
    for name in ["proc", "sys", "dev"] {
        directory::make(&root, name, 0o755)?;
    }
    directory::make(&root, "nothing", 0o555)?;
    Ok(root)
}

fn mount_on(
    kind: &str,
    root: &OwnedFd,
    target: &CStr,
    attributes: Attributes,
    options: &[(&str, &str)],
) -> io::Result<()> {
    let system = FileSystem::open(kind)?;
    for (key, value) in options {
        system.set(key, value)?;
    }
    mount::attach(system.mount(attributes)?, root.as_fd(), target)
}
