//! Owns the container driver: namespaces, cgroups, an overlay on a subvolume, Landlock, a system call filter and no
//! network but a loopback. The launcher makes the processes; everything that can be done without being single-threaded
//! is done here.

mod agent;
mod checks;
mod destroy;
mod fill;
mod link;
mod park;

pub use agent::AGENT;
pub use checks::checks;
pub use link::LauncherCommand;

use crate::isolation::cgroup::{self, Hierarchy};
use crate::isolation::{
    AdoptError, BoxFuture, Driver, DriverError, Fill, Live, Parked, ProcessIdentity, RawUsage, Slot,
};
use crate::storage::{Volume, VolumeConfig, VolumeError};
use cofferdam_core::Resources;
use cofferdam_sys::mount::FileSystem;
use cofferdam_sys::{clone, directory, memfd, pidfd};
use link::Link;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long `freeze` waits for processes to stand still.
const FREEZE_WAIT: Duration = Duration::from_secs(10);
/// Between two looks at what cannot be waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What the driver needs to start. Paths are relative to the working directory, which is the data directory.
#[derive(Debug, Clone)]
pub struct ContainerConfig {
    /// Tells the cgroups of this data directory from those of another on the same host.
    pub instance: String,
    /// The data volume.
    pub volume: VolumeConfig,
    /// How to start the launcher: a command of this very program that calls `launcher_main`.
    pub launcher: LauncherCommand,
    /// The program of the agent, a static executable: [`AGENT`], but for tests.
    pub agent: &'static [u8],
}

/// Why the driver could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No cgroups that could limit a sandbox.
    #[error("find cgroups")]
    Cgroups(#[source] io::Error),
    /// No data volume.
    #[error("open the data volume")]
    Volume(#[source] VolumeError),
    /// The agent's program could not be put in memory.
    #[error("load the agent")]
    Agent(#[source] io::Error),
    /// The launcher did not start.
    #[error("start the launcher")]
    Launcher(#[source] io::Error),
}

/// The driver. Cheap to clone; the launcher ends when the last clone goes.
#[derive(Debug, Clone)]
pub struct ContainerDriver {
    shared: Arc<Shared>,
}

/// What every operation needs.
#[derive(Debug)]
struct Shared {
    cgroups: Box<dyn Hierarchy>,
    volume: Volume,
    link: Link,
    boot_id: String,
    uts_namespace: OwnedFd,
}

/// A step that failed, before it is known what it means for the sandbox.
#[derive(Debug)]
struct StepFailure {
    step: String,
    source: io::Error,
}

impl StepFailure {
    fn untouched(self, slot: Slot) -> DriverError {
        DriverError::Untouched { slot, step: self.step, source: self.source }
    }

    fn lost(self, slot: Slot) -> DriverError {
        DriverError::Lost { slot, step: self.step, source: self.source }
    }
}

/// Names the step that an I/O error belongs to.
trait Step<T> {
    fn step(self, step: &str) -> Result<T, StepFailure>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &str) -> Result<T, StepFailure> {
        self.map_err(|source| StepFailure { step: step.to_owned(), source })
    }
}

/// Runs what blocks for a short time away from the async tasks.
async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, StepFailure> + Send + 'static,
) -> Result<T, StepFailure> {
    match tokio::task::spawn_blocking(act).await {
        Ok(result) => result,
        Err(error) => {
            Err(StepFailure { step: "run a blocking step".to_owned(), source: io::Error::other(error) })
        }
    }
}

impl ContainerDriver {
    /// Finds or makes what all sandboxes share, and starts the launcher. Needs a tokio runtime.
    pub async fn start(config: ContainerConfig) -> Result<Self, StartError> {
        let ContainerConfig { instance, volume, launcher, agent } = config;
        let cgroups = cgroup::open(&instance).map_err(StartError::Cgroups)?;
        let volume = tokio::task::spawn_blocking(move || Volume::open(&volume)).await;
        let volume = volume.map_err(|error| StartError::Launcher(io::Error::other(error)))?;
        let volume = volume.map_err(StartError::Volume)?;
        let agent = memfd::sealed_program("cofferdam-agent", agent).map_err(StartError::Agent)?;
        let link = Link::start(launcher, agent).await.map_err(StartError::Launcher)?;
        let boot_id = pidfd::boot_id().map_err(StartError::Launcher)?;
        let uts_namespace = clone::open_namespace(std::process::id(), "uts").map_err(StartError::Launcher)?;
        Ok(Self { shared: Arc::new(Shared { cgroups, volume, link, boot_id, uts_namespace }) })
    }

    /// Slots of which cgroups or a subvolume exist, whoever made them.
    pub fn slots(&self) -> io::Result<Vec<Slot>> {
        let mut slots = self.shared.cgroups.slots()?;
        slots.extend(self.shared.volume.slots()?);
        slots.sort_unstable();
        slots.dedup();
        Ok(slots)
    }

    /// The version of cgroups in use.
    pub fn cgroup_version(&self) -> &'static str {
        self.shared.cgroups.version()
    }

    /// Pid of the launcher that is at work now.
    pub fn launcher_pid(&self) -> Option<u32> {
        self.shared.link.pid()
    }

    /// Removes what all slots share, if no slot is left. The driver cannot park afterwards.
    pub fn remove_shared(&self) {
        self.shared.cgroups.remove_shared();
    }
}

