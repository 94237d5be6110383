//! Owns passing descriptors over Unix sockets: unix(7), SCM_RIGHTS.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Most descriptors in one message.
pub const DESCRIPTORS_MAX: usize = 8;

/// Sends the beginning of `bytes` with `descriptors`; gives the number of bytes sent. A peer that is gone is an error,
/// not a signal.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Receives at most `buffer.len()` bytes and adds the descriptors that came with them, close-on-exec, to `descriptors`.
/// More descriptors than [`DESCRIPTORS_MAX`] are an error.
pub fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_with_their_bytes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (read, write) = crate::pipe::pipe().unwrap();
        assert_eq!(send(ours.as_fd(), b"abc", &[write.as_fd()]).unwrap(), 3);
        drop(write);
        let (mut buffer, mut descriptors) = ([0; 8], Vec::new());
        assert_eq!(receive(theirs.as_fd(), &mut buffer, &mut descriptors).unwrap(), 3);
        assert_eq!(crate::pipe::write(descriptors[0].as_fd(), b"x").unwrap(), 1);
        drop(descriptors);
        assert_eq!(io::read_to_string(std::fs::File::from(read)).unwrap(), "x");
    }

    #[test]
    fn a_closed_peer_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(send(ours.as_fd(), b"abc", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
