//! Owns the shared classification of errors: what a caller may do about one, and the shape of a limit that was hit.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of failure something is, whoever reports it. HTTP statuses and Connect codes derive from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is malformed or asks for something that cannot exist.
    InvalidArgument,
    /// No credential, or one that is not known.
    Unauthenticated,
    /// A known caller asked for what it may not do.
    PermissionDenied,
    /// The object does not exist, or belongs to another tenant.
    NotFound,
    /// The object exists already.
    AlreadyExists,
    /// The object is in a state in which the request is not legal.
    Conflict,
    /// A quota or a limit of the sandbox stands in the way.
    ResourceExhausted,
    /// The deadline passed.
    DeadlineExceeded,
    /// A part of the system is not reachable now; trying again may help.
    Unavailable,
    /// The host, the driver or this version cannot do it.
    Unsupported,
    /// A bug or a broken host; the log has the cause.
    Internal,
}

/// Which limit of a sandbox was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// CPU time share, in thousandths of a CPU.
    Cpu,
    /// Memory, in bytes.
    Memory,
    /// Writable disk, in bytes.
    Disk,
    /// Processes and threads.
    Processes,
    /// Open files of one process.
    OpenFiles,
    /// Life span or command time, in milliseconds.
    WallClock,
}

/// The one shape in which a limit that was hit is reported: to the client, the event stream and the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitHit {
    /// The limit.
    pub limit: LimitKind,
    /// What it was set to, in the unit of `limit`.
    pub configured: u64,
    /// What was seen when it was hit, in the same unit.
    pub observed: u64,
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} limit reached: configured {}, observed {}",
            self.limit, self.configured, self.observed
        )
    }
}