/// The most open files that a process of a sandbox can have on this host; larger limits are cut to it.
pub fn open_files_max() -> u32 {
    u32::try_from(cofferdam_sys::exec::open_files_max()).unwrap_or(u32::MAX)
}

fn shared_memory_bytes(resources: &Resources) -> u64 {
    (u64::from(resources.memory_mib) << 20) / 2
}

/// Limits that the kernel holds outside of the processes.
fn put_limits(shared: &Shared, slot: Slot, resources: &Resources) -> Result<(), StepFailure> {
    shared.cgroups.limit(slot, resources).step("limit cgroups")?;
    shared.volume.limit(slot, u64::from(resources.disk_mib) << 20).step("limit the disk")
}

impl Driver for ContainerDriver {
    fn park(&self, slot: Slot) -> BoxFuture<'_, Result<Parked, DriverError>> {
        Box::pin(
            async move { park::park(&self.shared, slot).await.map_err(|failure| failure.untouched(slot)) },
        )
    }

    fn fill(&self, parked: Parked, fill: Fill) -> BoxFuture<'_, Result<Live, DriverError>> {
        Box::pin(async move {
            let slot = parked.slot();
            fill::fill(&self.shared, parked, fill).await.map_err(|failure| failure.untouched(slot))
        })
    }

    fn limit(&self, live: &Live, resources: &Resources) -> Result<(), DriverError> {
        let slot = live.slot();
        let limited = put_limits(&self.shared, slot, resources).and_then(|()| {
            resize_shared_memory(live, shared_memory_bytes(resources)).step("resize shared memory")
        });
        limited.map_err(|failure| failure.untouched(slot))
    }

    fn set_hostname(&self, live: &Live, hostname: &str) -> Result<(), DriverError> {
        let set = || {
            let namespace = clone::open_namespace(live.identity().pid, "uts")?;
            ensure_running(live)?;
            clone::set_hostname_of(namespace.as_fd(), self.shared.uts_namespace.as_fd(), hostname)
        };
        set().step("set the host name").map_err(|failure| failure.untouched(live.slot()))
    }

    fn usage(&self, live: &Live) -> Result<RawUsage, DriverError> {
        let slot = live.slot();
        let measured = || {
            let counted = self.shared.cgroups.counted(slot).step("read cgroups")?;
            let disk_used = self.shared.volume.usage(slot).step("read the disk quota")?;
            Ok::<_, StepFailure>(RawUsage {
                cpu_us: counted.cpu_us,
                memory_used: counted.memory_used,
                memory_cache: counted.memory_cache,
                memory_peak: counted.memory_peak,
                processes: counted.processes,
                disk_used,
                oom_kills: counted.oom_kills,
                process_refusals: counted.process_refusals,
            })
        };
        measured().map_err(|failure| failure.untouched(slot))
    }

    fn freeze(&self, live: &Live) -> BoxFuture<'_, Result<(), DriverError>> {
        let slot = live.slot();
        Box::pin(async move {
            self.freeze_slot(slot).await.map_err(|failure| {
                // Half frozen is no state to be in: let it run again, and say so if that fails.
                match self.shared.cgroups.set_frozen(slot, false) {
                    Ok(()) => failure.untouched(slot),
                    Err(source) => {
                        StepFailure { step: format!("thaw after: {}", failure.step), source }.lost(slot)
                    }
                }
            })
        })
    }

    fn thaw(&self, live: &Live) -> Result<(), DriverError> {
        let slot = live.slot();
        self.shared.cgroups.set_frozen(slot, false).step("thaw").map_err(|failure| failure.untouched(slot))
    }

    fn adopt(&self, slot: Slot, identity: &ProcessIdentity) -> Result<Live, AdoptError> {
        self.adopt_slot(slot, identity)
    }

    fn destroy(&self, slot: Slot) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async move {
            let shared = Arc::clone(&self.shared);
            let destroyed = blocking(move || destroy::destroy(&*shared.cgroups, &shared.volume, slot)).await;
            destroyed.map_err(|failure| failure.lost(slot))
        })
    }
}

