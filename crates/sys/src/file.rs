//! Owns opening files without waiting for anybody (a FIFO, a device), and what file systems say about themselves:
//! open(2), statfs(2), statvfs(3), fadvise(2).

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

fn open(path: &Path, flags: OFlags, mode: u32) -> io::Result<File> {
    Ok(rustix::fs::open(path, ALWAYS | flags, Mode::from_raw_mode(mode))?.into())
}

/// Opens for reading; links are followed. It may be anything: check its type.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDONLY, 0)
}

/// Creates a file that does not exist yet, not even as a dangling link.
pub fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)
}

/// Opens an existing file for writing and leaves its content; links are followed. It may be anything: check its type.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    open(path, OFlags::WRONLY, 0)
}

/// Opens or creates, also where a dangling link points to.
pub fn open_or_create(path: &Path, mode: u32) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::CREATE, mode)
}

/// What keeps the bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// A disk, or what behaves like one.
    Disk,
    /// Memory that is not given back while the file exists.
    Memory,
    /// The process information of the kernel.
    Proc,
    /// Another interface of the kernel.
    Kernel,
}

/// What keeps the bytes of an open file.
pub fn backing(file: BorrowedFd<'_>) -> io::Result<Backing> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    Ok(match kind {
        libc::TMPFS_MAGIC | libc::HUGETLBFS_MAGIC | 0x8584_58f6 => Backing::Memory,
        libc::PROC_SUPER_MAGIC => Backing::Proc,
        libc::SYSFS_MAGIC | libc::CGROUP_SUPER_MAGIC | libc::CGROUP2_SUPER_MAGIC => Backing::Kernel,
        _ => Backing::Disk,
    })
}

/// Bytes of the file system of `path`: used and in all.
pub fn space(path: &Path) -> io::Result<(u64, u64)> {
    let all = rustix::fs::statvfs(path)?;
    let used = all.f_blocks.saturating_sub(all.f_bfree);
    Ok((used.saturating_mul(all.f_frsize), all.f_blocks.saturating_mul(all.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_fifo_does_not_make_us_wait() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::from_raw_mode(0o600)).unwrap();
        open_to_read(&path).unwrap();
        assert!(open_to_write(&path).is_err());
    }

    #[test]
    fn kernel_files_are_told_from_disks() {
        let proc = open_to_read(Path::new("/proc/self/status")).unwrap();
        assert_eq!(backing(proc.as_fd()).unwrap(), Backing::Proc);
    }
}
