//! Owns extended attributes: xattr(7). Never follows a symbolic link at the end of a path.

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Longest list of names that is read, and longest value, in bytes.
const BYTES_MAX: usize = 64 * 1024;

/// Names of all attributes of `path`; none where the file system has no attributes.
pub fn names(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    split(|buffer| rustix::fs::llistxattr(path, rustix::buffer::spare_capacity(buffer)))
}

/// Names of all attributes of an open file.
pub fn names_of(file: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    split(|buffer| rustix::fs::flistxattr(file, rustix::buffer::spare_capacity(buffer)))
}

fn split(mut list: impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>) -> io::Result<Vec<Vec<u8>>> {
    let buffer = grow(&mut list)?;
    Ok(buffer.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// Most files have no attribute at all, so the first try is small.
fn grow(read: &mut impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>) -> io::Result<Vec<u8>> {
    for size in [256, BYTES_MAX] {
        let mut buffer = Vec::with_capacity(size);
        match read(&mut buffer) {
            Ok(_) => return Ok(buffer),
            Err(Errno::RANGE) => {}
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// Value of one attribute of `path`.
pub fn value(path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
    let name = OsStr::from_bytes(name);
    grow(&mut |buffer| rustix::fs::lgetxattr(path, name, rustix::buffer::spare_capacity(buffer)))
}

/// Sets one attribute of an open file.
pub fn set(file: BorrowedFd<'_>, name: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(file, OsStr::from_bytes(name), value, XattrFlags::empty())?)
}

/// Removes one attribute of an open file.
pub fn remove(file: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::fremovexattr(file, OsStr::from_bytes(name))?)
}
