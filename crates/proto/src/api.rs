//! Owns the types of the native `/v1` API: what the CLI and other clients send and get as JSON. Unknown request fields
//! are refused, so that a typing error is an error.

use crate::node::Check;
use cofferdam_core::{ErrorKind, LimitHit, Resources, SandboxId, State, TemplateInfo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `POST /v1/sandboxes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct CreateSandbox {
    /// Template name or id, optionally `:tag`; `base` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Life span in seconds; 300 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Limits that differ from the defaults of the tenant.
    #[serde(default)]
    pub resources: ResourceOverrides,
    /// Environment of every process.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Free pairs, filterable.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
}

/// Limits to change; what is absent stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct ResourceOverrides {
    /// CPU share, in thousandths of a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_millis: Option<u32>,
    /// Memory, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// Writable disk, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mib: Option<u32>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Open files per process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
}

impl ResourceOverrides {
    /// `base` with the given numbers put in.
    pub fn apply(&self, base: Resources) -> Resources {
        Resources {
            cpu_millis: self.cpu_millis.unwrap_or(base.cpu_millis),
            memory_mib: self.memory_mib.unwrap_or(base.memory_mib),
            disk_mib: self.disk_mib.unwrap_or(base.disk_mib),
            processes: self.processes.unwrap_or(base.processes),
            open_files: self.open_files.unwrap_or(base.open_files),
        }
    }
}

/// A sandbox, as `GET /v1/sandboxes` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Its id.
    pub id: SandboxId,
    /// Where it is in its life.
    pub state: State,
    /// Why, when the state is `failed` or `killed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Short name of its template.
    pub template: String,
    /// Exact build of its template.
    pub template_digest: String,
    /// Limits in force.
    pub resources: Resources,
    /// Free pairs.
    pub metadata: BTreeMap<String, String>,
    /// RFC 3339.
    pub started_at: String,
    /// RFC 3339.
    pub expires_at: String,
}

/// `GET /v1/sandboxes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxList {
    /// Newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Token of the next page, absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// `POST /v1/sandboxes/{id}/timeout`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetTimeout {
    /// From now, in seconds.
    pub timeout_seconds: u64,
}

/// `POST /v1/sandboxes/{id}/exec`, and the first text message of `GET /v1/sandboxes/{id}/exec/stream` (WebSocket).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    /// Program and arguments; the program is looked up in `PATH`.
    pub argv: Vec<String>,
    /// Variables on top of those of the sandbox.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// User name or uid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Kill the process and all it started after so many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Standard input as text (`/exec` only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Terminal size; makes it a terminal (`/exec/stream` only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<TerminalSize>,
}

/// Size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// Answer of `POST /v1/sandboxes/{id}/exec`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecResult {
    /// Pid in the sandbox.
    pub pid: u32,
    /// How it ended.
    pub exit: ExecExit,
    /// Standard output; bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// Standard error; bytes that are no UTF-8 are replaced.
    pub stderr: String,
    /// Output beyond 1 MiB a stream was dropped.
    pub truncated: bool,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExit {
    /// Exit status, when it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Signal number, when a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// Its time limit passed, and that is why.
    pub timed_out: bool,
    /// From start to end, in milliseconds.
    pub duration_ms: u64,
}

/// Text messages on `GET /v1/sandboxes/{id}/exec/stream` after the first. Binary messages carry bytes: from the client
/// standard input (an empty message closes it), from the server one byte 1 (stdout), 2 (stderr) or 4 (terminal), then output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ExecMessage {
    /// Server: it runs.
    Started {
        /// Pid in the sandbox.
        pid: u32,
    },
    /// Server: it ended; the last message.
    Exited(ExecExit),
    /// Server: it failed; the last message.
    Error(ApiError),
    /// Client: a new size of the terminal.
    Resize(TerminalSize),
    /// Client: a signal to the process.
    Signal {
        /// Its number.
        signal: u8,
    },
}

