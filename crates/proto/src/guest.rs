//! Owns the protocol of the agent. One connection carries one operation:
//!
//! ```text
//!  caller ── Control(Request) ───────────────────────────▶ agent
//!  caller ◀─ Control(Reply::…) or Control(Reply::Error) ── agent      always exactly one first reply
//!  exec, attach: data frames both ways, Control(Input) towards the agent, Control(Reply::Exited) at the end
//!  read:         Reply::File, then File frames, then an empty File frame; a Reply::Error may cut it short
//!  write:        Reply::Ok (file is open), File frames from the caller, an empty one, then Reply::Entry
//!  list_dir:     Reply::Entries until one is empty; a Reply::Error may cut it short
//!  dial:         Reply::Ok, then the raw bytes of the TCP connection, no frames any more
//!  watch:        Reply::Ok once the watch is active, then Reply::Event until the caller closes
//! ```
//!
//! Messages are JSON, so that an agent inside an old snapshot and a newer server understand what they share. The host
//! treats every byte from the agent as hostile; the agent bounds every byte from the host.

use cofferdam_core::ErrorKind;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;

/// Version of this protocol, sent with every request.
pub const VERSION: u32 = 1;

/// What is asked of the agent: the first message on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// [`VERSION`] of the caller.
    pub version: u32,
    /// The operation.
    #[serde(flatten)]
    pub request: Request,
}

/// Whom to act as inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum User {
    /// The default user given by `Configure`.
    #[default]
    Default,
    /// A name of the sandbox's own /etc/passwd, or a decimal uid.
    Named(String),
}

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtySize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// A process that clients started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// By its pid in the sandbox.
    Pid(u32),
    /// By the tag it was started with.
    Tag(String),
}

/// How the standard streams of a process are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdio {
    /// Three pipes.
    Pipes,
    /// Pipes for output, /dev/null for input.
    NoInput,
    /// A new session with a controlling terminal.
    Pty(PtySize),
}

/// Process to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Program: an absolute path, or a name looked up in the `PATH` of the final environment.
    pub cmd: String,
    /// Arguments after the program's name.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables on top of those of the sandbox and the user.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory; `None` is the default one, relative is below the user's home.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Whom to run as.
    #[serde(default)]
    pub user: User,
    /// Standard streams.
    pub stdio: Stdio,
    /// Name for `Selector::Tag`.
    #[serde(default)]
    pub tag: Option<String>,
    /// After so many milliseconds the process and everything it started is killed.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Kill the process and everything it started when this connection ends; otherwise it goes on, detached.
    #[serde(default)]
    pub kill_on_disconnect: bool,
}

/// What a signal reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalScope {
    /// The process alone.
    Process,
    /// The process and everything that descends from it.
    Tree,
}

/// Identity and defaults of the sandbox; the node sends it once before the sandbox is handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configure {
    /// Sets the host name.
    pub hostname: String,
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// User when the caller names none.
    pub default_user: String,
    /// Working directory when the caller names none; the user's home if empty.
    pub default_workdir: String,
    /// Open files per process.
    pub open_files: u32,
    /// Small files to write, absolute path to content (owner root, mode 0644).
    #[serde(default)]
    pub files: BTreeMap<String, String>,
}

