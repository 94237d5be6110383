//! Owns the life of one sandbox: one task makes it, waits for its end, and returns everything. What is legal when is
//! decided by `core::lifecycle`; this performs it. A client that goes away cancels nothing: the task goes on by itself.

use crate::events::Ended;
use crate::host::{Host, MakeError, claim_record, failure};
use crate::isolation::Live;
use crate::pidfd;
use crate::pool::Pool;
use crate::templates::Lease;
use crate::undo::UndoStack;
use cofferdam_core::lifecycle::{Decision, Request, decide};
use cofferdam_core::{ErrorKind, LimitHit, LimitKind, SandboxSpec, State, TemplateInfo, Timestamp};
use cofferdam_proto::guest::Failure;
use cofferdam_proto::node::{EndReason, SandboxRecord};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Requests that wait for one sandbox.
pub(crate) const MAILBOX_MAX: usize = 32;
/// The wall clock is looked at this often at least, because it may be set.
const CLOCK_CHECK: Duration = Duration::from_secs(15);

/// What others see of a sandbox. The channel that carries it closes when nothing of the sandbox is left.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) record: SandboxRecord,
    /// There while it can be used.
    pub(crate) live: Option<Arc<Live>>,
    /// Why it could not be made.
    pub(crate) failure: Option<Failure>,
}

/// Asks for a later or earlier deadline.
#[derive(Debug)]
pub(crate) struct SetDeadline {
    pub(crate) expires_at: Timestamp,
    pub(crate) reply: oneshot::Sender<Result<SandboxRecord, Failure>>,
}

/// What is needed to make a sandbox.
pub(crate) struct Order {
    pub(crate) spec: SandboxSpec,
    pub(crate) template: TemplateInfo,
    pub(crate) lease: Lease,
}

/// A sandbox that runs, and how all of it is returned.
pub(crate) struct Running {
    pub(crate) live: Arc<Live>,
    pub(crate) lease: Lease,
    pub(crate) undo: UndoStack,
    pub(crate) started_at: Timestamp,
}

/// The task's own side of a sandbox.
pub(crate) struct Actor {
    pub(crate) host: Arc<Host>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) spec: SandboxSpec,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) mailbox: mpsc::Receiver<SetDeadline>,
    pub(crate) kill: CancellationToken,
}

/// Why a running sandbox stops.
enum Ending {
    Killed,
    Expired,
    Died,
}

impl Actor {
    /// Makes the sandbox, then lives its life to the end.
    pub(crate) async fn create(&mut self, order: Order) {
        let mut undo = UndoStack::default();
        let made = self.make(&order, &mut undo).await;
        match made {
            Ok((live, started_at)) => {
                let running = Running { live: Arc::new(live), lease: order.lease, undo, started_at };
                self.show(&running);
                self.live(running).await;
            }
            Err(error) => {
                self.not_made(&error);
                undo.unwind(&self.host).await;
                self.go(Request::KillDone);
            }
        }
    }

    /// Lets everybody see that the sandbox can be used.
    pub(crate) fn show(&self, running: &Running) {
        self.status.send_modify(|status| {
            status.record.started_at = running.started_at;
            status.live = Some(Arc::clone(&running.live));
        });
        self.go(Request::Created);
    }

    /// Lives the life of a sandbox that runs, to its end.
    pub(crate) async fn live(&mut self, running: Running) {
        tracing::info!(sandbox = %self.spec.id, slot = %running.live.slot(), "sandbox runs");
        let ending = self.wait_for_end(&running).await;
        self.end(&ending, &running.live);
        running.undo.unwind(&self.host).await;
        drop(running.lease);
        self.go(Request::KillDone);
        tracing::info!(sandbox = %self.spec.id, "nothing of the sandbox is left");
    }

    /// Out of the pool when it has something that fits. An item that died while it waited costs one more try.
    async fn make(&self, order: &Order, undo: &mut UndoStack) -> Result<(Live, Timestamp), MakeError> {
        let _busy = self.host.busy();
        if let Some(ready) = self.pool.take_sandbox(&order.spec.digest) {
            let mut warm_undo = ready.undo;
            let result = async {
                if ready.resources != order.spec.resources {
                    self.host.driver.limit(&ready.live, &order.spec.resources)?;
                }
                self.host.hand_out(&ready.live, &order.spec, &order.template, &self.kill).await
            };
            match result.await {
                Ok(started_at) => {
                    std::mem::swap(undo, &mut warm_undo);
                    return Ok((ready.live, started_at));
                }
                Err(error) => self.lose_item(warm_undo, error)?,
            }
        }
        let permit = self.kill.run_until_cancelled(self.host.making.acquire()).await;
        // The semaphore is never closed, so no permit means a kill.
        let _permit = permit.and_then(Result::ok).ok_or(MakeError::Killed)?;
        if let Some(ready) = self.pool.take_shell() {
            let mut shell_undo = ready.undo;
            match self.finish(ready.parked, order).await {
                Ok(made) => {
                    std::mem::swap(undo, &mut shell_undo);
                    return Ok(made);
                }
                Err(error) => self.lose_item(shell_undo, error)?,
            }
        }
        let parked = self.host.park(undo).await?;
        self.finish(parked, order).await
    }

