//! Owns the operations that move bytes or events for a while: file content in both directions, standard input of a
//! running process, and watches.

use super::GuestError;
use super::wire::{FrameReader, FrameWriter, parse_reply, within_deadline};
use bytes::Bytes;
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::{Change, Entry, Reply};

/// The content of a file.
#[derive(Debug)]
pub struct FileReader {
    /// The file.
    pub entry: Entry,
    /// Bytes that will come, unless the file shrinks meanwhile.
    pub length: u64,
    pub(super) reader: FrameReader,
    pub(super) _writer: FrameWriter,
    pub(super) received: u64,
    pub(super) ended: bool,
}

impl FileReader {
    /// The next bytes; `None` at the end. Never gives more than `length` bytes in all. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Bytes>, GuestError> {
        if self.ended {
            return Ok(None);
        }
        match self.reader.next().await? {
            Some((Channel::File, bytes)) if bytes.is_empty() => {
                self.ended = true;
                Ok(None)
            }
            Some((Channel::File, bytes)) => {
                self.received += bytes.len() as u64;
                if self.received > self.length {
                    return Err(GuestError::Unexpected { expected: "the announced length" });
                }
                Ok(Some(bytes))
            }
            Some((Channel::Control, payload)) => {
                parse_reply(&payload)?;
                Err(GuestError::Unexpected { expected: "file content" })
            }
            Some(_) => Err(GuestError::Unexpected { expected: "file content" }),
            None => Err(GuestError::Closed),
        }
    }
}

/// A file being written. Dropping it before [`FileWriter::finish`] breaks the write off.
#[derive(Debug)]
pub struct FileWriter {
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
    pub(super) sent: u64,
}

impl FileWriter {
    /// Gives the next bytes. When the agent breaks off (no space, say), its reason is the error.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), GuestError> {
        if bytes.is_empty() {
            return Ok(());
        }
        send(&mut self.reader, &self.writer, Channel::File, bytes).await?;
        self.sent += bytes.len() as u64;
        Ok(())
    }

    /// Bytes given so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Ends the content and waits until the file is complete.
    pub async fn finish(mut self) -> Result<Entry, GuestError> {
        let end = self.writer.data(Channel::File, &[]).await;
        match within_deadline(self.reader.reply()).await {
            Ok(Reply::Entry { entry }) => Ok(entry),
            Ok(_) => Err(GuestError::Unexpected { expected: "the entry of the file" }),
            Err(failed @ GuestError::Failed(_)) => Err(failed),
            Err(other) => Err(end.err().unwrap_or(other)),
        }
    }
}

/// Standard input for a process that somebody else started.
#[derive(Debug)]
pub struct InputWriter {
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
}

impl InputWriter {
    /// Gives bytes; they may be in the pipe only after [`InputWriter::finish`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), GuestError> {
        if bytes.is_empty() {
            return Ok(());
        }
        send(&mut self.reader, &self.writer, Channel::Stdin, bytes).await
    }

    /// Waits until all bytes are in the pipe or terminal. It has no deadline: a process may leave its input unread.
    pub async fn finish(mut self) -> Result<(), GuestError> {
        let end = self.writer.data(Channel::Stdin, &[]).await;
        match self.reader.reply().await {
            Ok(Reply::Ok) => Ok(()),
            Ok(_) => Err(GuestError::Unexpected { expected: "ok" }),
            Err(failed @ GuestError::Failed(_)) => Err(failed),
            Err(other) => Err(end.err().unwrap_or(other)),
        }
    }
}

/// Something changed below a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchEvent {
    /// Path relative to the watched directory.
    pub name: String,
    /// What happened.
    pub change: Change,
}

/// An active watch; dropping it ends it.
#[derive(Debug)]
pub struct Watcher {
    pub(super) reader: FrameReader,
    pub(super) _writer: FrameWriter,
}

impl Watcher {
    /// The next event; `None` when the agent ended the watch. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>, GuestError> {
        match self.reader.next().await? {
            Some((Channel::Control, payload)) => match parse_reply(&payload)? {
                Reply::Event { name, change } => Ok(Some(WatchEvent { name, change })),
                _ => Err(GuestError::Unexpected { expected: "an event" }),
            },
            Some(_) => Err(GuestError::Unexpected { expected: "an event" }),
            None => Ok(None),
        }
    }
}

/// Sends `bytes` unless the agent breaks off; then its reason is the error, also when the write noticed it first.
async fn send(
    reader: &mut FrameReader,
    writer: &FrameWriter,
    channel: Channel,
    bytes: &[u8],
) -> Result<(), GuestError> {
    let refused = tokio::select! {
        biased;
        early = reader.reply() => early,
        sent = writer.data(channel, bytes) => match sent {
            Ok(()) => return Ok(()),
            Err(error) => match within_deadline(reader.reply()).await {
                Err(failed @ GuestError::Failed(_)) => return Err(failed),
                _ => return Err(error),
            },
        },
    };
    refused?;
    Err(GuestError::Unexpected { expected: "silence until the end of the bytes" })
}
