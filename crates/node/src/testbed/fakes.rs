//! Owns the fakes: a driver that knows which slots hold what and refuses what a real one would, agents that obey or not,
//! and a clock that goes with the time of the test.

use crate::clock::Clock;
use crate::guest::{Guest, GuestError};
use crate::isolation::{
    AdoptError, BoxFuture, Driver, DriverError, Fill, Live, Parked, ProcessIdentity, RawUsage, Slot,
};
use cofferdam_core::{Resources, Timestamp};
use cofferdam_proto::guest::Configure;
use std::collections::{HashMap, VecDeque};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What goes wrong next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Park,
    Fill,
    Hostname,
    Destroy,
    /// The fill succeeds after ten seconds.
    SlowFill,
}

#[derive(Debug)]
struct Held {
    identity: ProcessIdentity,
    /// A process ends when this is dropped.
    process: Option<PipeWriter>,
    watched: PipeReader,
    filled: bool,
    resources: Option<Resources>,
    oom_kills: u64,
}

#[derive(Debug, Default)]
struct World {
    slots: HashMap<Slot, Held>,
    faults: VecDeque<Fault>,
    made: u64,
    most: usize,
}

/// Slots that only remember.
#[derive(Debug, Default)]
pub(crate) struct FakeDriver {
    world: Mutex<World>,
    pids: AtomicU64,
}

impl FakeDriver {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    pub(crate) fn held(&self) -> Vec<Slot> {
        self.world().slots.keys().copied().collect()
    }

    pub(crate) fn slots(&self) -> usize {
        self.world().slots.len()
    }

    /// Most slots that held something at one time.
    pub(crate) fn most_slots(&self) -> usize {
        self.world().most
    }

    /// Shells parked since the beginning.
    pub(crate) fn made(&self) -> u64 {
        self.world().made
    }

    pub(crate) fn fail_next(&self, faults: &[Fault]) {
        self.world().faults.extend(faults);
    }

    /// Ends the first process of a slot.
    pub(crate) fn die(&self, slot: Slot, oom_kills: u64) {
        if let Some(held) = self.world().slots.get_mut(&slot) {
            held.oom_kills = oom_kills;
            held.process = None;
        }
    }

    pub(crate) fn resources(&self, slot: Slot) -> Option<Resources> {
        self.world().slots.get(&slot)?.resources
    }

    fn fault(&self, fault: Fault) -> bool {
        let mut world = self.world();
        let hit = world.faults.front() == Some(&fault);
        if hit {
            world.faults.pop_front();
        }
        hit
    }
}

fn failed(slot: Slot, step: &str) -> DriverError {
    DriverError::Untouched { slot, step: step.into(), source: io::Error::other("as the test wanted it") }
}

fn duplicate(reader: &PipeReader) -> OwnedFd {
    reader.try_clone().unwrap().into()
}

