//! Owns blocking AF_UNIX SOCK_SEQPACKET sockets, unix(7), whose messages carry descriptors (SCM_RIGHTS), and listening
//! stream sockets.

use crate::call::failed;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Most descriptors in one message.
pub const DESCRIPTORS_MAX: usize = 32;

/// One message.
#[derive(Debug)]
pub struct Message {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Two connected sockets, close-on-exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(failed("socketpair"))
}

/// Two connected stream sockets, close-on-exec.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(failed("socketpair"))
}

/// A stream socket that listens at `path`, which must be free; close-on-exec. The path must be short (108 bytes).
pub fn listen(path: &Path, backlog: i32) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path).map_err(failed("sockaddr_un"))?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(failed("socket"))?;
    rustix::net::bind(&socket, &address).map_err(failed("bind"))?;
    rustix::net::listen(&socket, backlog).map_err(failed("listen"))?;
    Ok(socket)
}

/// Makes calls on a socket fail with `WouldBlock` instead of waiting.
pub fn set_nonblocking(socket: impl AsFd) -> io::Result<()> {
    rustix::io::ioctl_fionbio(socket, true).map_err(failed("ioctl(FIONBIO)"))
}

/// Sends one message; waits for room unless the socket is non-blocking. A closed peer is an error, not a signal.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors in one message"));
    }
    loop {
        let slices = [IoSlice::new(bytes)];
        match rustix::net::sendmsg(&socket, &slices, &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("sendmsg")(errno)),
        }
    }
}

/// Receives one message of at most `bytes_max` bytes; `None` when the peer has closed. A longer one, or one with more
/// descriptors than fit, is an error.
pub fn receive(socket: impl AsFd, bytes_max: usize) -> io::Result<Option<Message>> {
    let mut bytes = vec![0; bytes_max];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(&socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("recvmsg")(errno)),
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message is too long"));
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    bytes.truncate(received.bytes);
    Ok(Some(Message { bytes, descriptors }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_message_arrives_whole_and_with_its_descriptors() {
        let (a, b) = pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        send(&a, b"take this", &[writer.as_fd()]).unwrap();
        drop(writer);
        let mut message = receive(&b, 64).unwrap().unwrap();
        assert_eq!(message.bytes, b"take this");
        std::fs::File::from(message.descriptors.remove(0)).write_all(b"x").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
    }

    #[test]
    fn a_message_that_is_too_long_is_refused_and_the_end_is_told() {
        let (a, b) = pair().unwrap();
        send(&a, &[1; 65], &[]).unwrap();
        assert_eq!(receive(&b, 64).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(a);
        assert!(receive(&b, 64).unwrap().is_none());
    }
}
