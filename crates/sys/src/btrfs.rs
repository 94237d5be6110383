//! Owns subvolumes and simple quotas of btrfs: btrfs(5), ioctl_btrfs(2).

use crate::call::last_failed;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

const MAGIC: u64 = 0x94;
const WRITE: u64 = 1 << 30;
const READ: u64 = 2 << 30;
const SUBVOL_CREATE: u64 = WRITE | request(14, size_of::<VolumeArgs>());
const SNAP_DESTROY: u64 = WRITE | request(15, size_of::<VolumeArgs>());
const INO_LOOKUP: u64 = READ | WRITE | request(18, size_of::<InodeLookupArgs>());
const SUBVOL_SETFLAGS: u64 = WRITE | request(26, size_of::<u64>());
const FS_INFO: u64 = READ | request(31, 1024);
const QUOTA_CTL: u64 = READ | WRITE | request(40, size_of::<QuotaControlArgs>());
const QGROUP_LIMIT: u64 = READ | request(43, size_of::<QuotaLimitArgs>());
const ENABLE_SIMPLE_QUOTA: u64 = 4;
const SUBVOL_READ_ONLY: u64 = 2;
const LIMIT_REFERENCED: u64 = 1;
const ROOT_INODE: u64 = 256;
const SUPER_MAGIC: u64 = 0x9123_683E;

const fn request(number: u64, size: usize) -> u64 {
    ((size as u64) << 16) | (MAGIC << 8) | number
}

#[repr(C)]
struct VolumeArgs {
    fd: i64,
    name: [u8; 4088],
}

impl VolumeArgs {
    fn named(name: &str) -> io::Result<Box<Self>> {
        let mut args = Box::new(Self { fd: 0, name: [0; 4088] });
        let legal = !name.is_empty() && name.len() < 256 && !name.contains(['/', '\0']) && name != "..";
        if !legal || name == "." {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name of a subvolume"));
        }
        args.name[..name.len()].copy_from_slice(name.as_bytes());
        Ok(args)
    }
}

#[repr(C)]
struct InodeLookupArgs {
    tree: u64,
    object: u64,
    name: [u8; 4080],
}

#[repr(C)]
struct QuotaControlArgs {
    command: u64,
    status: u64,
}

#[repr(C)]
struct QuotaLimitArgs {
    group: u64,
    flags: u64,
    max_referenced: u64,
    max_exclusive: u64,
    reserved_referenced: u64,
    reserved_exclusive: u64,
}

/// `T` must be the structure that `request` is about; the requests above carry its size.
fn call<T>(name: &'static str, fd: BorrowedFd<'_>, request: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: every caller pairs a request with the structure it was computed from, so the kernel reads and writes within
    // `argument`, which is borrowed exclusively during the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as libc::Ioctl, std::ptr::from_mut(argument)) };
    if result < 0 { Err(last_failed(name)) } else { Ok(()) }
}

/// Whether a directory lies on btrfs.
pub fn is_btrfs(directory: impl AsFd) -> io::Result<bool> {
    let stat = rustix::fs::fstatfs(directory).map_err(crate::call::failed("fstatfs"))?;
    Ok(stat.f_type as u64 == SUPER_MAGIC)
}

/// Makes an empty subvolume.
pub fn create_subvolume(parent: impl AsFd, name: &str) -> io::Result<()> {
    let mut args = VolumeArgs::named(name)?;
    call("ioctl(BTRFS_IOC_SUBVOL_CREATE)", parent.as_fd(), SUBVOL_CREATE, &mut *args)
}

/// Makes a subvolume read-only for everyone. It can still be renamed where it is, and destroyed.
pub fn make_subvolume_read_only(subvolume: impl AsFd) -> io::Result<()> {
    let mut flags = SUBVOL_READ_ONLY;
    call("ioctl(BTRFS_IOC_SUBVOL_SETFLAGS)", subvolume.as_fd(), SUBVOL_SETFLAGS, &mut flags)
}

/// Destroys a subvolume and all in it, at once; the space comes back in the background.
pub fn destroy_subvolume(parent: impl AsFd, name: &str) -> io::Result<()> {
    let mut args = VolumeArgs::named(name)?;
    call("ioctl(BTRFS_IOC_SNAP_DESTROY)", parent.as_fd(), SNAP_DESTROY, &mut *args)
}

/// Turns on simple quotas for the whole file system. Doing so twice is fine.
pub fn enable_simple_quota(directory: impl AsFd) -> io::Result<()> {
    let mut args = QuotaControlArgs { command: ENABLE_SIMPLE_QUOTA, status: 0 };
    match call("ioctl(BTRFS_IOC_QUOTA_CTL)", directory.as_fd(), QUOTA_CTL, &mut args) {
        Err(error) if crate::errno_of(&error) == Some(libc::EEXIST) => Ok(()),
        other => other,
    }
}

/// Bounds what the subvolume that a directory is in may use, in bytes.
pub fn limit_subvolume(subvolume: impl AsFd, bytes: u64) -> io::Result<()> {
    let mut args = QuotaLimitArgs {
        group: 0,
        flags: LIMIT_REFERENCED,
        max_referenced: bytes,
        max_exclusive: 0,
        reserved_referenced: 0,
        reserved_exclusive: 0,
    };
    call("ioctl(BTRFS_IOC_QGROUP_LIMIT)", subvolume.as_fd(), QGROUP_LIMIT, &mut args)
}

/// The number of the subvolume that a directory is in.
pub fn subvolume_id(directory: impl AsFd) -> io::Result<u64> {
    let mut args = Box::new(InodeLookupArgs { tree: 0, object: ROOT_INODE, name: [0; 4080] });
    call("ioctl(BTRFS_IOC_INO_LOOKUP)", directory.as_fd(), INO_LOOKUP, &mut *args)?;
    Ok(args.tree)
}

/// The uuid of the file system, as sysfs writes it.
pub fn file_system_id(directory: impl AsFd) -> io::Result<String> {
    const UUID_OFFSET: usize = 16;
    let mut info = Box::new([0u8; 1024]);
    call("ioctl(BTRFS_IOC_FS_INFO)", directory.as_fd(), FS_INFO, &mut *info)?;
    let mut text = String::with_capacity(36);
    for (index, byte) in info[UUID_OFFSET..UUID_OFFSET + 16].iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    Ok(text)
}

/// Bytes that a subvolume uses, as its quota counts them (a few seconds late).
pub fn subvolume_usage(file_system_id: &str, subvolume_id: u64) -> io::Result<u64> {
    let path = format!("/sys/fs/btrfs/{file_system_id}/qgroups/0_{subvolume_id}/referenced");
    let text = fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "malformed quota in sysfs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_numbers_of_the_header() {
        assert_eq!(SUBVOL_CREATE, 0x5000_940e);
        assert_eq!(SNAP_DESTROY, 0x5000_940f);
        assert_eq!(INO_LOOKUP, 0xd000_9412);
        assert_eq!(SUBVOL_SETFLAGS, 0x4008_941a);
        assert_eq!(FS_INFO, 0x8400_941f);
        assert_eq!(QUOTA_CTL, 0xc010_9428);
        assert_eq!(QGROUP_LIMIT, 0x8030_942b);
    }

    #[test]
    fn a_name_that_leaves_the_directory_is_refused() {
        for name in ["", ".", "..", "a/b", "a\0b"] {
            assert!(VolumeArgs::named(name).is_err(), "{name:?}");
        }
    }
}
