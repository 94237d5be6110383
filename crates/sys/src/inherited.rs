//! Owns taking over descriptors that a process was started with, by number.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Takes the inherited descriptor `fd` (above 2), close-on-exec from now on. Each can be taken once; a closed one is an
/// error (EBADF). For the start of `main` only, before anything else could have been opened under that number.
pub fn take(fd: RawFd) -> io::Result<OwnedFd> {
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if fd <= 2 || taken.contains(&fd) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is used for this one call, which fails when it is closed.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    taken.push(fd);
    // SAFETY: it is open, and the list makes sure that it is given away once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// True when `fd` is a stream socket.
pub fn is_stream_socket(fd: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_type(fd).is_ok_and(|kind| kind == rustix::net::SocketType::STREAM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    #[test]
    fn a_descriptor_is_taken_once() {
        let raw = std::fs::File::open("/dev/null").unwrap().into_raw_fd();
        let owned = take(raw).unwrap();
        assert!(take(raw).is_err());
        assert!(!is_stream_socket(std::os::fd::AsFd::as_fd(&owned)));
    }

    #[test]
    fn standard_streams_and_closed_numbers_are_refused() {
        assert!(take(0).is_err());
        assert!(take(9_999).is_err());
    }
}