    async fn finish(
        &self,
        parked: crate::isolation::Parked,
        order: &Order,
    ) -> Result<(Live, Timestamp), MakeError> {
        self.still_wanted()?;
        let live = self.host.fill(parked, &order.lease, order.spec.resources).await?;
        self.still_wanted()?;
        let started_at = self.host.hand_out(&live, &order.spec, &order.template, &self.kill).await?;
        Ok((live, started_at))
    }

    /// A step of the driver is never cut off; between steps a kill stops the work.
    fn still_wanted(&self) -> Result<(), MakeError> {
        if self.kill.is_cancelled() { Err(MakeError::Killed) } else { Ok(()) }
    }

    /// Cleans up after an item of the pool behind the client's back, unless its failure is final.
    fn lose_item(&self, undo: UndoStack, error: MakeError) -> Result<(), MakeError> {
        let host = Arc::clone(&self.host);
        self.host.spawn(async move { undo.unwind(&host).await });
        if matches!(error, MakeError::Killed) {
            return Err(error);
        }
        tracing::warn!(sandbox = %self.spec.id, error = ?error, "an item of the pool was unusable");
        Ok(())
    }

    fn not_made(&self, error: &MakeError) {
        let public = error.public();
        self.status.send_modify(|status| status.failure = Some(public));
        match error {
            MakeError::Killed => {
                self.go(Request::Kill);
            }
            _ => {
                tracing::error!(sandbox = %self.spec.id, error = ?error, "cannot make a sandbox");
                self.go(Request::Died);
            }
        }
    }

    async fn wait_for_end(&mut self, running: &Running) -> Ending {
        let ended = pidfd::ended(running.live.as_fd());
        tokio::pin!(ended);
        loop {
            let expired = expired(&self.host, self.spec.expires_at);
            tokio::select! {
                biased;
                () = self.kill.cancelled() => return Ending::Killed,
                () = &mut ended => return Ending::Died,
                () = expired => return Ending::Expired,
                Some(request) = self.mailbox.recv() => self.set_deadline(request, running).await,
            }
        }
    }

    async fn set_deadline(&mut self, request: SetDeadline, running: &Running) {
        let answer = match decide(self.state(), Request::SetDeadline) {
            Decision::Stay | Decision::Go(_) => self.move_deadline(request.expires_at, running).await,
            Decision::Wait | Decision::Refuse => {
                Err(failure(ErrorKind::Conflict, "the sandbox cannot change its deadline now"))
            }
            Decision::Gone => Err(not_found(&self.spec)),
        };
        // The caller may be gone; the deadline holds all the same.
        if request.reply.send(answer).is_err() {
            tracing::debug!(sandbox = %self.spec.id, "nobody waits for the new deadline any more");
        }
    }

    async fn move_deadline(&mut self, at: Timestamp, running: &Running) -> Result<SandboxRecord, Failure> {
        let spec = SandboxSpec { expires_at: at, ..self.spec.clone() };
        let record = claim_record(&running.live, &spec, running.started_at);
        if let Err(error) = self.host.records.write(record).await {
            tracing::error!(sandbox = %self.spec.id, error = ?error, "cannot record a deadline");
            return Err(failure(ErrorKind::Internal, "the node could not record the new deadline"));
        }
        self.spec = spec;
        self.status.send_modify(|status| status.record.expires_at = at);
        Ok(self.status.borrow().record.clone())
    }

    fn end(&mut self, ending: &Ending, live: &Live) {
        // What waits is answered with "does not exist" by the fall of its reply channel.
        self.mailbox.close();
        while self.mailbox.try_recv().is_ok() {}
        let (request, reason) = match ending {
            Ending::Killed => (Request::Kill, None),
            Ending::Expired => (Request::Kill, Some(EndReason::Expired)),
            Ending::Died => (Request::Died, Some(self.why_died(live))),
        };
        self.status.send_modify(|status| status.live = None);
        self.go(request);
        if let Some(reason) = reason {
            tracing::info!(sandbox = %self.spec.id, ?reason, "sandbox ended");
            self.host.events.publish(&Ended { sandbox: self.spec.id.clone(), reason });
        }
    }

    fn why_died(&self, live: &Live) -> EndReason {
        match self.host.driver.usage(live) {
            Ok(usage) if usage.oom_kills > 0 => {
                let configured = u64::from(self.spec.resources.memory_mib) << 20;
                let hit = LimitHit { limit: LimitKind::Memory, configured, observed: usage.memory_peak };
                EndReason::Limit { hit }
            }
            Ok(_) => EndReason::AgentDied,
            Err(error) => {
                tracing::debug!(sandbox = %self.spec.id, error = ?error, "no usage of a dead sandbox");
                EndReason::AgentDied
            }
        }
    }

    fn state(&self) -> State {
        self.status.borrow().record.state
    }

    /// Takes the step that the table allows; others change nothing.
    fn go(&self, request: Request) {
        match decide(self.state(), request) {
            Decision::Go(next) => self.status.send_modify(|status| status.record.state = next),
            Decision::Stay | Decision::Wait | Decision::Refuse | Decision::Gone => {}
        }
    }
}

pub(crate) fn not_found(spec: &SandboxSpec) -> Failure {
    failure(ErrorKind::NotFound, format!("sandbox {} does not exist", spec.id))
}

/// Completes when the wall clock has reached the deadline.
async fn expired(host: &Host, at: Timestamp) {
    loop {
        let now = host.clock.now();
        if now >= at {
            return;
        }
        let left = Duration::from_millis(at.millis_since(now) + 1);
        tokio::time::sleep(left.min(CLOCK_CHECK)).await;
    }
}