/// The operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Answers `Ok`.
    Ping,
    /// Answers `Ok`. Sent by the node only; a second one replaces the first.
    Configure(Configure),
    /// Answers `Started`, streams, ends with `Exited`.
    Exec(Exec),
    /// Answers `Started`, streams what comes from now on, ends with `Exited`.
    Attach {
        /// The process.
        process: Selector,
    },
    /// Answers `Processes`.
    List,
    /// Answers `Ok` after the signal was sent.
    Signal {
        /// The process.
        process: Selector,
        /// Its number, for example 15.
        signal: u8,
        /// What it reaches.
        scope: SignalScope,
    },
    /// Then `Stdin` frames; an empty one ends the request. Answers `Ok` when all bytes are in the pipe or terminal.
    Input {
        /// The process.
        process: Selector,
        /// True when the caller believes it to be a terminal; a mismatch is an error.
        pty: bool,
    },
    /// Answers `Ok`; the process reads end of file. Closing twice is fine; on a terminal it is an error.
    CloseStdin {
        /// The process.
        process: Selector,
    },
    /// Answers `Ok`.
    Resize {
        /// The process.
        process: Selector,
        /// New size.
        size: PtySize,
    },
    /// Answers `Entry`.
    Stat {
        /// Path, see [`Path`].
        path: Path,
    },
    /// Answers `Entries`, pre-order, names sorted within a directory: as many messages as they need, then an empty one.
    ListDir {
        /// Path, see [`Path`].
        path: Path,
        /// Levels; 1 is the directory itself.
        depth: u32,
    },
    /// Answers `Entry`. Makes missing parents; an existing directory is `AlreadyExists`.
    MakeDir {
        /// Path, see [`Path`].
        path: Path,
    },
    /// Answers `Entry` of the new place. Makes missing parents of the destination.
    Move {
        /// From where.
        source: Path,
        /// To where; `user` of the source counts.
        destination: String,
    },
    /// Answers `Ok`; removes recursively, and succeeds when nothing was there.
    Remove {
        /// Path, see [`Path`].
        path: Path,
    },
    /// Answers `File`, then its content.
    Read {
        /// Path, see [`Path`].
        path: Path,
        /// First byte.
        #[serde(default)]
        offset: u64,
        /// Number of bytes; `None` to the end.
        #[serde(default)]
        length: Option<u64>,
    },
    /// Answers `Ok`, takes the content, answers `Entry`.
    Write {
        /// Path, see [`Path`].
        path: Path,
        /// Attributes that replace all earlier ones of the namespace `user.e2b.`, without the prefix.
        #[serde(default)]
        metadata: BTreeMap<String, String>,
        /// Permission bits of a new file.
        mode: u32,
    },
    /// Concatenates files into a temporary one, renames it to `destination`, deletes the sources. Answers `Entry`.
    Compose {
        /// Sources in order.
        sources: Vec<String>,
        /// Target; its `user` counts for all.
        destination: Path,
    },
    /// Answers `Ok`, then `Event`s.
    Watch {
        /// Directory.
        path: Path,
        /// With everything below.
        recursive: bool,
    },
    /// Connects to a TCP port of the sandbox's loopback (IPv4, then IPv6). Answers `Ok`, then raw bytes.
    Dial {
        /// The port.
        port: u16,
    },
    /// Answers `Stats`.
    Stats,
}

/// A path inside the sandbox and whose it is: empty is the default working directory, `~` the home, relative is below
/// the home of `user`, absolute as given. What is created belongs to `user`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// As the client sent it.
    pub path: String,
    /// The owner of what is created, and whose home `~` is.
    #[serde(default)]
    pub user: User,
}

/// What follows an `Exec` or `Attach` on the same connection, besides `Stdin` frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "input", rename_all = "snake_case")]
pub enum Input {
    /// A new size of the terminal.
    Resize {
        /// New size.
        size: PtySize,
    },
    /// A signal to the process.
    Signal {
        /// Its number.
        signal: u8,
        /// What it reaches.
        scope: SignalScope,
    },
}

/// What the agent answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// Done, or ready for what follows.
    Ok,
    /// The process runs.
    Started {
        /// Its pid in the sandbox.
        pid: u32,
    },
    /// The process ended and all of its output was sent.
    Exited(Exit),
    /// Running processes that clients started.
    Processes {
        /// In the order of their start.
        processes: Vec<Process>,
    },
    /// A file system entry.
    Entry {
        /// The entry.
        entry: Entry,
    },
    /// A part of a directory; an empty one ends it.
    Entries {
        /// The entries.
        entries: Vec<Entry>,
    },
    /// A file is open and its content follows.
    File {
        /// Its entry.
        entry: Entry,
        /// Bytes that will follow (less when the file shrinks meanwhile).
        length: u64,
    },
    /// Something changed below a watched directory.
    Event {
        /// Path relative to the watched directory.
        name: String,
        /// What happened.
        change: Change,
    },
    /// What the sandbox uses, as the agent sees it.
    Stats(Stats),
    /// The operation failed; nothing follows.
    Error(Failure),
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is new.
    Create,
    /// Its content changed.
    Write,
    /// It is gone.
    Remove,
    /// It has another name now.
    Rename,
    /// Its mode, owner or attributes changed.
    Chmod,
}

/// Why an operation failed, in words the client may see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Its kind.
    pub kind: ErrorKind,
    /// What failed and why, without a stop at the end.
    pub message: String,
    /// Finer than `kind` where the surfaces need it.
    #[serde(default)]
    pub reason: Reason,
}

