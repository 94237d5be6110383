//! Owns the name of a process that stays right when its pid is used again or the host restarts.

use serde::{Deserialize, Serialize};

/// A process, for ever: a pid alone names another process after reuse, and after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessIdentity {
    /// Its pid on the host.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Which boot of the host that was.
    pub boot_id: String,
}
