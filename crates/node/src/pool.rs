//! Owns what is made ahead of need: parked shells for any template, and warm sandboxes of the default template whose
//! agent answers already. Refilled while no client waits for a create; never holds more than it was told to.

use crate::host::{Host, MakeError};
use crate::isolation::{Live, Parked, Slot};
use crate::pidfd;
use crate::templates::Lease;
use crate::undo::UndoStack;
use cofferdam_core::{Digest, Resources};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(30);

/// How much is made ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolSize {
    pub(crate) parked: u32,
    pub(crate) warm: u32,
}

impl PoolSize {
    pub(crate) fn total(self) -> u32 {
        self.parked.saturating_add(self.warm)
    }
}

/// A shell out of the pool.
#[derive(Debug)]
pub(crate) struct ReadyShell {
    pub(crate) parked: Parked,
    pub(crate) undo: UndoStack,
    _watch: Watch,
}

/// A booted sandbox out of the pool.
#[derive(Debug)]
pub(crate) struct ReadySandbox {
    pub(crate) live: Live,
    pub(crate) lease: Lease,
    pub(crate) resources: Resources,
    pub(crate) undo: UndoStack,
    _watch: Watch,
}

/// Ends the watching of an item when it leaves the pool.
#[derive(Debug)]
struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What waits, and what is on the way.
#[derive(Default)]
struct Stock {
    shells: VecDeque<ReadyShell>,
    sandboxes: VecDeque<ReadySandbox>,
    shells_coming: usize,
    sandboxes_coming: usize,
    closed: bool,
}

/// See the module.
pub(crate) struct Pool {
    host: Arc<Host>,
    size: PoolSize,
    /// Short name of the template that is kept warm.
    template: String,
    stock: Mutex<Stock>,
    /// Something is missing, or the template changed.
    changed: Notify,
}

enum Job {
    Shell,
    Sandbox(Lease),
}

impl Pool {
    pub(crate) fn new(host: Arc<Host>, size: PoolSize, template: String) -> Arc<Self> {
        Arc::new(Self { host, size, template, stock: Mutex::default(), changed: Notify::new() })
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shells and sandboxes that wait.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let stock = self.stock();
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        (count(stock.shells.len()), count(stock.sandboxes.len()))
    }

    /// A booted sandbox of that tree, if one waits.
    pub(crate) fn take_sandbox(&self, digest: &Digest) -> Option<ReadySandbox> {
        let mut stock = self.stock();
        let index = stock.sandboxes.iter().position(|ready| ready.lease.digest() == digest)?;
        let ready = stock.sandboxes.remove(index);
        self.changed.notify_one();
        ready
    }

    /// A shell, if one waits.
    pub(crate) fn take_shell(&self) -> Option<ReadyShell> {
        let ready = self.stock().shells.pop_front();
        self.changed.notify_one();
        ready
    }

    /// Lets go of sandboxes whose template is not the current one any more.
    pub(crate) async fn follow_templates(&self) {
        let current = self.host.templates.current(&self.template).map(|info| info.digest);
        let stale: Vec<ReadySandbox> = {
            let mut stock = self.stock();
            let (keep, stale) = std::mem::take(&mut stock.sandboxes)
                .into_iter()
                .partition(|ready| Some(ready.lease.digest()) == current.as_ref());
            stock.sandboxes = keep;
            Vec::from_iter::<VecDeque<_>>(stale)
        };
        self.changed.notify_one();
        for ready in stale {
            ready.undo.unwind(&self.host).await;
        }
    }

    /// Keeps the pool full until it is closed. To be run as a task.
    pub(crate) async fn refill(self: Arc<Self>) {
        let mut busy = self.host.busy.subscribe();
        let mut pause = RETRY_FIRST;
        loop {
            let changed = self.changed.notified();
            // The sender lives in the host, which lives in this pool: waiting cannot fail.
            let quiet = busy.wait_for(|count| *count == 0).await.is_ok();
            if !quiet || self.stock().closed {
                return;
            }
            match self.next_job() {
                None => changed.await,
                Some(job) => match self.make(job).await {
                    Ok(()) => pause = RETRY_FIRST,
                    Err(error) => {
                        tracing::warn!(error = ?error, "cannot make a sandbox ahead of need; trying again");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(RETRY_LAST);
                    }
                },
            }
        }
    }

