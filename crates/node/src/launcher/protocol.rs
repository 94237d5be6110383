//! Owns the messages between the node and the launcher, and those on the control socket of a shell. Both ends are the
//! same program; a message that does not parse is a bug.

use crate::isolation::Slot;
use serde::{Deserialize, Serialize};
use std::io;

/// Longest message in either direction.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4096;

/// From the node. The first message on the socket is no call: it carries the agent's program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Comes back in the reply; not 0.
    pub(crate) id: u64,
    pub(crate) request: Request,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Park(Park),
    Fill(Fill),
}

/// Make a shell. Descriptors: the agent's listening socket, then `cgroup.procs` files of the agent's groups, then those
/// of `work`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Park {
    pub(crate) slot: Slot,
    pub(crate) agent_groups: usize,
    pub(crate) work_groups: usize,
}

/// Give a shell its root. Descriptors: its control socket, then two detached mounts with the ids of the slot: the
/// template, and the subvolume of the slot.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Fill {
    pub(crate) slot: Slot,
    pub(crate) shared_memory_bytes: u64,
}

/// From the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Of the call; 0 for `Ready`.
    pub(crate) id: u64,
    pub(crate) outcome: Outcome,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The first reply: calls are taken.
    Ready,
    /// The shell exists and prepares itself. Descriptors: pidfd, control socket, user namespace.
    Parked { pid: u32 },
    /// The shell has its root and is on the way to become the agent.
    Filled,
    /// Nothing was made, or what was made is ending.
    Failed { step: String, errno: i32 },
}

/// On the control socket, towards the shell: its ids are mapped and its groups joined.
pub(super) const GO: &[u8] = b"G";
/// On the control socket, from the shell: everything is prepared.
const PARKED: u8 = b'P';
/// On the control socket, from the shell or the spawner: it ends, and this is why.
const FAILED: u8 = b'E';

/// What a shell says. The end of the control socket without `Failed` means that the agent was executed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ShellReport {
    Parked,
    Failed { step: String, errno: i32 },
}

impl ShellReport {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Parked => vec![PARKED],
            Self::Failed { step, errno } => {
                let mut bytes = vec![FAILED];
                bytes.extend_from_slice(&errno.to_le_bytes());
                bytes.extend_from_slice(step.as_bytes());
                bytes
            }
        }
    }

    pub(crate) fn parse(bytes: &[u8]) -> io::Result<Self> {
        match bytes {
            [PARKED] => Ok(Self::Parked),
            [FAILED, a, b, c, d, step @ ..] => Ok(Self::Failed {
                errno: i32::from_le_bytes([*a, *b, *c, *d]),
                step: String::from_utf8_lossy(step).into_owned(),
            }),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "malformed report of a shell")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_socket() {
        for report in [ShellReport::Parked, ShellReport::Failed { step: "mount proc: x".into(), errno: 13 }] {
            assert_eq!(ShellReport::parse(&report.encode()).unwrap(), report);
        }
        assert!(ShellReport::parse(b"").is_err());
        assert!(ShellReport::parse(b"E12").is_err());
    }
}
