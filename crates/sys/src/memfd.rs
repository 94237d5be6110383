//! Owns programs in memory: memfd_create(2) with seals.

use crate::call::failed;
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// Makes a program that can be executed by everybody and read by nobody but root of the host. The kernel therefore lets no
/// process of a sandbox look into one that executes it, not even with every capability of its own namespace.
pub fn sealed_program(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match rustix::fs::memfd_create(name, flags | MemfdFlags::EXEC) {
        // Kernels before 6.3 do not know the flag; there every memory file can be executed.
        Err(rustix::io::Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        other => other,
    };
    let mut file = File::from(fd.map_err(failed("memfd_create"))?);
    file.write_all(bytes)?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o111)).map_err(failed("fchmod"))?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals).map_err(failed("fcntl(F_ADD_SEALS)"))?;
    Ok(file.into())
}