    /// What is missing most. Counts what is on the way, so that several tasks together never overshoot.
    fn next_job(&self) -> Option<Job> {
        let lease = self.host.templates.lease_current(&self.template);
        let mut stock = self.stock();
        let wanted = |size: u32, there: usize, coming: usize| there + coming < size as usize;
        if let Some(lease) = lease
            && wanted(self.size.warm, stock.sandboxes.len(), stock.sandboxes_coming)
        {
            stock.sandboxes_coming += 1;
            return Some(Job::Sandbox(lease));
        }
        if wanted(self.size.parked, stock.shells.len(), stock.shells_coming) {
            stock.shells_coming += 1;
            return Some(Job::Shell);
        }
        None
    }

    async fn make(self: &Arc<Self>, job: Job) -> Result<(), MakeError> {
        let mut undo = UndoStack::default();
        let result = match job {
            Job::Shell => {
                let parked = self.host.park(&mut undo).await;
                self.put_shell(parked, &mut undo)
            }
            Job::Sandbox(lease) => {
                let live = self.boot(&lease, &mut undo).await;
                self.put_sandbox(live, lease, &mut undo)
            }
        };
        // Empty when the item was put in.
        undo.unwind(&self.host).await;
        result
    }

    async fn boot(&self, lease: &Lease, undo: &mut UndoStack) -> Result<Live, MakeError> {
        let parked = self.host.park(undo).await?;
        let live = self.host.fill(parked, lease, Resources::default()).await?;
        self.host.guest.ping(&live).await?;
        Ok(live)
    }

    fn put_shell(
        self: &Arc<Self>,
        made: Result<Parked, MakeError>,
        undo: &mut UndoStack,
    ) -> Result<(), MakeError> {
        let mut stock = self.stock();
        stock.shells_coming -= 1;
        let parked = made?;
        if !stock.closed {
            let _watch = self.watch(parked.slot(), &parked);
            stock.shells.push_back(ReadyShell { parked, undo: std::mem::take(undo), _watch });
        }
        Ok(())
    }

    fn put_sandbox(
        self: &Arc<Self>,
        made: Result<Live, MakeError>,
        lease: Lease,
        undo: &mut UndoStack,
    ) -> Result<(), MakeError> {
        let mut stock = self.stock();
        stock.sandboxes_coming -= 1;
        let live = made?;
        // The template may have changed while it booted.
        let current = self.host.templates.current(&self.template).map(|info| info.digest);
        if !stock.closed && current.as_ref() == Some(lease.digest()) {
            let _watch = self.watch(live.slot(), &live);
            let (undo, resources) = (std::mem::take(undo), Resources::default());
            stock.sandboxes.push_back(ReadySandbox { live, lease, resources, undo, _watch });
        }
        Ok(())
    }

    /// Throws an item away when its process dies while it waits.
    fn watch(self: &Arc<Self>, slot: Slot, process: &impl AsFd) -> Watch {
        let (pool, ended) = (Arc::downgrade(self), pidfd::ended(process.as_fd()));
        Watch(self.host.spawn(async move {
            ended.await;
            if let Some(pool) = Weak::upgrade(&pool) {
                // A task of its own, because removing the item ends this one.
                let host = Arc::clone(&pool.host);
                host.spawn(pool.discard(slot));
            }
        }))
    }

    async fn discard(self: Arc<Self>, slot: Slot) {
        let Some(undo) = self.remove(slot) else { return };
        tracing::warn!(%slot, "a sandbox made ahead of need died");
        undo.unwind(&self.host).await;
        self.changed.notify_one();
    }

    fn remove(&self, slot: Slot) -> Option<UndoStack> {
        let mut stock = self.stock();
        if let Some(index) = stock.shells.iter().position(|ready| ready.parked.slot() == slot) {
            return stock.shells.remove(index).map(|ready| ready.undo);
        }
        let index = stock.sandboxes.iter().position(|ready| ready.live.slot() == slot)?;
        stock.sandboxes.remove(index).map(|ready| ready.undo)
    }

    /// Returns everything that waits, and takes in nothing more.
    pub(crate) async fn close(&self) {
        let (shells, sandboxes) = {
            let mut stock = self.stock();
            stock.closed = true;
            (std::mem::take(&mut stock.shells), std::mem::take(&mut stock.sandboxes))
        };
        self.changed.notify_waiters();
        let mut undoing = JoinSet::new();
        let shells = shells.into_iter().map(|ready| ready.undo);
        for undo in shells.chain(sandboxes.into_iter().map(|ready| ready.undo)) {
            let host = Arc::clone(&self.host);
            undoing.spawn(async move { undo.unwind(&host).await });
        }
        undoing.join_all().await;
    }
}
