//! Owns the vocabulary of the record: facts in the past tense. It only grows; a field never changes its meaning.
//!
//! What takes time is two or three facts: the wish (written before anything is done) and how it went, which carries
//! the number of the wish as `intent`. Environment variables appear by name only, contents of files by length only.

use cofferdam_core::{ErrorKind, RequestId, Resources, SandboxId, TenantId, Timestamp};
use serde::Serialize;

/// A fact, and whom it is about.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// Who did it: `key:ID`, `token`, `anyone`, `node`, `server`.
    pub by: String,
    /// Whose record it belongs to.
    pub tenant: Option<TenantId>,
    /// The sandbox it is about.
    pub sandbox: Option<SandboxId>,
    /// The request of a client that led to it.
    pub request: Option<RequestId>,
}

/// What happened.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", content = "fields", rename_all = "snake_case")]
pub enum Event {
    /// A torn last line, left by a crash while it was written, was cut off. What it announced was never done.
    RecordRecovered {
        /// Bytes cut off.
        dropped_bytes: u64,
    },
    /// The server stopped before it was known what came of a wish.
    OutcomeUnknown {
        /// Number of the request.
        intent: u64,
    },
    /// Somebody known was refused.
    Denied {
        /// What was wanted.
        action: String,
        /// Why not.
        why: String,
    },
    /// Somebody wants a sandbox.
    SandboxCreateRequested {
        /// Short name of the template.
        template: String,
        /// Exact build of the template.
        digest: String,
        /// Limits.
        resources: Resources,
        /// Names of the variables of its environment.
        env_names: Vec<String>,
        /// Planned end.
        expires_at: Timestamp,
    },
    /// It runs.
    SandboxCreated {
        /// Number of the request.
        intent: u64,
    },
    /// It was not made.
    SandboxCreateFailed {
        /// Number of the request.
        intent: u64,
        /// What kind of failure.
        kind: ErrorKind,
        /// In words.
        why: String,
    },
    /// Somebody wants another end.
    DeadlineChangeRequested {
        /// The new end.
        expires_at: Timestamp,
    },
    /// It has another end.
    DeadlineChanged {
        /// Number of the request.
        intent: u64,
        /// The new end.
        expires_at: Timestamp,
    },
    /// Somebody wants it ended.
    SandboxKillRequested {},
    /// It ended.
    SandboxEnded {
        /// `killed`, `expired`, `agent_died`, `limit`, `lost`.
        reason: String,
    },
    /// Somebody wants a command run.
    CommandRequested {
        /// Program and arguments; long ones are cut.
        argv: Vec<String>,
        /// SHA-256 over all arguments, each followed by a zero byte, when some were cut.
        #[serde(skip_serializing_if = "Option::is_none")]
        argv_sha256: Option<String>,
        /// Working directory, as asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// User, as asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        /// Names of its own variables.
        env_names: Vec<String>,
        /// It gets a terminal.
        pty: bool,
        /// Its time limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// It runs.
    CommandStarted {
        /// Number of the request.
        intent: u64,
        /// Pid in the sandbox.
        pid: u32,
    },
    /// It did not start.
    CommandFailed {
        /// Number of the request.
        intent: u64,
        /// What kind of failure.
        kind: ErrorKind,
        /// In words.
        why: String,
    },
    /// It ended.
    CommandFinished {
        /// Number of the request.
        intent: u64,
        /// Exit status, when it ended by itself.
        code: Option<i32>,
        /// Signal, when one ended it.
        signal: Option<u8>,
        /// Its time limit ended it.
        timed_out: bool,
        /// From start to end.
        duration_ms: u64,
        /// User and system CPU time.
        cpu_ms: u64,
        /// Largest resident set.
        max_rss_kib: u64,
        /// Bytes of output that it gave.
        output_bytes: u64,
    },
    /// Nobody saw how it ended: the sandbox or the server went away first.
    CommandLost {
        /// Number of the request.
        intent: u64,
        /// In words.
        why: String,
    },
    /// Somebody joined a running command.
    CommandAttached {
        /// Its pid or tag.
        process: String,
    },
    /// Somebody sent a signal to a process.
    ProcessSignalled {
        /// Its pid or tag.
        process: String,
        /// The signal.
        signal: u8,
        /// With all that descends from it.
        tree: bool,
    },
    /// Somebody opened or closed the standard input of a process.
    ProcessInput {
        /// Its pid or tag.
        process: String,
        /// It was closed.
        closed: bool,
    },
    /// Somebody wants to read a file.
    FileReadRequested {
        /// As asked for.
        path: String,
        /// User, as asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
    /// It was opened for reading.
    FileRead {
        /// Number of the request.
        intent: u64,
        /// Where it is.
        path: String,
        /// Bytes that follow.
        bytes: u64,
    },
    /// Somebody wants to change a file or directory.
    FileChangeRequested {
        /// How.
        change: FileChange,
        /// As asked for.
        path: String,
        /// Where to, for a move; where from, for a composition.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        others: Vec<String>,
        /// User, as asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
    /// It was changed.
    FileChanged {
        /// Number of the request.
        intent: u64,
        /// Where it is.
        path: String,
        /// Bytes that were written.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
    /// Reading or changing did not happen, or only in part.
    FileFailed {
        /// Number of the request.
        intent: u64,
        /// What kind of failure.
        kind: ErrorKind,
        /// In words.
        why: String,
    },
    /// Somebody watches a directory.
    DirectoryWatched {
        /// As asked for.
        path: String,
    },
    /// Somebody outside reached for a port inside.
    PortDialled {
        /// The port.
        port: u16,
    },
    /// Somebody wants a key.
    KeyCreateRequested {
        /// Name of the key.
        name: String,
        /// What it may do.
        scopes: Vec<String>,
    },
    /// There is a new key.
    KeyCreated {
        /// Number of the request, 0 for the first key of all.
        intent: u64,
        /// Its id.
        key: String,
    },
    /// Somebody wants a key gone.
    KeyRevokeRequested {
        /// Its id.
        key: String,
    },
    /// The key is of no use any more.
    KeyRevoked {
        /// Number of the request.
        intent: u64,
        /// Its id.
        key: String,
    },
    /// Somebody wants a tenant.
    TenantCreateRequested {
        /// Its name.
        name: String,
    },
    /// There is a new tenant.
    TenantCreated {
        /// Number of the request.
        intent: u64,
        /// Its id.
        id: String,
    },
    /// Somebody wants another quota for a tenant.
    QuotaChangeRequested {
        /// The tenant.
        id: String,
        /// Sandboxes at a time.
        sandboxes_max: u64,
        /// Sum of CPU shares, in thousandths.
        cpu_millis_max: u64,
        /// Sum of memory, in MiB.
        memory_mib_max: u64,
    },
    /// The tenant has another quota.
    QuotaChanged {
        /// Number of the request.
        intent: u64,
        /// The tenant.
        id: String,
    },
    /// Somebody imports a template.
    TemplateImportRequested {
        /// Short name.
        name: String,
    },
    /// It is there.
    TemplateImported {
        /// Number of the request.
        intent: u64,
        /// Its id.
        template: String,
        /// Its exact build.
        digest: String,
        /// Bytes of its root file system.
        bytes: u64,
    },
    /// It is not there.
    TemplateImportFailed {
        /// Number of the request.
        intent: u64,
        /// What kind of failure.
        kind: ErrorKind,
        /// In words.
        why: String,
    },
    /// Somebody wants a template gone.
    TemplateRemoveRequested {
        /// Its id.
        template: String,
    },
    /// It is gone.
    TemplateRemoved {
        /// Number of the request.
        intent: u64,
        /// Its id.
        template: String,
    },
}

/// How a file or directory is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// Written.
    Write,
    /// Made as a directory.
    MakeDirectory,
    /// Moved.
    Move,
    /// Removed.
    Remove,
    /// Put together from others.
    Compose,
}

/// Longest argument that is recorded whole, in bytes.
const ARGUMENT_BYTES_MAX: usize = 4096;
/// Arguments that are recorded.
const ARGUMENTS_MAX: usize = 64;

/// Arguments as they are recorded: long ones cut, and if so the digest of all of them.
pub fn bounded_argv<'a>(argv: impl Iterator<Item = &'a str> + Clone) -> (Vec<String>, Option<String>) {
    let fits = |text: &str| text.len() <= ARGUMENT_BYTES_MAX;
    let whole = argv.clone().count() <= ARGUMENTS_MAX && argv.clone().all(fits);
    let digest = (!whole).then(|| crate::line::digest_of_parts(argv.clone()));
    (argv.take(ARGUMENTS_MAX).map(cut).collect(), digest)
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(ARGUMENT_BYTES_MAX)].to_owned()
}