/// Finer distinctions among failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// `kind` says it all.
    #[default]
    None,
    /// No such user in the sandbox.
    UnknownUser,
    /// The working directory does not exist.
    UnknownCwd,
    /// The path is a directory and must not be.
    IsDirectory,
    /// The path is not a directory and must be.
    NotDirectory,
    /// Too many levels of symbolic links.
    LinkLoop,
    /// No space, or the disk limit is reached.
    NoSpace,
    /// The process limit is reached.
    NoProcesses,
    /// Nothing listens on the port.
    PortClosed,
    /// Input for a process whose standard input is closed or was never open.
    StdinClosed,
    /// A terminal operation on a process without one, or the reverse.
    NotPty,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit status, when it ended by itself.
    pub code: Option<i32>,
    /// Signal number, when a signal ended it.
    pub signal: Option<u8>,
    /// The `timeout_ms` of its `Exec` passed, and that is why.
    #[serde(default)]
    pub timed_out: bool,
    /// From its start to its end, in milliseconds.
    pub duration_ms: u64,
    /// User CPU time, in milliseconds.
    #[serde(default)]
    pub cpu_user_ms: u64,
    /// System CPU time, in milliseconds.
    #[serde(default)]
    pub cpu_system_ms: u64,
    /// Largest resident set, in KiB.
    #[serde(default)]
    pub max_rss_kib: u64,
}

/// A process that a client started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Pid in the sandbox.
    pub pid: u32,
    /// As given.
    pub cmd: String,
    /// As given.
    pub args: Vec<String>,
    /// As given.
    pub env: BTreeMap<String, String>,
    /// As given.
    pub cwd: Option<String>,
    /// As given.
    pub tag: Option<String>,
    /// It has a terminal.
    pub pty: bool,
}

/// Type of a file system entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileType {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Anything else, or a link to nothing.
    Other,
}

/// A file system entry. For a symbolic link, everything but `target_type` and `target` is of the link itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Last element.
    pub name: String,
    /// Absolute and lexically clean, as asked for.
    pub path: String,
    /// Type of the entry itself.
    pub file_type: FileType,
    /// For a link: the type of what it finally points to.
    pub target_type: Option<FileType>,
    /// For a link: the fully resolved target, or its text when that is broken.
    pub target: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Permission bits (12 bits).
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Name of the owner, or the number.
    pub owner: String,
    /// Name of the group, or the number.
    pub group: String,
    /// Last change of the content, microseconds since the Unix epoch.
    pub modified_us: i64,
    /// Attributes of the namespace `user.e2b.`, without the prefix.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// What the sandbox uses, seen from inside. The node knows the limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Bytes of the root file system in use by this sandbox's file system view.
    pub disk_used: u64,
    /// Bytes of the root file system.
    pub disk_total: u64,
    /// Processes that run, the agent's own included.
    pub processes: u32,
    /// Resident set of the agent, in KiB.
    pub agent_rss_kib: u64,
}

/// A message that is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("malformed {what} message")]
pub struct Malformed {
    /// Which message.
    pub what: &'static str,
    #[source]
    source: serde_json::Error,
}

/// Encodes a message for a `Control` frame.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages have string keys and no failing serializer")
}

/// Decodes the payload of a `Control` frame.
pub fn decode<T: DeserializeOwned>(what: &'static str, payload: &[u8]) -> Result<T, Malformed> {
    serde_json::from_slice(payload).map_err(|source| Malformed { what, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_keeps_its_shape() {
        let call = Call { version: VERSION, request: Request::Dial { port: 80 } };
        let text = String::from_utf8(encode(&call)).unwrap();
        assert_eq!(text, r#"{"version":1,"op":"dial","port":80}"#);
        assert_eq!(decode::<Call>("call", text.as_bytes()).unwrap(), call);
    }

    #[test]
    fn every_operation_round_trips() {
        let path = Path { path: "~/x".into(), user: User::Named("root".into()) };
        let exec = Exec {
            cmd: "sh".into(),
            args: vec!["-c".into()],
            env: BTreeMap::new(),
            cwd: None,
            user: User::Default,
            stdio: Stdio::Pty(PtySize { cols: 80, rows: 24 }),
            tag: Some("t".into()),
            timeout_ms: Some(5),
            kill_on_disconnect: true,
        };
        let requests = [
            Request::Ping,
            Request::Exec(exec),
            Request::Attach { process: Selector::Tag("t".into()) },
            Request::Stat { path: path.clone() },
            Request::Read { path, offset: 3, length: None },
        ];
        for request in requests {
            let call = Call { version: VERSION, request };
            assert_eq!(decode::<Call>("call", &encode(&call)).unwrap(), call);
        }
    }

    #[test]
    fn rubbish_is_an_error_with_a_name() {
        assert_eq!(decode::<Call>("call", b"{}").unwrap_err().to_string(), "malformed call message");
    }
}
