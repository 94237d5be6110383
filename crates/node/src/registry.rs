//! Owns which sandboxes this node has, by id: makes their actors, finds them for requests, and remembers for a while which
//! ids have ended, so that a late request cannot bring one back.

use crate::actor::{Actor, MAILBOX_MAX, Order, Running, SetDeadline, Status};
use crate::host::{Host, failure};
use crate::isolation::Live;
use crate::pool::Pool;
use crate::records::Claim;
use cofferdam_core::lifecycle::{Decision, Request, decide};
use cofferdam_core::{ErrorKind, SandboxId, SandboxSpec, State, Timestamp};
use cofferdam_proto::guest::Failure;
use cofferdam_proto::node::SandboxRecord;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Ids that are remembered after their end.
const ENDED_MAX: usize = 16_384;
/// How long a kill is waited for before the caller is told that it goes on by itself.
const KILL_DEADLINE: Duration = Duration::from_secs(30);
/// How long a request waits for a sandbox that is on its way to be usable.
const USE_DEADLINE: Duration = Duration::from_secs(30);

/// The way to one sandbox.
#[derive(Debug, Clone)]
struct Handle {
    status: watch::Receiver<Status>,
    mailbox: mpsc::Sender<SetDeadline>,
    kill: CancellationToken,
}

#[derive(Debug, Default)]
struct Sandboxes {
    live: BTreeMap<SandboxId, Handle>,
    ended: BTreeSet<SandboxId>,
    ended_order: VecDeque<SandboxId>,
}

impl Sandboxes {
    fn remember_end(&mut self, id: SandboxId) {
        if self.ended.insert(id.clone()) {
            self.ended_order.push_back(id);
        }
        if self.ended_order.len() > ENDED_MAX
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }
}

/// See the module.
pub(crate) struct Registry {
    host: Arc<Host>,
    pool: Arc<Pool>,
    sandboxes_max: u32,
    sandboxes: Mutex<Sandboxes>,
}

impl Registry {
    pub(crate) fn new(host: Arc<Host>, pool: Arc<Pool>, sandboxes_max: u32) -> Arc<Self> {
        Arc::new(Self { host, pool, sandboxes_max, sandboxes: Mutex::default() })
    }

