//! Owns every way into a sandbox: each operation is permitted, recorded as intent, done, and recorded as outcome, here
//! and nowhere else. Surfaces translate; they cannot reach an agent around this.

use super::{App, AppError, Caller, LiveSandbox};
use crate::guest::{FileReader, FileWriter, InputWriter, Output, SessionInput, Watcher};
use cofferdam_proto::guest::{Entry, Exec, Path, Process, PtySize, Selector, SignalScope, Stats};
use cofferdam_proto::node::Usage;
use std::collections::BTreeMap;
use tokio::net::UnixStream;

/// One caller at one sandbox. Get it from [`App::agent`] (a key) or [`App::agent_for`] (the gateway).
#[derive(Clone)]
pub struct Agent {
    pub(super) app: App,
    pub(super) sandbox: LiveSandbox,
    pub(super) caller: Caller,
}

/// A command that runs or is attached to. Dropping it disconnects; its end is recorded all the same.
#[derive(Debug)]
pub struct Command {
    pid: u32,
    input: SessionInput,
}

impl Command {
    /// Its pid in the sandbox.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The way in; clones are for tasks of their own.
    pub fn input(&self) -> SessionInput {
        self.input.clone()
    }

    /// What comes next; `None` after the end. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Output>, AppError> {
        Err(unfinished())
    }
}

/// A file being written; the record gets its outcome from [`Upload::finish`], or from dropping it.
#[derive(Debug)]
pub struct Upload {
    writer: FileWriter,
}

impl Upload {
    /// Gives the next bytes.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), AppError> {
        Ok(self.writer.write(bytes).await?)
    }

    /// Ends the content and waits until the file is complete.
    pub async fn finish(self) -> Result<Entry, AppError> {
        Ok(self.writer.finish().await?)
    }
}

fn unfinished() -> AppError {
    AppError::NodeUnavailable(crate::cluster::LinkError::Lost)
}

#[expect(unused_variables, clippy::unused_async, reason = "the shape comes before the content")]
impl Agent {
    /// The sandbox.
    pub fn sandbox(&self) -> &LiveSandbox {
        &self.sandbox
    }

    /// Starts a process.
    pub async fn exec(&self, exec: Exec) -> Result<Command, AppError> {
        Err(unfinished())
    }

    /// Joins a process that runs.
    pub async fn attach(&self, process: Selector) -> Result<Command, AppError> {
        Err(unfinished())
    }

    /// The processes that clients started.
    pub async fn processes(&self) -> Result<Vec<Process>, AppError> {
        Err(unfinished())
    }

    /// Sends a signal.
    pub async fn signal(&self, process: Selector, signal: u8, scope: SignalScope) -> Result<(), AppError> {
        Err(unfinished())
    }

    /// Opens the input of a process.
    pub async fn input(&self, process: Selector, pty: bool) -> Result<InputWriter, AppError> {
        Err(unfinished())
    }

    /// Closes the standard input of a process.
    pub async fn close_stdin(&self, process: Selector) -> Result<(), AppError> {
        Err(unfinished())
    }

    /// Gives a terminal a new size.
    pub async fn resize(&self, process: Selector, size: PtySize) -> Result<(), AppError> {
        Err(unfinished())
    }

    /// Looks at a path.
    pub async fn stat(&self, path: Path) -> Result<Entry, AppError> {
        Err(unfinished())
    }

    /// Lists a directory.
    pub async fn list_dir(&self, path: Path, depth: u32) -> Result<Vec<Entry>, AppError> {
        Err(unfinished())
    }

    /// Makes a directory.
    pub async fn make_dir(&self, path: Path) -> Result<Entry, AppError> {
        Err(unfinished())
    }

    /// Moves a path.
    pub async fn rename(&self, source: Path, destination: String) -> Result<Entry, AppError> {
        Err(unfinished())
    }

    /// Removes a path.
    pub async fn remove(&self, path: Path) -> Result<(), AppError> {
        Err(unfinished())
    }

    /// Concatenates files.
    pub async fn compose(&self, sources: Vec<String>, destination: Path) -> Result<Entry, AppError> {
        Err(unfinished())
    }

    /// Opens a file for reading.
    pub async fn read(&self, path: Path, offset: u64, length: Option<u64>) -> Result<FileReader, AppError> {
        Err(unfinished())
    }

    /// Opens a file for writing.
    pub async fn write(
        &self,
        path: Path,
        metadata: BTreeMap<String, String>,
        mode: u32,
    ) -> Result<Upload, AppError> {
        Err(unfinished())
    }

    /// Watches a directory.
    pub async fn watch(&self, path: Path, recursive: bool) -> Result<Watcher, AppError> {
        Err(unfinished())
    }

    /// Connects to a TCP port of the sandbox's loopback; `Reason::PortClosed` when nothing listens.
    pub async fn dial(&self, port: u16) -> Result<UnixStream, AppError> {
        Err(unfinished())
    }

    /// What the sandbox uses, as its agent sees it.
    pub async fn stats(&self) -> Result<Stats, AppError> {
        Err(unfinished())
    }

    /// What the sandbox uses, as the node measures it.
    pub async fn usage(&self) -> Result<Usage, AppError> {
        Err(unfinished())
    }
}
