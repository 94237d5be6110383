//! Owns the root file system of a sandbox: an overlay of the template, which nobody changes, and the subvolume of the
//! slot, which takes all changes.
//!
//! Both layers come as detached mounts on which the slot's ids are mapped, so that what is on disk has plain ids and every
//! sandbox can share and fork it. The kernel checks access to the layers with the credentials of whoever mounted the
//! overlay; uid 0 of the host has no id in them, so the launcher mounts it as the slot's own uid, with its capabilities.

use super::Launcher;
use super::failure::{Failure, Step};
use super::home::{LOWER, UPPER};
use super::protocol::Fill;
use crate::isolation::Slot;
use crate::storage::UPPER_NAMES;
use cofferdam_sys::mount::{self, FileSystem};
use cofferdam_sys::{credentials, directory, seqpacket};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

impl Launcher {
    /// Mounts the overlay and passes it to the shell.
    pub(super) fn fill(&self, fill: &Fill, descriptors: Vec<OwnedFd>) -> Result<(), Failure> {
        let [control, lower, upper] = <[OwnedFd; 3]>::try_from(descriptors)
            .map_err(|_| io::ErrorKind::InvalidInput.into())
            .step("take the descriptors of a fill")?;
        let root = as_slot(fill.slot, || self.overlay(&lower, &upper))?;
        let message = fill.shared_memory_bytes.to_le_bytes();
        seqpacket::send(&control, &message, &[root.as_fd()]).step("send the root to the shell")
    }

    fn overlay(&self, lower: &OwnedFd, upper: &OwnedFd) -> Result<OwnedFd, Failure> {
        let system = FileSystem::open("overlay").step("open overlay")?;
        system.set("source", "overlay").step("name overlay")?;
        // Renames of directories of the template work as everywhere else.
        system.set("redirect_dir", "on").step("set redirect_dir")?;
        // Nothing is synced when it goes: a sandbox that ends takes its disk with it.
        system.set_flag("volatile").step("set volatile")?;
        if self.home.layers_by_descriptor {
            let directory = |name| directory::locate(upper, name).step("open the directories of the slot");
            system.set_fd("lowerdir+", lower).step("set the template")?;
            system.set_fd("upperdir", directory(UPPER_NAMES.upper)?).step("set the upper directory")?;
            system.set_fd("workdir", directory(UPPER_NAMES.work)?).step("set the work directory")?;
            return system.mount(mount::NO_DEVICES).step("mount overlay");
        }
        mount::attach_at(lower, Path::new(LOWER)).step("attach the template")?;
        let result = self.overlay_of_attached(&system, upper);
        mount::detach(Path::new(LOWER)).step("detach the template")?;
        result?;
        system.mount_created(mount::NO_DEVICES).step("mount overlay")
    }

    /// For kernels that take layers by path: what is attached here is copied by the kernel when the overlay is made.
    fn overlay_of_attached(&self, system: &FileSystem, upper: &OwnedFd) -> Result<(), Failure> {
        mount::attach_at(upper, Path::new(UPPER)).step("attach the disk of the slot")?;
        let make = || {
            system.set("lowerdir", LOWER)?;
            system.set("upperdir", &format!("{UPPER}/{}", UPPER_NAMES.upper))?;
            system.set("workdir", &format!("{UPPER}/{}", UPPER_NAMES.work))?;
            system.create()
        };
        let result = make().step("make overlay");
        mount::detach(Path::new(UPPER)).step("detach the disk of the slot")?;
        result
    }
}

/// Does something as the uid that owns the slot, with the launcher's capabilities, and goes back.
pub(super) fn as_slot<T>(slot: Slot, act: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    credentials::become_id(slot.uid_base()).step("become the uid of the slot")?;
    let result = act();
    if let Err(error) = credentials::become_id(0) {
        // A launcher with the wrong uid must do nothing more for anybody; the node starts another.
        eprintln_and_exit(&error);
    }
    result
}

fn eprintln_and_exit(error: &io::Error) -> ! {
    use io::Write;
    io::stderr().write_all(format!("launcher: become root again: {error}\n").as_bytes()).ok();
    std::process::exit(1)
}
