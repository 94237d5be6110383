//! Owns what an isolation driver is: the trait through which the rest of the node makes, limits, measures, finds
//! again and ends sandboxes, and the words both sides share.
//!
//! Every kernel object of a sandbox is named after its slot, so a driver can destroy by slot without remembering
//! what it made. Drivers never see policy, secrets or clients.

pub(crate) mod cgroup;
pub mod container;
mod identity;

pub use identity::ProcessIdentity;

use cofferdam_core::{ErrorKind, Resources};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place for one sandbox on this node. Uid range, cgroups, subvolume and run directory derive from its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Slot(u32);

/// A slot number beyond [`Slot::COUNT_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("slot {0} does not exist")]
pub struct InvalidSlot(pub u32);

impl Slot {
    /// Slots that have a uid range: 32-bit ids, of which the last (-1) means "none".
    pub const COUNT_MAX: u32 = (u32::MAX - Self::UID_FIRST) / Self::UID_COUNT;
    /// Uids and gids of one sandbox.
    pub const UID_COUNT: u32 = 65_536;
    const UID_FIRST: u32 = 0x1000_0000;

    /// The slot of that number.
    pub fn new(number: u32) -> Result<Self, InvalidSlot> {
        if number < Self::COUNT_MAX { Ok(Self(number)) } else { Err(InvalidSlot(number)) }
    }

    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The uid and gid outside that is 0 inside.
    pub fn uid_base(self) -> u32 {
        Self::UID_FIRST + self.0 * Self::UID_COUNT
    }

    /// The name of its cgroups, subvolume and records.
    pub fn name(self) -> String {
        format!("s{}", self.0)
    }

    /// Its run directory, relative to the data directory.
    pub fn run_dir(self) -> PathBuf {
        PathBuf::from(format!("run/s/{}", self.0))
    }

    /// The socket on which its agent listens, relative to the data directory.
    pub fn agent_socket(self) -> PathBuf {
        self.run_dir().join("agent.sock")
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u32> for Slot {
    type Error = InvalidSlot;
    fn try_from(number: u32) -> Result<Self, InvalidSlot> {
        Self::new(number)
    }
}

impl From<Slot> for u32 {
    fn from(slot: Slot) -> u32 {
        slot.0
    }
}

/// A shell made ahead of need: namespaces, cgroups, disk and socket exist, no template yet. Dropping it ends its
/// processes; `destroy` of its slot returns the rest.
#[derive(Debug)]
pub struct Parked {
    slot: Slot,
    identity: ProcessIdentity,
    pidfd: OwnedFd,
    parts: Option<ParkedParts>,
}

/// What the container driver keeps of a parked shell.
#[derive(Debug)]
pub(crate) struct ParkedParts {
    /// The shell waits on the other end; the end of this one is its end.
    pub(crate) control: OwnedFd,
    /// Its user namespace, for idmapped mounts.
    pub(crate) user_namespace: OwnedFd,
}

impl Parked {
    /// For drivers: a shell that lives as long as `parts`.
    pub(crate) fn new(slot: Slot, identity: ProcessIdentity, pidfd: OwnedFd, parts: ParkedParts) -> Self {
        Self { slot, identity, pidfd, parts: Some(parts) }
    }

    /// For fakes: a shell without anything behind it.
    pub fn fake(slot: Slot, identity: ProcessIdentity, pidfd: OwnedFd) -> Self {
        Self { slot, identity, pidfd, parts: None }
    }

    /// Its slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Its first process.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    pub(crate) fn into_inner(self) -> (Slot, ProcessIdentity, OwnedFd, Option<ParkedParts>) {
        (self.slot, self.identity, self.pidfd, self.parts)
    }
}

impl AsFd for Parked {
    /// Readable once its first process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// What turns a parked shell into a sandbox.
#[derive(Debug, Clone)]
pub struct Fill {
    /// Directory that holds the root file system of the template, relative to the data directory or absolute.
    pub template_root: PathBuf,
    /// Limits in force from the first instruction.
    pub resources: Resources,
}

/// A sandbox that runs. Dropping it does not end it: only `destroy` of its slot does.
#[derive(Debug)]
pub struct Live {
    slot: Slot,
    identity: ProcessIdentity,
    pidfd: OwnedFd,
    agent_socket: PathBuf,
}

impl Live {
    /// For drivers and fakes.
    pub fn new(slot: Slot, identity: ProcessIdentity, pidfd: OwnedFd) -> Self {
        Self { slot, identity, pidfd, agent_socket: slot.agent_socket() }
    }

    /// Its slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// Its first process, as a record keeps it.
    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Returns once the first process, and with it everything in the sandbox, has ended.
    pub async fn ended(&self) -> io::Result<()> {
        watch(self.pidfd.try_clone()?, Interest::READABLE)?.readable().await.map(drop)
    }

