//! Owns one function per operation of the agent: request out, the right kind of answer back.

use super::GuestError;
use super::session::Session;
use super::transfer::{FileReader, FileWriter, InputWriter, Watcher};
use super::wire::{open, open_raw, start, within_deadline};
use cofferdam_core::limits::LISTING_ENTRIES_MAX;
use cofferdam_proto::guest::{
    Entry, Exec, Path, Process, PtySize, Reply, Request, Selector, SignalScope, Stats,
};
use std::collections::BTreeMap;
use tokio::net::UnixStream;

fn unexpected<T>(expected: &'static str) -> Result<T, GuestError> {
    Err(GuestError::Unexpected { expected })
}

async fn done(stream: UnixStream, request: Request) -> Result<(), GuestError> {
    match open(stream, request).await?.2 {
        Reply::Ok => Ok(()),
        _ => unexpected("ok"),
    }
}

async fn entry(stream: UnixStream, request: Request) -> Result<Entry, GuestError> {
    match open(stream, request).await?.2 {
        Reply::Entry { entry } => Ok(entry),
        _ => unexpected("an entry"),
    }
}

async fn session(stream: UnixStream, request: Request) -> Result<Session, GuestError> {
    match open(stream, request).await? {
        (reader, writer, Reply::Started { pid }) => Ok(Session::new(pid, reader, writer)),
        _ => unexpected("the start of a command"),
    }
}

/// Asks whether the agent lives.
pub async fn ping(stream: UnixStream) -> Result<(), GuestError> {
    done(stream, Request::Ping).await
}

/// Starts a process.
pub async fn exec(stream: UnixStream, exec: Exec) -> Result<Session, GuestError> {
    session(stream, Request::Exec(exec)).await
}

/// Joins a process that runs.
pub async fn attach(stream: UnixStream, process: Selector) -> Result<Session, GuestError> {
    session(stream, Request::Attach { process }).await
}

/// The processes that clients started.
pub async fn list(stream: UnixStream) -> Result<Vec<Process>, GuestError> {
    match open(stream, Request::List).await?.2 {
        Reply::Processes { processes } => Ok(processes),
        _ => unexpected("processes"),
    }
}

/// Sends a signal.
pub async fn signal(
    stream: UnixStream,
    process: Selector,
    signal: u8,
    scope: SignalScope,
) -> Result<(), GuestError> {
    done(stream, Request::Signal { process, signal, scope }).await
}

/// Opens the input of a process. The agent answers at the end, so an error may come with a later call.
pub async fn input(stream: UnixStream, process: Selector, pty: bool) -> Result<InputWriter, GuestError> {
    let (reader, writer) = start(stream, Request::Input { process, pty }).await?;
    Ok(InputWriter { reader, writer })
}

/// Closes the standard input of a process.
pub async fn close_stdin(stream: UnixStream, process: Selector) -> Result<(), GuestError> {
    done(stream, Request::CloseStdin { process }).await
}

/// Gives a terminal a new size.
pub async fn resize(stream: UnixStream, process: Selector, size: PtySize) -> Result<(), GuestError> {
    done(stream, Request::Resize { process, size }).await
}

/// Looks at a path.
pub async fn stat(stream: UnixStream, path: Path) -> Result<Entry, GuestError> {
    entry(stream, Request::Stat { path }).await
}

/// Lists a directory.
pub async fn list_dir(stream: UnixStream, path: Path, depth: u32) -> Result<Vec<Entry>, GuestError> {
    let (mut reader, _writer, mut reply) = open(stream, Request::ListDir { path, depth }).await?;
    let mut all = Vec::new();
    loop {
        match reply {
            Reply::Entries { entries } if entries.is_empty() => return Ok(all),
            Reply::Entries { entries } if all.len() + entries.len() <= LISTING_ENTRIES_MAX => {
                all.extend(entries);
            }
            _ => return unexpected("a bounded number of entries"),
        }
        reply = within_deadline(reader.reply()).await?;
    }
}

/// Makes a directory.
pub async fn make_dir(stream: UnixStream, path: Path) -> Result<Entry, GuestError> {
    entry(stream, Request::MakeDir { path }).await
}

/// Moves a path.
pub async fn rename(stream: UnixStream, source: Path, destination: String) -> Result<Entry, GuestError> {
    entry(stream, Request::Move { source, destination }).await
}

/// Removes a path.
pub async fn remove(stream: UnixStream, path: Path) -> Result<(), GuestError> {
    done(stream, Request::Remove { path }).await
}

/// Concatenates files.
pub async fn compose(
    stream: UnixStream,
    sources: Vec<String>,
    destination: Path,
) -> Result<Entry, GuestError> {
    entry(stream, Request::Compose { sources, destination }).await
}

/// Opens a file for reading.
pub async fn read(
    stream: UnixStream,
    path: Path,
    offset: u64,
    length: Option<u64>,
) -> Result<FileReader, GuestError> {
    match open(stream, Request::Read { path, offset, length }).await? {
        (reader, writer, Reply::File { entry, length }) => {
            Ok(FileReader { entry, length, reader, _writer: writer, received: 0, ended: false })
        }
        _ => unexpected("a file"),
    }
}

/// Opens a file for writing.
pub async fn write(
    stream: UnixStream,
    path: Path,
    metadata: BTreeMap<String, String>,
    mode: u32,
) -> Result<FileWriter, GuestError> {
    match open(stream, Request::Write { path, metadata, mode }).await? {
        (reader, writer, Reply::Ok) => Ok(FileWriter { reader, writer, sent: 0 }),
        _ => unexpected("ok"),
    }
}

/// Watches a directory.
pub async fn watch(stream: UnixStream, path: Path, recursive: bool) -> Result<Watcher, GuestError> {
    match open(stream, Request::Watch { path, recursive }).await? {
        (reader, writer, Reply::Ok) => Ok(Watcher { reader, _writer: writer }),
        _ => unexpected("ok"),
    }
}

/// Connects to a port of the sandbox's loopback. The stream carries raw bytes afterwards.
pub async fn dial(stream: UnixStream, port: u16) -> Result<UnixStream, GuestError> {
    match open_raw(stream, Request::Dial { port }).await? {
        (stream, Reply::Ok) => Ok(stream),
        _ => unexpected("ok"),
    }
}

/// What the sandbox uses, as the agent sees it.
pub async fn stats(stream: UnixStream) -> Result<Stats, GuestError> {
    match open(stream, Request::Stats).await?.2 {
        Reply::Stats(stats) => Ok(stats),
        _ => unexpected("stats"),
    }
}
