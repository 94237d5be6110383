//! Owns the sandboxes that have not ended, in memory: what the gateway asks for on every request, and the signal that
//! one is going away.

use super::model::TemplateRef;
use cofferdam_core::secret::Secret;
use cofferdam_core::{Resources, SandboxId, State, TenantId, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, RwLock};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A sandbox that has not ended, as the gateway needs it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LiveSandbox(Arc<Live>);

#[derive(Debug)]
struct Live {
    facts: LiveFacts,
    expires_at_us: AtomicI64,
    state: watch::Sender<State>,
    ended: CancellationToken,
}

/// What does not change while a sandbox lives.
#[derive(Debug)]
pub struct LiveFacts {
    /// Its id.
    pub id: SandboxId,
    /// Its owner.
    pub tenant: TenantId,
    /// Its template.
    pub template: TemplateRef,
    /// Limits in force.
    pub resources: Resources,
    /// Environment given at creation and by the template.
    pub env: BTreeMap<String, String>,
    /// Access token; `None` when it is not secured.
    pub access_token: Option<Secret>,
    /// Traffic token; `None` when its ports are public.
    pub traffic_token: Option<Secret>,
    /// As given at creation.
    pub options: serde_json::Value,
}

impl std::ops::Deref for LiveSandbox {
    type Target = LiveFacts;

    fn deref(&self) -> &LiveFacts {
        &self.0.facts
    }
}

impl LiveSandbox {
    pub(super) fn new(facts: LiveFacts, state: State, expires_at: Timestamp) -> Self {
        Self(Arc::new(Live {
            facts,
            expires_at_us: AtomicI64::new(expires_at.as_micros()),
            state: watch::Sender::new(state),
            ended: CancellationToken::new(),
        }))
    }

    /// Where it is in its life now.
    pub fn state(&self) -> State {
        *self.0.state.borrow()
    }

    /// To wait for another state.
    pub fn watch_state(&self) -> watch::Receiver<State> {
        self.0.state.subscribe()
    }

    /// Planned end.
    pub fn expires_at(&self) -> Timestamp {
        Timestamp::from_micros(self.0.expires_at_us.load(Ordering::Relaxed))
    }

    /// Fires when the sandbox ends or begins to be killed: after [`Registry`] has forgotten it, so that whoever asks
    /// again is told that there is none, and before anything inside is torn down, so that streams can be aborted.
    pub fn ended(&self) -> &CancellationToken {
        &self.0.ended
    }

    /// It runs, unless it is being ended already.
    pub(super) fn started(&self) {
        self.0.state.send_if_modified(|state| {
            let starts = *state == State::Creating;
            if starts {
                *state = State::Running;
            }
            starts
        });
    }

    pub(super) fn set_expires_at(&self, expires_at: Timestamp) {
        self.0.expires_at_us.store(expires_at.as_micros(), Ordering::Relaxed);
    }
}

/// All sandboxes that have not ended.
#[derive(Debug, Default)]
pub struct Registry(RwLock<HashMap<SandboxId, LiveSandbox>>);

impl Registry {
    /// The sandbox of that id, whoever owns it.
    pub fn get(&self, id: &SandboxId) -> Option<LiveSandbox> {
        self.read().get(id).cloned()
    }

    /// Every one of them.
    pub fn all(&self) -> Vec<LiveSandbox> {
        self.read().values().cloned().collect()
    }

    pub(super) fn insert(&self, sandbox: LiveSandbox) {
        self.write().insert(sandbox.id.clone(), sandbox);
    }

    /// Forgets it, then fires its token. The order is the promise of [`LiveSandbox::ended`].
    pub(super) fn end(&self, id: &SandboxId) -> Option<LiveSandbox> {
        let sandbox = self.write().remove(id)?;
        sandbox.0.state.send_replace(State::Killing);
        sandbox.0.ended.cancel();
        Some(sandbox)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashMap<SandboxId, LiveSandbox>> {
        self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<SandboxId, LiveSandbox>> {
        self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