    /// The socket of its agent, relative to the data directory.
    pub fn agent_socket(&self) -> &Path {
        &self.agent_socket
    }
}

impl AsFd for Live {
    /// Readable once the first process, and with it everything in the sandbox, has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Lets the runtime watch a descriptor.
pub(crate) fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    #[expect(
        deprecated,
        reason = "deprecated for types that may change their descriptor, which an OwnedFd cannot"
    )]
    AsyncFd::with_interest(fd, interest)
}

/// What the kernel counted for one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawUsage {
    /// CPU time used since its start, in microseconds.
    pub cpu_us: u64,
    /// Memory in use without reclaimable cache, in bytes.
    pub memory_used: u64,
    /// Reclaimable cache, in bytes.
    pub memory_cache: u64,
    /// Highest memory seen, in bytes.
    pub memory_peak: u64,
    /// Processes and threads of the user's own, without those of the agent.
    pub processes: u64,
    /// Bytes written to its disk.
    pub disk_used: u64,
    /// Times a process was killed for memory.
    pub oom_kills: u64,
    /// Times a process was refused for the process limit.
    pub process_refusals: u64,
}

/// Why a driver could not do what was asked, and whether the sandbox still is what it was.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// A live sandbox is as it was before; for `park` and `fill`, nothing runs and `destroy` cleans up.
    #[error("{step} for slot {slot}")]
    Untouched {
        /// The slot.
        slot: Slot,
        /// What was attempted.
        step: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// What state the sandbox is in is not known: it is to be destroyed.
    #[error("{step} for slot {slot}, which is lost")]
    Lost {
        /// The slot.
        slot: Slot,
        /// What was attempted.
        step: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl DriverError {
    /// What a caller may do about it.
    pub fn kind(&self) -> ErrorKind {
        let (Self::Untouched { source, .. } | Self::Lost { source, .. }) = self;
        match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::OutOfMemory
            | io::ErrorKind::ResourceBusy
            | io::ErrorKind::WouldBlock => ErrorKind::ResourceExhausted,
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ErrorKind::Unavailable,
            io::ErrorKind::TimedOut => ErrorKind::DeadlineExceeded,
            io::ErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Internal,
        }
    }

    /// True when the sandbox must be destroyed.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

/// Why a sandbox could not be taken over from an earlier node process. In every case `destroy` of the slot is next.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// The process does not exist any more, or another one has its pid, or the host was restarted.
    #[error("the recorded process of slot {slot} is gone")]
    Gone {
        /// The slot.
        slot: Slot,
    },
    /// The process is there, but not in the cgroup of the slot: the record and the kernel disagree.
    #[error("the recorded process of slot {slot} is not in that slot")]
    Stranger {
        /// The slot.
        slot: Slot,
    },
    /// The question could not be answered.
    #[error("look up the recorded process of slot {slot}")]
    Lookup {
        /// The slot.
        slot: Slot,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A kind of isolation.
pub trait Driver: Send + Sync + 'static {
    /// Makes everything of a sandbox that does not depend on its template. The slot must be empty (destroyed).
    fn park(&self, slot: Slot) -> BoxFuture<'_, Result<Parked, DriverError>>;

    /// Gives a parked shell its root file system and limits and starts the agent in it. When it returns, the agent's
    /// socket accepts connections. On an error the shell is gone and the slot is to be destroyed.
    fn fill(&self, parked: Parked, fill: Fill) -> BoxFuture<'_, Result<Live, DriverError>>;

    /// Puts other limits in force on a running sandbox. Short enough for an async task.
    fn limit(&self, live: &Live, resources: &Resources) -> Result<(), DriverError>;

    /// Sets the host name seen inside. The agent has no right to do so itself.
    fn set_hostname(&self, live: &Live, hostname: &str) -> Result<(), DriverError>;

    /// What it used.
    fn usage(&self, live: &Live) -> Result<RawUsage, DriverError>;

    /// Stops every process of the user (not the agent); returns when they stand still.
    fn freeze(&self, live: &Live) -> BoxFuture<'_, Result<(), DriverError>>;

    /// Lets them go on.
    fn thaw(&self, live: &Live) -> Result<(), DriverError>;

    /// Takes over a sandbox that an earlier node process made, if it is still the one of the record.
    fn adopt(&self, slot: Slot, identity: &ProcessIdentity) -> Result<Live, AdoptError>;

    /// Ends and removes everything of a slot, from whatever half-made state. Idempotent. When it returns without an
    /// error, cgroups, processes, subvolume and run directory are gone.
    fn destroy(&self, slot: Slot) -> BoxFuture<'_, Result<(), DriverError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_ranges_of_slots_never_overlap_nor_reach_the_invalid_uid() {
        let last = Slot::new(Slot::COUNT_MAX - 1).unwrap();
        assert!(last.uid_base().checked_add(Slot::UID_COUNT - 1).unwrap() < u32::MAX);
        assert_eq!(Slot::new(1).unwrap().uid_base() - Slot::new(0).unwrap().uid_base(), Slot::UID_COUNT);
        assert!(Slot::new(Slot::COUNT_MAX).is_err());
    }
}
