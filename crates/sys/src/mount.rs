//! Owns the mount API by descriptors: fsopen(2), fsconfig(2), fsmount(2), open_tree(2), mount_setattr(2), move_mount(2),
//! pivot_root(2), umount2(2).

use crate::call::{failed, last_failed};
use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Attributes of a mount.
pub type Attributes = MountAttrFlags;

/// Nothing special.
pub const PLAIN: Attributes = MountAttrFlags::empty();
/// Reading does not write.
pub const NO_ACCESS_TIMES: Attributes = MountAttrFlags::MOUNT_ATTR_NOATIME;
/// No devices.
pub const NO_DEVICES: Attributes = MountAttrFlags::MOUNT_ATTR_NODEV;
/// No set-id bits, no programs.
pub const NO_SET_ID_NO_PROGRAMS: Attributes =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NOEXEC);
/// No set-id bits, no devices.
pub const NO_SET_ID_NO_DEVICES: Attributes =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
/// No devices, set-id bits or programs.
pub const NO_SPECIAL: Attributes = NO_SET_ID_NO_PROGRAMS.union(NO_DEVICES);
/// Read-only.
pub const READ_ONLY: Attributes = MountAttrFlags::MOUNT_ATTR_RDONLY;
/// Read-only, and no devices, set-id bits or programs.
pub const INERT: Attributes = MountAttrFlags::MOUNT_ATTR_RDONLY.union(NO_SPECIAL);

/// A file system about to be made.
#[derive(Debug)]
pub struct FileSystem(OwnedFd);

impl FileSystem {
    /// Of the given type.
    pub fn open(kind: &str) -> io::Result<Self> {
        rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).map(Self).map_err(failed("fsopen"))
    }

    /// The mounted one at the end of `path`, to change its options.
    pub fn pick(directory: impl AsFd, path: &CStr) -> io::Result<Self> {
        let flags = FsPickFlags::FSPICK_CLOEXEC
            | FsPickFlags::FSPICK_SYMLINK_NOFOLLOW
            | FsPickFlags::FSPICK_NO_AUTOMOUNT
            | FsPickFlags::FSPICK_EMPTY_PATH;
        rustix::mount::fspick(directory, path, flags).map(Self).map_err(failed("fspick"))
    }

    /// Sets an option with a value.
    pub fn set(&self, key: &str, value: &str) -> io::Result<()> {
        rustix::mount::fsconfig_set_string(&self.0, key, value).map_err(failed("fsconfig"))
    }

    /// Sets an option without a value.
    pub fn set_flag(&self, key: &str) -> io::Result<()> {
        rustix::mount::fsconfig_set_flag(&self.0, key).map_err(failed("fsconfig"))
    }

    /// Sets an option whose value is a directory.
    pub fn set_fd(&self, key: &str, value: impl AsFd) -> io::Result<()> {
        rustix::mount::fsconfig_set_fd(&self.0, key, value).map_err(failed("fsconfig"))
    }

    /// Makes it.
    pub fn create(&self) -> io::Result<()> {
        rustix::mount::fsconfig_create(&self.0).map_err(failed("fsconfig(create)"))
    }

    /// Makes it and a detached mount of it.
    pub fn mount(self, attributes: Attributes) -> io::Result<OwnedFd> {
        self.create()?;
        self.mount_created(attributes)
    }

    /// Makes a detached mount of it, after `create`.
    pub fn mount_created(self, attributes: Attributes) -> io::Result<OwnedFd> {
        rustix::mount::fsmount(&self.0, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(failed("fsmount"))
    }

    /// Puts changed options in force.
    pub fn reconfigure(self) -> io::Result<()> {
        rustix::mount::fsconfig_reconfigure(&self.0).map_err(failed("fsconfig(reconfigure)"))
    }
}

/// Makes a detached mount of what is mounted at `directory` or, as a bind mount, of the directory or file itself.
pub fn clone_tree(directory: impl AsFd, path: &CStr) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    rustix::mount::open_tree(directory, path, flags).map_err(failed("open_tree"))
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

fn set_attr(mount: BorrowedFd<'_>, attr: &MountAttr) -> io::Result<()> {
    // SAFETY: the path is a literal, `attr` is the structure the kernel expects, of the size given; both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(last_failed("mount_setattr")) }
}

/// Adds attributes to a mount.
pub fn set_attributes(mount: impl AsFd, attributes: Attributes) -> io::Result<()> {
    let attr = MountAttr { set: u64::from(attributes.bits()), clear: 0, propagation: 0, user_namespace: 0 };
    set_attr(mount.as_fd(), &attr)
}

/// Makes ids stored below a detached mount appear as those that the user namespace maps them to. Once only.
pub fn set_id_map(mount: impl AsFd, user_namespace: impl AsFd, attributes: Attributes) -> io::Result<()> {
    let set = attributes | MountAttrFlags::MOUNT_ATTR_IDMAP;
    let fd = user_namespace.as_fd().as_raw_fd();
    let attr = MountAttr {
        set: u64::from(set.bits()),
        clear: 0,
        propagation: 0,
        user_namespace: u64::try_from(fd).unwrap_or(u64::MAX),
    };
    set_attr(mount.as_fd(), &attr)
}

/// Attaches a detached mount. `path` is resolved from `directory` and its last element is not followed; empty means
/// `directory` itself.
pub fn attach(mount: impl AsFd, directory: impl AsFd, path: &CStr) -> io::Result<()> {
    move_mount((mount.as_fd(), c""), (directory.as_fd(), path))
}

/// Moves an attached mount, with what is mounted on it.
pub fn move_mount(from: (BorrowedFd<'_>, &CStr), to: (BorrowedFd<'_>, &CStr)) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(from.0, from.1, to.0, to.1, flags).map_err(failed("move_mount"))
}

/// Makes a directory the working directory.
pub fn enter_directory(directory: impl AsFd) -> io::Result<()> {
    rustix::process::fchdir(directory).map_err(failed("fchdir"))
}

/// Makes the mount that is the working directory the root of this mount namespace and drops everything else in it.
/// Processes with the old root follow.
pub fn pivot_to_working_directory() -> io::Result<()> {
    rustix::process::pivot_root(".", ".").map_err(failed("pivot_root"))?;
    // The old root now lies on top of the new one; it is what "." reaches.
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(failed("umount2"))?;
    rustix::process::chdir("/").map_err(failed("chdir"))
}

/// Detaches what is mounted at `path`, with what is mounted on it.
pub fn detach(path: &Path) -> io::Result<()> {
    rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(failed("umount2"))
}

/// Attaches a detached mount at a path of this process.
pub fn attach_at(mount: impl AsFd, path: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount, c"", CWD, path, flags).map_err(failed("move_mount"))
}

/// Makes `directory` root and working directory of this process.
pub fn change_root(directory: impl AsFd) -> io::Result<()> {
    enter_directory(directory)?;
    rustix::process::chroot(".").map_err(failed("chroot"))
}
