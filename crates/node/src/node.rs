//! Owns the start and the stop of the node: takes over what runs, clears what does not, opens the door, fills the pool.

use crate::clock::Clock;
use crate::events::{Ended, Events};
use crate::guest::Guest;
use crate::host::Host;
use crate::isolation::{AdoptError, Driver, Live, Slot};
use crate::link::{self, Door};
use crate::pool::{Pool, PoolSize};
use crate::records::{Claim, Found, RecordError, Records};
use crate::registry::Registry;
use crate::service::Service;
use crate::slots::Slots;
use crate::templates::TemplateStore;
use crate::undo::UndoStack;
use cofferdam_proto::node::EndReason;
use futures::StreamExt;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Slots above the sandboxes and the pool, for those that are on their way out.
const SLOTS_SPARE: u32 = 64;
/// Slots that are cleared at the same time at the start.
const CLEAR_WIDTH: usize = 8;
/// Tasks that fill the pool.
const REFILL_TASKS: usize = 2;
/// How long a node that stops waits for its pool to be gone.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// What a node is made of.
pub(crate) struct Parts {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) guest: Arc<dyn Guest>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) templates: Arc<TemplateStore>,
    pub(crate) records: Records,
    /// Slots that hold something, as far as the driver can tell.
    pub(crate) leftovers: Vec<Slot>,
    pub(crate) incarnation: String,
}

/// How large it is.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    pub(crate) sandboxes_max: u32,
    pub(crate) pool: PoolSize,
    /// Name of the template that is kept warm.
    pub(crate) template: String,
    pub(crate) data_dir: PathBuf,
}

impl Left {
    fn slots(&self) -> impl Iterator<Item = Slot> {
        self.adopted.iter().map(|(_, live)| live.slot()).chain(self.cleared.iter().copied())
    }
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) service: Arc<Service>,
    /// What ends by itself once the pool is closed.
    tasks: JoinSet<()>,
    /// What is cut off when the node stops.
    door: JoinSet<()>,
}

/// What an earlier node left.
#[derive(Debug, Default)]
struct Left {
    adopted: Vec<(Claim, Live)>,
    cleared: Vec<Slot>,
    lost: Vec<Ended>,
}

impl Node {
    /// Takes over what an earlier node left, and starts to fill the pool. Must be called within a runtime.
    pub(crate) fn start(parts: Parts, sizes: Sizes) -> Result<Self, RecordError> {
        let mut left = look_around(&*parts.driver, &parts.records)?;
        // A slot without a record is one whose record was lost.
        let recorded: BTreeSet<Slot> = left.slots().collect();
        left.cleared.extend(parts.leftovers.into_iter().filter(|slot| !recorded.contains(slot)));
        let taken: BTreeSet<Slot> = left.slots().collect();
        let slots = sizes.sandboxes_max.saturating_add(sizes.pool.total()).saturating_add(SLOTS_SPARE);
        let host = Arc::new(Host {
            driver: parts.driver,
            guest: parts.guest,
            clock: parts.clock,
            records: parts.records,
            slots: Slots::new(slots, &taken),
            templates: parts.templates,
            events: Events::default(),
            making: Semaphore::new(making_width()),
            busy: watch::channel(0).0,
            stopping: CancellationToken::new(),
        });
        let pool = Pool::new(Arc::clone(&host), sizes.pool, sizes.template);
        let registry = Registry::new(Arc::clone(&host), Arc::clone(&pool), sizes.sandboxes_max);
        let mut tasks = JoinSet::new();
        tracing::info!(
            adopted = left.adopted.len(),
            cleared = left.cleared.len(),
            lost = left.lost.len(),
            "took over what was there"
        );
        for (claim, live) in left.adopted {
            registry.adopt(claim, live);
        }
        for event in left.lost {
            tracing::warn!(sandbox = %event.sandbox, "a sandbox did not outlive the node");
            host.events.publish(&event);
        }
        if let Err(error) = host.templates.collect_garbage() {
            tracing::error!(%error, "cannot look for trees that no template needs");
        }
        tasks.spawn(clear(Arc::clone(&host), left.cleared));
        for _ in 0..REFILL_TASKS {
            tasks.spawn(Arc::clone(&pool).refill());
        }
        let service = Service {
            host,
            registry,
            pool,
            sandboxes_max: sizes.sandboxes_max,
            incarnation: parts.incarnation,
            data_dir: sizes.data_dir,
        };
        Ok(Self { service: Arc::new(service), tasks, door: JoinSet::new() })
    }

    /// Opens the door to the server.
    pub(crate) fn open(&mut self, door: Door) -> io::Result<()> {
        let listener = link::bind(&door)?;
        self.door.spawn(link::serve(listener, door, Arc::clone(&self.service)));
        Ok(())
    }

    /// Stops taking requests and returns what waits in the pool. Sandboxes go on. Says whether there are none.
    pub(crate) async fn stop(mut self, socket: &std::path::Path) -> bool {
        link::close(socket);
        self.door.abort_all();
        let closed = async {
            self.service.pool.close().await;
            self.tasks.join_all().await
        };
        if timeout(STOP_DEADLINE, closed).await.is_err() {
            tracing::warn!("the pool is not gone yet; the next start clears it");
        }
        self.service.host.stop();
        self.service.registry.count() == 0
    }
}

/// Making a sandbox is work of the processor; more at a time than this only makes each one slower.
fn making_width() -> usize {
    std::thread::available_parallelism().map_or(4, |cores| cores.get() * 4)
}

fn look_around(driver: &dyn Driver, records: &Records) -> Result<Left, RecordError> {
    let mut left = Left::default();
    for found in records.load()? {
        let (slot, claim) = match found {
            Found::Record(record) => (record.slot, record.claim),
            Found::Unreadable(slot) => (slot, None),
        };
        let Some(claim) = claim else {
            left.cleared.push(slot);
            continue;
        };
        match driver.adopt(slot, &claim.process) {
            Ok(live) => left.adopted.push((claim, live)),
            Err(error) => {
                if !matches!(error, AdoptError::Gone { .. }) {
                    tracing::error!(sandbox = %claim.spec.id, error = ?error, "cannot take over a sandbox");
                }
                left.cleared.push(slot);
                left.lost.push(Ended { sandbox: claim.spec.id, reason: EndReason::Lost });
            }
        }
    }
    Ok(left)
}

async fn clear(host: Arc<Host>, slots: Vec<Slot>) {
    let clear = |slot| UndoStack::of(slot).unwind(&host);
    futures::stream::iter(slots).for_each_concurrent(CLEAR_WIDTH, clear).await;
}
