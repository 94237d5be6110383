//! Owns block devices made of files: loop(4).

use crate::call::last_failed;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const GET_FREE: u64 = 0x4C82;
const CONFIGURE: u64 = 0x4C0A;
const GET_STATUS: u64 = 0x4C05;
const AUTOCLEAR: u32 = 4;
const DIRECT_IO: u32 = 16;
const TRIES: u32 = 16;

#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const EMPTY: Info = Info {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// A loop device. It goes away by itself when neither this nor a mount of it is left.
#[derive(Debug)]
pub struct LoopDevice {
    /// Keeps it; also its block device.
    pub file: File,
    /// Its path.
    pub path: PathBuf,
}

fn open(number: u32) -> io::Result<LoopDevice> {
    let path = PathBuf::from(format!("/dev/loop{number}"));
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    Ok(LoopDevice { file, path })
}

/// The device that a file is attached to already.
pub fn find(backing: &File) -> io::Result<Option<LoopDevice>> {
    let wanted = backing.metadata()?;
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|n| n.strip_prefix("loop")).and_then(|n| n.parse().ok())
        else {
            continue;
        };
        if !entry.path().join("loop").exists() {
            continue;
        }
        let device = open(number)?;
        let mut info = EMPTY;
        // SAFETY: LOOP_GET_STATUS64 writes one `Info`, which is borrowed exclusively during the call.
        let result =
            unsafe { libc::ioctl(device.file.as_raw_fd(), GET_STATUS as libc::Ioctl, &raw mut info) };
        if result == 0 && info.device == wanted.dev() && info.inode == wanted.ino() {
            return Ok(Some(device));
        }
    }
    Ok(None)
}

/// The number of a device that nothing is attached to.
pub fn free_number() -> io::Result<u32> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    // SAFETY: takes no argument; returns a number.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE as libc::Ioctl) };
    u32::try_from(number).map_err(|_| last_failed("ioctl(LOOP_CTL_GET_FREE)"))
}

fn configure(device: &LoopDevice, backing: &File, flags: u32) -> io::Result<()> {
    let fd = u32::try_from(backing.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let config = Config { fd, block_size: 0, info: Info { flags, ..EMPTY }, reserved: [0; 8] };
    // SAFETY: LOOP_CONFIGURE reads one `Config`, which outlives the call.
    let result = unsafe { libc::ioctl(device.file.as_raw_fd(), CONFIGURE as libc::Ioctl, &raw const config) };
    if result == 0 { Ok(()) } else { Err(last_failed("ioctl(LOOP_CONFIGURE)")) }
}

/// Attaches a file to a free device, with direct I/O where the file system of the file can do that.
pub fn attach(backing: &File) -> io::Result<LoopDevice> {
    for _ in 0..TRIES {
        let device = open(free_number()?)?;
        let result = match configure(&device, backing, AUTOCLEAR | DIRECT_IO) {
            Err(error) if crate::errno_of(&error) == Some(libc::EINVAL) => {
                configure(&device, backing, AUTOCLEAR)
            }
            other => other,
        };
        match result {
            Ok(()) => return Ok(device),
            // Somebody else took the number between the two calls.
            Err(error) if crate::errno_of(&error) == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "no free loop device"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_header() {
        assert_eq!(size_of::<Info>(), 232);
        assert_eq!(size_of::<Config>(), 304);
    }
}