impl Driver for FakeDriver {
    fn park(&self, slot: Slot) -> BoxFuture<'_, Result<Parked, DriverError>> {
        Box::pin(async move {
            let pid = u32::try_from(self.pids.fetch_add(1, Ordering::SeqCst)).unwrap() + 100;
            let identity = ProcessIdentity { pid, start_ticks: u64::from(pid), boot_id: "boot".into() };
            let (watched, process) = io::pipe().unwrap();
            let pidfd = duplicate(&watched);
            {
                let mut world = self.world();
                assert!(!world.slots.contains_key(&slot), "slot {slot} was not empty");
                let (identity, process) = (identity.clone(), Some(process));
                let held = Held { identity, process, watched, filled: false, resources: None, oom_kills: 0 };
                world.slots.insert(slot, held);
                world.made += 1;
                world.most = world.most.max(world.slots.len());
            }
            sleep(Duration::from_millis(3)).await;
            if self.fault(Fault::Park) {
                return Err(failed(slot, "park"));
            }
            Ok(Parked::fake(slot, identity, pidfd))
        })
    }

    fn fill(&self, parked: Parked, fill: Fill) -> BoxFuture<'_, Result<Live, DriverError>> {
        Box::pin(async move {
            let slot = parked.slot();
            let slow = self.fault(Fault::SlowFill);
            sleep(Duration::from_millis(if slow { 10_000 } else { 2 })).await;
            assert!(
                fill.template_root.join("etc/content").exists(),
                "the template is there while it is used"
            );
            if self.fault(Fault::Fill) {
                return Err(failed(slot, "fill"));
            }
            let mut world = self.world();
            let held = world.slots.get_mut(&slot).expect("nobody destroys what is being filled");
            held.filled = true;
            held.resources = Some(fill.resources);
            Ok(Live::new(slot, held.identity.clone(), duplicate(&held.watched)))
        })
    }

    fn limit(&self, live: &Live, resources: &Resources) -> Result<(), DriverError> {
        self.world().slots.get_mut(&live.slot()).unwrap().resources = Some(*resources);
        Ok(())
    }

    fn set_hostname(&self, live: &Live, _hostname: &str) -> Result<(), DriverError> {
        if self.fault(Fault::Hostname) { Err(failed(live.slot(), "name")) } else { Ok(()) }
    }

    fn usage(&self, live: &Live) -> Result<RawUsage, DriverError> {
        let world = self.world();
        let held = world.slots.get(&live.slot()).ok_or_else(|| failed(live.slot(), "measure"))?;
        Ok(RawUsage { oom_kills: held.oom_kills, memory_peak: 7, ..RawUsage::default() })
    }

    fn freeze(&self, _live: &Live) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async { Ok(()) })
    }

    fn thaw(&self, _live: &Live) -> Result<(), DriverError> {
        Ok(())
    }

    fn adopt(&self, slot: Slot, identity: &ProcessIdentity) -> Result<Live, AdoptError> {
        let world = self.world();
        let held = world.slots.get(&slot).ok_or(AdoptError::Gone { slot })?;
        if held.process.is_none() || held.identity != *identity || !held.filled {
            return Err(AdoptError::Gone { slot });
        }
        Ok(Live::new(slot, identity.clone(), duplicate(&held.watched)))
    }

    fn destroy(&self, slot: Slot) -> BoxFuture<'_, Result<(), DriverError>> {
        Box::pin(async move {
            sleep(Duration::from_millis(1)).await;
            if self.fault(Fault::Destroy) {
                return Err(failed(slot, "destroy"));
            }
            self.world().slots.remove(&slot);
            Ok(())
        })
    }
}

/// Agents that do what the test says.
#[derive(Debug, Default)]
pub(crate) struct FakeGuest {
    pub(crate) silent: std::sync::atomic::AtomicBool,
    pub(crate) configured: Mutex<Vec<(Slot, Configure)>>,
}

impl Guest for FakeGuest {
    fn configure<'a>(
        &'a self,
        live: &'a Live,
        configure: Configure,
    ) -> BoxFuture<'a, Result<(), GuestError>> {
        Box::pin(async move {
            if self.silent.load(Ordering::SeqCst) {
                sleep(Duration::from_secs(10)).await;
                return Err(GuestError::Deadline);
            }
            sleep(Duration::from_millis(1)).await;
            self.configured.lock().unwrap().push((live.slot(), configure));
            Ok(())
        })
    }

    fn ping<'a>(&'a self, _live: &'a Live) -> BoxFuture<'a, Result<(), GuestError>> {
        Box::pin(async { Ok(()) })
    }
}

/// The time of the test.
#[derive(Debug)]
pub(crate) struct FakeClock {
    start: Instant,
    offset_us: AtomicU64,
}

impl FakeClock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), offset_us: AtomicU64::new(1_800_000_000_000_000) }
    }

    pub(crate) fn after(&self, span: Duration) -> Timestamp {
        self.now().plus_millis(u64::try_from(span.as_millis()).unwrap())
    }

    /// As when somebody sets the clock of the host.
    pub(crate) fn jump(&self, span: Duration) {
        self.offset_us.fetch_add(u64::try_from(span.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.start.elapsed().as_micros()).unwrap();
        let micros = passed + self.offset_us.load(Ordering::SeqCst);
        Timestamp::from_micros(i64::try_from(micros).unwrap())
    }
}