    fn sandboxes(&self) -> MutexGuard<'_, Sandboxes> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sandboxes that exist.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.sandboxes().live.len()).unwrap_or(u32::MAX)
    }

    /// Makes a sandbox, or waits for the one that has this id.
    pub(crate) async fn create(self: &Arc<Self>, spec: SandboxSpec) -> Result<SandboxRecord, Failure> {
        check(&spec)?;
        let mut status = self.find_or_start(spec)?;
        // An error means that it is gone already; its last status says why.
        let known = status.wait_for(|status| status.record.state != State::Creating).await.is_ok();
        let status = status.borrow().clone();
        match (status.record.state, status.failure) {
            (_, Some(failure)) => Err(failure),
            (State::Creating, None) if !known => Err(failure(ErrorKind::Internal, "the sandbox was lost")),
            (state, None) if state.is_final() || state == State::Killing => {
                Err(failure(ErrorKind::Conflict, format!("sandbox {} has ended", status.record.id)))
            }
            (_, None) => Ok(status.record),
        }
    }

    fn find_or_start(self: &Arc<Self>, spec: SandboxSpec) -> Result<watch::Receiver<Status>, Failure> {
        let mut sandboxes = self.sandboxes();
        if let Some(handle) = sandboxes.live.get(&spec.id) {
            return Ok(handle.status.clone());
        }
        if sandboxes.ended.contains(&spec.id) {
            return Err(failure(ErrorKind::Conflict, format!("sandbox {} has ended", spec.id)));
        }
        if sandboxes.live.len() >= self.sandboxes_max as usize {
            let message = format!("the node holds its {} sandboxes", self.sandboxes_max);
            return Err(failure(ErrorKind::ResourceExhausted, message));
        }
        let (template, lease) = self.host.templates.lease(&spec.template, &spec.digest)?;
        let (mut actor, handle) = self.actor(spec.clone(), self.host.clock.now());
        sandboxes.live.insert(spec.id.clone(), handle.clone());
        drop(sandboxes);
        let registry = Arc::clone(self);
        self.host.spawn(async move {
            actor.create(Order { spec, template, lease }).await;
            registry.forget(actor);
        });
        Ok(handle.status)
    }

    /// Takes over a sandbox that an earlier node process made.
    pub(crate) fn adopt(self: &Arc<Self>, claim: Claim, live: Live) {
        let undo = crate::undo::UndoStack::of(live.slot());
        let lease = self.host.templates.adopt(claim.digest());
        let running = Running { live: Arc::new(live), lease, undo, started_at: claim.started_at };
        let (mut actor, handle) = self.actor(claim.spec.clone(), claim.started_at);
        actor.show(&running);
        self.sandboxes().live.insert(claim.spec.id, handle);
        let registry = Arc::clone(self);
        self.host.spawn(async move {
            actor.live(running).await;
            registry.forget(actor);
        });
    }

    fn actor(&self, spec: SandboxSpec, started_at: Timestamp) -> (Actor, Handle) {
        let record = SandboxRecord {
            id: spec.id.clone(),
            state: State::Creating,
            resources: spec.resources,
            started_at,
            expires_at: spec.expires_at,
        };
        let (status, status_seen) = watch::channel(Status { record, live: None, failure: None });
        let (mailbox, requests) = mpsc::channel(MAILBOX_MAX);
        let kill = CancellationToken::new();
        let actor = Actor {
            host: Arc::clone(&self.host),
            pool: Arc::clone(&self.pool),
            spec,
            status,
            mailbox: requests,
            kill: kill.clone(),
        };
        (actor, Handle { status: status_seen, mailbox, kill })
    }

    /// Lets those who wait know that nothing is left, by dropping the actor after its entry. A sandbox that could not be
    /// made may be asked for again.
    fn forget(&self, actor: Actor) {
        let status = actor.status.borrow().clone();
        let mut sandboxes = self.sandboxes();
        sandboxes.live.remove(&status.record.id);
        if status.failure.is_none() || status.record.state == State::Killed {
            sandboxes.remember_end(status.record.id);
        }
        drop(sandboxes);
        drop(actor);
    }

    fn find(&self, id: &SandboxId) -> Option<Handle> {
        self.sandboxes().live.get(id).cloned()
    }

    /// Ends a sandbox and waits until nothing of it is left. An unknown one stays unknown: it cannot be made later.
    pub(crate) async fn kill(&self, id: &SandboxId) -> Result<(), Failure> {
        let Some(mut handle) = self.find(id) else {
            self.sandboxes().remember_end(id.clone());
            return Ok(());
        };
        handle.kill.cancel();
        let gone = async { while handle.status.changed().await.is_ok() {} };
        timeout(KILL_DEADLINE, gone).await.map_err(|_| {
            let message = format!("sandbox {id} is being ended, and the host is slow to return what it used");
            failure(ErrorKind::DeadlineExceeded, message)
        })
    }

    /// Moves the deadline of a sandbox.
    pub(crate) async fn set_deadline(&self, id: &SandboxId, at: Timestamp) -> Result<SandboxRecord, Failure> {
        let handle = self.find(id).ok_or_else(|| unknown(id))?;
        let (reply, answer) = oneshot::channel();
        handle.mailbox.try_send(SetDeadline { expires_at: at, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                failure(ErrorKind::ResourceExhausted, "too many requests wait for this sandbox")
            }
            mpsc::error::TrySendError::Closed(_) => unknown(id),
        })?;
        // The actor drops what it did not answer when the sandbox ends.
        answer.await.unwrap_or_else(|_| Err(unknown(id)))
    }

    /// The sandbox, once it can be used.
    pub(crate) async fn usable(&self, id: &SandboxId) -> Result<Arc<Live>, Failure> {
        let mut handle = self.find(id).ok_or_else(|| unknown(id))?;
        let waiting = async {
            let decided = handle.status.wait_for(|s| decide(s.record.state, Request::Use) != Decision::Wait);
            decided.await.map(|status| status.clone())
        };
        let status = timeout(USE_DEADLINE, waiting).await;
        let status = status.map_err(|_| failure(ErrorKind::Unavailable, "the sandbox is not ready yet"))?;
        let status = status.map_err(|_| unknown(id))?;
        match (decide(status.record.state, Request::Use), status.live) {
            (Decision::Stay | Decision::Go(_), Some(live)) => Ok(live),
            (Decision::Refuse, _) => {
                let message = format!("sandbox {id} is {}", status.record.state.as_str());
                Err(failure(ErrorKind::Conflict, message))
            }
            (Decision::Stay | Decision::Go(_) | Decision::Wait | Decision::Gone, _) => Err(unknown(id)),
        }
    }

    /// At most `count` sandboxes in order of id, after the given one.
    pub(crate) fn list(&self, after: Option<&SandboxId>, count: usize) -> Vec<SandboxRecord> {
        let sandboxes = self.sandboxes();
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = sandboxes.live.range::<SandboxId, _>((start, Bound::Unbounded)).take(count);
        page.map(|(_, handle)| handle.status.borrow().record.clone()).collect()
    }
}

fn unknown(id: &SandboxId) -> Failure {
    failure(ErrorKind::NotFound, format!("sandbox {id} does not exist"))
}

fn check(spec: &SandboxSpec) -> Result<(), Failure> {
    use cofferdam_core::limits;
    let refuse = |message: &str| Err(failure(ErrorKind::InvalidArgument, message));
    if let Err(error) = spec.resources.validate() {
        return Err(failure(ErrorKind::InvalidArgument, error.to_string()));
    }
    let label = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if !(1..=63).contains(&spec.hostname.len()) || !spec.hostname.bytes().all(label) {
        return refuse("a host name has 1 to 63 letters, digits or `-`");
    }
    let bytes: usize = spec.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if spec.env.len() > limits::ENV_COUNT_MAX || bytes > limits::ENV_BYTES_MAX {
        return refuse("the environment is too large");
    }
    let malformed =
        |name: &str, value: &str| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    if spec.env.iter().any(|(name, value)| malformed(name, value)) {
        return refuse("the environment has a malformed variable");
    }
    Ok(())
}
