//! Owns reading and writing frames on a stream to an agent. Reading is cancel-safe; a frame is never larger than its
//! channel allows, and its length is checked before its bytes are waited for.

use super::GuestError;
use bytes::{Buf, Bytes, BytesMut};
use cofferdam_core::limits::GUEST_REPLY_MS_MAX;
use cofferdam_proto::frame::{self, Channel, HEADER_BYTES};
use cofferdam_proto::guest::{self, Call, Failure, Reply, Request};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Mutex;

/// Longest text of a failure that is passed on, in characters.
const FAILURE_CHARS_MAX: usize = 1024;

/// The reading side.
#[derive(Debug)]
pub(super) struct FrameReader {
    io: OwnedReadHalf,
    buffer: BytesMut,
}

/// The writing side. Dropping the last clone closes that direction.
#[derive(Debug, Clone)]
pub(super) struct FrameWriter(Arc<Mutex<OwnedWriteHalf>>);

/// Sends `request` and reads the one first answer.
pub(super) async fn open(
    stream: UnixStream,
    request: Request,
) -> Result<(FrameReader, FrameWriter, Reply), GuestError> {
    let (read, write) = stream.into_split();
    let mut reader = FrameReader { io: read, buffer: BytesMut::with_capacity(8 * 1024) };
    let writer = FrameWriter(Arc::new(Mutex::new(write)));
    let reply = within_deadline(async {
        writer.control(&Call { version: guest::VERSION, request }).await?;
        reader.reply().await
    })
    .await?;
    Ok((reader, writer, reply))
}

/// Sends `request`, whose answer comes only after more frames from us.
pub(super) async fn start(
    stream: UnixStream,
    request: Request,
) -> Result<(FrameReader, FrameWriter), GuestError> {
    let (read, write) = stream.into_split();
    let reader = FrameReader { io: read, buffer: BytesMut::new() };
    let writer = FrameWriter(Arc::new(Mutex::new(write)));
    within_deadline(writer.control(&Call { version: guest::VERSION, request })).await?;
    Ok((reader, writer))
}

/// Sends `request` and reads its one answer and not a byte more, so that the stream can be used raw afterwards.
pub(super) async fn open_raw(
    mut stream: UnixStream,
    request: Request,
) -> Result<(UnixStream, Reply), GuestError> {
    within_deadline(async {
        let payload = guest::encode(&Call { version: guest::VERSION, request });
        let message = frame::encode(Channel::Control, &payload).map_err(GuestError::Frame)?;
        stream.write_all(&message).await.map_err(GuestError::Io)?;
        let mut head = [0; HEADER_BYTES];
        stream.read_exact(&mut head).await.map_err(GuestError::Io)?;
        let (Channel::Control, length) = frame::parse_header(head).map_err(GuestError::Frame)? else {
            return Err(GuestError::Unexpected { expected: "a message" });
        };
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.map_err(GuestError::Io)?;
        Ok((stream, parse_reply(&payload)?))
    })
    .await
}

/// Gives `work` the time an agent has for an answer.
pub(super) async fn within_deadline<T>(
    work: impl Future<Output = Result<T, GuestError>>,
) -> Result<T, GuestError> {
    let deadline = Duration::from_millis(GUEST_REPLY_MS_MAX);
    tokio::time::timeout(deadline, work).await.map_err(|_| GuestError::Timeout)?
}

impl FrameReader {
    /// The next frame; `None` when the agent closed the connection between two frames.
    pub(super) async fn next(&mut self) -> Result<Option<(Channel, Bytes)>, GuestError> {
        loop {
            if let Some(frame) = self.take_frame()? {
                return Ok(Some(frame));
            }
            let read = self.io.read_buf(&mut self.buffer).await.map_err(GuestError::Io)?;
            if read == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(GuestError::Closed) };
            }
        }
    }

    fn take_frame(&mut self) -> Result<Option<(Channel, Bytes)>, GuestError> {
        let Some(head) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let (channel, length) = frame::parse_header(*head).map_err(GuestError::Frame)?;
        if self.buffer.len() < HEADER_BYTES + length {
            self.buffer.reserve(HEADER_BYTES + length - self.buffer.len());
            return Ok(None);
        }
        self.buffer.advance(HEADER_BYTES);
        Ok(Some((channel, self.buffer.split_to(length).freeze())))
    }

    /// The next frame, which must be a message; a failure becomes an error.
    pub(super) async fn reply(&mut self) -> Result<Reply, GuestError> {
        match self.next().await? {
            Some((Channel::Control, payload)) => parse_reply(&payload),
            Some(_) => Err(GuestError::Unexpected { expected: "a message" }),
            None => Err(GuestError::Closed),
        }
    }
}

/// Reads a message out of a payload; a failure becomes an error.
pub(super) fn parse_reply(payload: &[u8]) -> Result<Reply, GuestError> {
    match guest::decode::<Reply>("reply", payload).map_err(GuestError::Malformed)? {
        Reply::Error(failure) => Err(GuestError::Failed(bounded(failure))),
        reply => Ok(reply),
    }
}

fn bounded(failure: Failure) -> Failure {
    let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let message = failure.message.chars().take(FAILURE_CHARS_MAX).map(printable).collect();
    Failure { message, ..failure }
}

impl FrameWriter {
    /// Sends a message.
    pub(super) async fn control<T: serde::Serialize>(&self, message: &T) -> Result<(), GuestError> {
        let payload = guest::encode(message);
        if payload.len() > Channel::Control.payload_max() {
            return Err(GuestError::TooLarge { bytes: payload.len() });
        }
        self.frame(Channel::Control, &payload).await
    }

    /// Sends bytes, in as many frames as they need; no bytes are one empty frame.
    pub(super) async fn data(&self, channel: Channel, bytes: &[u8]) -> Result<(), GuestError> {
        if bytes.is_empty() {
            return self.frame(channel, bytes).await;
        }
        for chunk in bytes.chunks(channel.payload_max()) {
            self.frame(channel, chunk).await?;
        }
        Ok(())
    }

    async fn frame(&self, channel: Channel, payload: &[u8]) -> Result<(), GuestError> {
        let header = frame::header(channel, payload.len()).map_err(GuestError::Frame)?;
        let mut both = Buf::chain(&header[..], payload);
        let mut io = self.0.lock().await;
        io.write_all_buf(&mut both).await.map_err(GuestError::Io)
    }
}
