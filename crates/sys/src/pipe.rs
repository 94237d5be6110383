//! Owns pipes, wake-up descriptors and plain reads and writes on descriptors: pipe2(2), eventfd(2), fcntl(2), read(2).

use rustix::event::EventfdFlags;
use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A pipe: the end to read from, the end to write to. Both are close-on-exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// Makes reads and writes on the open file behind `fd` fail with `WouldBlock` instead of waiting.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// Makes reads and writes on the open file behind `fd` wait.
pub fn set_blocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags - OFlags::NONBLOCK)?)
}

/// Appends what one read of at most the spare capacity of `buffer` gives; 0 is the end of the file.
pub fn read_spare(fd: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        match rustix::io::read(fd, rustix::buffer::spare_capacity(buffer)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Writes once.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::io::write(fd, bytes) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Wakes a thread that polls.
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// Makes one that nobody has rung.
    pub fn new() -> io::Result<Self> {
        Ok(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable until [`Wake::clear`].
    pub fn ring(&self) {
        // The only failure is a counter at its maximum, and then it is readable already.
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).ok();
    }

    /// Takes the rings so far.
    pub fn clear(&self) {
        // Nothing to take is fine.
        rustix::io::read(&self.0, &mut [0; 8]).ok();
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_never_exceeds_the_spare_capacity() {
        let (read, write_end) = pipe().unwrap();
        write(write_end.as_fd(), &[7; 100]).unwrap();
        let mut buffer = Vec::with_capacity(64);
        let taken = read_spare(read.as_fd(), &mut buffer).unwrap();
        assert_eq!((taken, buffer.len()), (buffer.capacity().min(100), taken));
    }

    #[test]
    fn an_empty_pipe_would_block_when_told_so() {
        let (read, _write) = pipe().unwrap();
        set_nonblocking(read.as_fd()).unwrap();
        let refused = read_spare(read.as_fd(), &mut Vec::with_capacity(1)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }
}