/// Body of every error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// HTTP status.
    pub code: u16,
    /// What kind of failure it is.
    pub kind: ErrorKind,
    /// What failed, why, what to do.
    pub message: String,
    /// The limit, when one was hit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitHit>,
    /// To find the request in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// `GET /v1/templates`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateList {
    /// In order of name.
    pub templates: Vec<TemplateInfo>,
}

/// One line of the answer of `PUT /v1/templates/{name}` (NDJSON): progress, then exactly one of the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ImportEvent {
    /// Work goes on.
    Progress {
        /// What is being done.
        step: String,
        /// Bytes or items done.
        done: u64,
        /// Of how many, when known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
    },
    /// Done.
    Template(Box<TemplateInfo>),
    /// Failed.
    Error(ApiError),
}

/// `POST /v1/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// For people.
    pub name: String,
    /// What it may do; everything if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
}

/// A key, without its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its id.
    pub id: String,
    /// For people.
    pub name: String,
    /// The first characters of its text.
    pub masked: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// RFC 3339.
    pub created_at: String,
}

/// Answer of `POST /v1/keys`: the only time the text is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewKey {
    /// The key.
    #[serde(flatten)]
    pub key: Key,
    /// Its text.
    pub secret: String,
}

/// `GET /v1/keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyList {
    /// Oldest first.
    pub keys: Vec<Key>,
}

/// One row of `GET /v1/sandboxes/{id}/logs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRow {
    /// RFC 3339.
    pub at: String,
    /// Name of the event, for example `command_finished`.
    pub event: String,
    /// Its facts.
    pub fields: serde_json::Value,
}

/// `GET /v1/sandboxes/{id}/logs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogList {
    /// Oldest first.
    pub rows: Vec<LogRow>,
    /// Give it as `after` to get only what is newer.
    pub cursor: u64,
}

/// `GET /v1/doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoctorReport {
    /// One row a check.
    pub checks: Vec<Check>,
}

/// `GET /v1/sandboxes/{id}/files/stat` and `/files/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileList {
    /// The entries.
    pub entries: Vec<crate::guest::Entry>,
}

/// Query of `GET` and `PUT /v1/sandboxes/{id}/files`, `GET .../files/stat` and `.../files/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct FileQuery {
    /// Absolute, or relative to the home of `user`.
    pub path: String,
    /// Owner of what is created; the default user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// `list` only: levels, 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// `PUT` only: permission bits of the file in octal, for example `0755`; `0644` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// `POST /v1/sandboxes/{id}/files/mkdir` and `.../files/remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct FilePath {
    /// Absolute, or relative to the home of `user`.
    pub path: String,
    /// Owner of what is created; the default user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// `POST /v1/sandboxes/{id}/files/move`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct MoveFile {
    /// From where.
    pub source: String,
    /// To where; missing parents are made.
    pub destination: String,
    /// Whose home relative paths are below; the default user if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// Query of `GET /v1/sandboxes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    /// States joined by commas; all that have not ended if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Query of `GET /v1/sandboxes/{id}/logs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct LogsQuery {
    /// Only rows after this cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// At most so many rows; 1000 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// Query of `PUT /v1/templates/{name}`, whose body is the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct ImportQuery {
    /// What the body is; a root file system if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<crate::node::ImportFormat>,
}

/// What a tenant may have at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantQuota {
    /// Sandboxes that have not ended.
    pub sandboxes_max: u64,
    /// Sum of their CPU shares, in thousandths of a CPU.
    pub cpu_millis_max: u64,
    /// Sum of their memory limits, in MiB.
    pub memory_mib_max: u64,
}

/// `POST /v1/tenants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateTenant {
    /// For people; unique.
    pub name: String,
    /// What it may have; the defaults of the server if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<TenantQuota>,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its id.
    pub id: String,
    /// For people.
    pub name: String,
    /// What it may have.
    pub quota: TenantQuota,
    /// RFC 3339.
    pub created_at: String,
}

/// Answer of `POST /v1/tenants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewTenant {
    /// The tenant.
    pub tenant: Tenant,
    /// Its first key.
    pub key: NewKey,
}

/// `GET /v1/tenants`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantList {
    /// Oldest first.
    pub tenants: Vec<Tenant>,
}
