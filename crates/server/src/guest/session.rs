//! Owns a running command as a client sees it: its output, its end, and the way in.

use super::GuestError;
use super::wire::{FrameReader, FrameWriter, parse_reply};
use bytes::Bytes;
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::{Exit, Input, PtySize, Reply, SignalScope};

/// What a command gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Bytes of its standard output.
    Stdout(Bytes),
    /// Bytes of its standard error.
    Stderr(Bytes),
    /// Bytes of its terminal.
    Pty(Bytes),
    /// It ended, and all of its output was given.
    Exited(Exit),
}

/// A command that runs.
#[derive(Debug)]
pub struct Session {
    /// Its pid in the sandbox.
    pub pid: u32,
    /// What it gives.
    pub output: SessionOutput,
    /// The way in.
    pub input: SessionInput,
}

/// What a command gives. It holds the connection: dropping it is a disconnect.
#[derive(Debug)]
pub struct SessionOutput {
    reader: FrameReader,
    _writer: FrameWriter,
    ended: bool,
}

/// The way in to a command. Clones go to the same command; none of them keeps it connected.
#[derive(Debug, Clone)]
pub struct SessionInput(FrameWriter);

impl Session {
    pub(super) fn new(pid: u32, reader: FrameReader, writer: FrameWriter) -> Self {
        let input = SessionInput(writer.clone());
        Self { pid, output: SessionOutput { reader, _writer: writer, ended: false }, input }
    }
}

impl SessionOutput {
    /// What comes next; `None` after the end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Output>, GuestError> {
        if self.ended {
            return Ok(None);
        }
        let output = match self.reader.next().await? {
            None => return Err(GuestError::Closed),
            Some((Channel::Stdout, bytes)) => Output::Stdout(bytes),
            Some((Channel::Stderr, bytes)) => Output::Stderr(bytes),
            Some((Channel::Pty, bytes)) => Output::Pty(bytes),
            Some((Channel::Control, payload)) => match parse_reply(&payload)? {
                Reply::Exited(exit) => Output::Exited(exit),
                _ => return Err(GuestError::Unexpected { expected: "the end of the command" }),
            },
            Some((Channel::Stdin | Channel::File, _)) => {
                return Err(GuestError::Unexpected { expected: "output" });
            }
        };
        self.ended = matches!(output, Output::Exited(_));
        Ok(Some(output))
    }
}

impl SessionInput {
    /// Gives bytes to the standard input or the terminal.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), GuestError> {
        if bytes.is_empty() { Ok(()) } else { self.0.data(Channel::Stdin, bytes).await }
    }

    /// Closes the standard input.
    pub async fn close(&self) -> Result<(), GuestError> {
        self.0.data(Channel::Stdin, &[]).await
    }

    /// Gives the terminal a new size.
    pub async fn resize(&self, size: PtySize) -> Result<(), GuestError> {
        self.0.control(&Input::Resize { size }).await
    }

    /// Sends a signal.
    pub async fn signal(&self, signal: u8, scope: SignalScope) -> Result<(), GuestError> {
        self.0.control(&Input::Signal { signal, scope }).await
    }
}
