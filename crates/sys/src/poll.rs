//! Owns waiting for descriptors: poll(2).

use rustix::event::Timespec;
pub use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Waits until one of `fds` is ready or `deadline` has passed; gives the number of ready ones.
pub fn wait(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    loop {
        let left = deadline.map(|deadline| timespec(deadline.saturating_duration_since(Instant::now())));
        match rustix::event::poll(fds, left.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

fn timespec(span: Duration) -> Timespec {
    let tv_sec = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: span.subsec_nanos().into() }
}

/// Waits until the other side of the socket `fd` is closed, or ours is shut down.
pub fn hang_up(fd: BorrowedFd<'_>) -> io::Result<()> {
    wait(&mut [PollFd::from_borrowed_fd(fd, PollFlags::empty())], None).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_half_closed_socket_is_not_hung_up_and_a_closed_one_is() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let mut fds = [PollFd::from_borrowed_fd(ours.as_fd(), PollFlags::empty())];
        assert_eq!(wait(&mut fds, Some(Instant::now())).unwrap(), 0);
        drop(theirs);
        hang_up(ours.as_fd()).unwrap();
    }
}