impl ContainerDriver {
    async fn freeze_slot(&self, slot: Slot) -> Result<(), StepFailure> {
        let cgroups = &self.shared.cgroups;
        let deadline = Instant::now() + FREEZE_WAIT;
        cgroups.set_frozen(slot, true).step("freeze")?;
        while !cgroups.is_frozen(slot).step("look at the freezer")? {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into()).step("wait for processes to stand still");
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    fn adopt_slot(&self, slot: Slot, identity: &ProcessIdentity) -> Result<Live, AdoptError> {
        let lookup = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => AdoptError::Gone { slot },
            _ if cofferdam_sys::errno_of(&source) == Some(ESRCH) => AdoptError::Gone { slot },
            _ => AdoptError::Lookup { slot, source },
        };
        if identity.boot_id != self.shared.boot_id {
            return Err(AdoptError::Gone { slot });
        }
        // Opened first: what is read afterwards is about this process, if it still runs at the end.
        let process = pidfd::open(identity.pid).map_err(lookup)?;
        let start_ticks = pidfd::start_ticks(identity.pid).map_err(lookup)?;
        let cgroup = fs::read_to_string(format!("/proc/{}/cgroup", identity.pid)).map_err(lookup)?;
        if pidfd::wait_end(&process, Duration::ZERO).map_err(lookup)? || start_ticks != identity.start_ticks {
            return Err(AdoptError::Gone { slot });
        }
        if !self.shared.cgroups.holds(slot, &cgroup) {
            return Err(AdoptError::Stranger { slot });
        }
        Ok(Live::new(slot, identity.clone(), process))
    }
}

const ESRCH: i32 = 3;

fn ensure_running(live: &Live) -> io::Result<()> {
    if pidfd::wait_end(live, Duration::ZERO)? {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the sandbox has ended"));
    }
    Ok(())
}

/// Changes the size of `/dev/shm` from outside, where alone that is allowed.
fn resize_shared_memory(live: &Live, bytes: u64) -> io::Result<()> {
    let root = directory::locate_at(Path::new(&format!("/proc/{}/root", live.identity().pid)))?;
    ensure_running(live)?;
    // Resolved as a process inside would; the call itself insists on the root of a mount.
    let target = directory::locate_within(&root, "dev/shm")?;
    let system = FileSystem::pick(&target, c"")?;
    system.set("size", &bytes.to_string())?;
    system.reconfigure()
}
