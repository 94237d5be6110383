//! Owns one connection to a caller outside: frames in, frames out. Every read is bounded before it is waited for; a
//! caller that takes nothing for a minute is cut off.

use cofferdam_proto::frame::{self, Channel, HEADER_BYTES};
use cofferdam_proto::guest::{self, Failure, Reply};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a caller may take nothing while we have something for it.
const STALLED_MAX: Duration = Duration::from_secs(60);
/// How long a caller may take to say what it wants.
const CALL_MAX: Duration = Duration::from_secs(30);
/// Longest message after the first one.
const INPUT_BYTES_MAX: usize = 4096;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection(UnixStream);

/// What came from the caller.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) channel: Channel,
    pub(crate) payload: Vec<u8>,
}

/// A frame with room for its header in front, so that it goes out in one piece.
#[derive(Debug)]
pub(crate) struct Outgoing(Vec<u8>);

impl Outgoing {
    /// An empty one that can take `capacity` bytes without growing.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + capacity);
        bytes.extend_from_slice(&[0; HEADER_BYTES]);
        Self(bytes)
    }

    /// Appends what one read of `fd` gives, within the capacity.
    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        cofferdam_sys::pipe::read_spare(fd, &mut self.0)
    }

    /// Appends what one read of `source` gives, at most `limit` bytes and within the capacity.
    pub(crate) fn fill_from(&mut self, source: &mut dyn Read, limit: u64) -> io::Result<usize> {
        let start = self.0.len();
        let room = (self.0.capacity() - start).min(usize::try_from(limit).unwrap_or(usize::MAX));
        self.0.resize(start + room, 0);
        let taken = loop {
            match source.read(&mut self.0[start..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.0.truncate(start + *taken.as_ref().unwrap_or(&0));
        taken
    }

    /// Forgets the payload.
    pub(crate) fn clear(&mut self) {
        self.0.truncate(HEADER_BYTES);
    }

    /// Bytes of payload.
    pub(crate) fn len(&self) -> usize {
        self.0.len() - HEADER_BYTES
    }
}

impl Connection {
    /// Takes over an accepted stream.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(STALLED_MAX))?;
        stream.set_read_timeout(Some(CALL_MAX))?;
        Ok(Self(stream))
    }

    /// From here on the caller may be silent for as long as it likes.
    pub(crate) fn wait_for_ever(&self) -> io::Result<()> {
        self.0.set_read_timeout(None)
    }

    /// Reads the header of the first frame: the length of the message that follows.
    pub(crate) fn read_call_length(&self) -> io::Result<Option<usize>> {
        match self.read_header()? {
            None => Ok(None),
            Some((Channel::Control, length)) => Ok(Some(length)),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Reads `length` bytes.
    pub(crate) fn read_payload(&self, length: usize) -> io::Result<Vec<u8>> {
        let mut payload = vec![0; length];
        (&self.0).read_exact(&mut payload)?;
        Ok(payload)
    }

    /// The next frame after the first; `None` when the caller has nothing more to say.
    pub(crate) fn read_frame(&self) -> io::Result<Option<Frame>> {
        let Some((channel, length)) = self.read_header()? else { return Ok(None) };
        if channel == Channel::Control && length > INPUT_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Some(Frame { channel, payload: self.read_payload(length)? }))
    }

    fn read_header(&self) -> io::Result<Option<(Channel, usize)>> {
        let mut header = [0; HEADER_BYTES];
        let first = loop {
            match (&self.0).read(&mut header) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if first == 0 {
            return Ok(None);
        }
        (&self.0).read_exact(&mut header[first..])?;
        frame::parse_header(header)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Sends a frame.
    pub(crate) fn send(&self, channel: Channel, frame: &mut Outgoing) -> io::Result<()> {
        let header = frame::header(channel, frame.len()).map_err(io::Error::other)?;
        frame.0[..HEADER_BYTES].copy_from_slice(&header);
        (&self.0).write_all(&frame.0)
    }

    /// Sends an empty frame, which ends a stream of frames.
    pub(crate) fn send_end(&self, channel: Channel) -> io::Result<()> {
        self.send(channel, &mut Outgoing::with_capacity(0))
    }

    /// Sends a message.
    pub(crate) fn reply(&self, reply: &Reply) -> io::Result<()> {
        let mut payload = guest::encode(reply);
        if payload.len() > Channel::Control.payload_max() {
            let failure = Failure {
                kind: cofferdam_core::ErrorKind::ResourceExhausted,
                message: "the answer is too large".to_owned(),
                reason: guest::Reason::None,
            };
            payload = guest::encode(&Reply::Error(failure));
        }
        let bytes = frame::encode(Channel::Control, &payload).map_err(io::Error::other)?;
        (&self.0).write_all(&bytes)
    }

    /// Sends a message, if the caller still listens.
    pub(crate) fn try_reply(&self, reply: &Reply) {
        self.reply(reply).ok();
    }

    /// Ends the connection in both directions; what was sent still arrives.
    pub(crate) fn close(&self) {
        // It may be closed by the other side already.
        self.0.shutdown(Shutdown::Both).ok();
    }

    /// Waits until the caller has closed its end altogether, or [`Connection::close`] was called.
    pub(crate) fn wait_for_hang_up(&self) {
        // Without a way to wait, it counts as gone.
        cofferdam_sys::poll::hang_up(self.0.as_fd()).ok();
    }

    /// The raw stream, for bytes without frames.
    pub(crate) fn stream(&self) -> &UnixStream {
        &self.0
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Connection::new(ours).unwrap(), theirs)
    }

    #[test]
    fn frames_are_read_one_by_one() {
        let (ours, mut theirs) = pair();
        theirs.write_all(&frame::encode(Channel::Stdin, b"abc").unwrap()).unwrap();
        theirs.write_all(&frame::encode(Channel::Stdin, b"").unwrap()).unwrap();
        drop(theirs);
        let frame = |payload: &[u8]| Some(Frame { channel: Channel::Stdin, payload: payload.to_vec() });
        assert_eq!(ours.read_frame().unwrap(), frame(b"abc"));
        assert_eq!(ours.read_frame().unwrap(), frame(b""));
        assert_eq!(ours.read_frame().unwrap(), None);
    }

    #[test]
    fn a_cut_frame_and_a_large_message_are_errors() {
        for bytes in [&[0, 0, 0, 9, 1, 7][..], &[0, 0][..], &[0, 8, 0, 0, 0][..], &[0, 0, 0, 0, 77][..]] {
            let (ours, mut theirs) = pair();
            theirs.write_all(bytes).unwrap();
            drop(theirs);
            assert!(ours.read_frame().is_err(), "{bytes:?}");
        }
    }
}
