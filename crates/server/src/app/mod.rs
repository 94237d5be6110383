//! Owns the use cases: what can be done, by whom, in which order, whatever surface asks. One file each.
//!
//! Knows no HTTP. Everything that changes something is permitted first, recorded before it is done and after. What was
//! begun is finished even if the caller goes away.

mod agent;
mod auth;
mod command;
mod converge;
mod create;
mod deadline;
mod error;
mod host;
mod keys;
mod kill;
mod list;
mod live;
mod logs;
mod model;
mod record;
mod templates;
mod upkeep;

pub use agent::{Agent, Upload};
pub use command::Command;
pub use error::AppError;
pub use live::{LiveFacts, LiveSandbox, Registry};
pub use model::*;
pub use templates::{Progress, TemplateView};

use crate::cluster::{NodeEvent, NodeLink};
use crate::store::Store;
use cofferdam_audit::Journal;
use cofferdam_core::{Resources, SandboxId, Timestamp};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The time, as everything in the server sees it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What the use cases need to know beforehand.
#[derive(Clone)]
pub struct Settings {
    /// Name under which sandboxes are reached, `NAME[:PORT]`, when there is one.
    pub domain: Option<String>,
    /// Limits of a sandbox whose request names none.
    pub resources: Resources,
    /// Longest life span that a request may ask for, in seconds.
    pub timeout_seconds_max: u64,
    /// The time.
    pub clock: Clock,
}

/// What the use cases act on.
pub struct Parts {
    /// What should be.
    pub store: Store,
    /// The record.
    pub journal: Journal,
    /// The way to the node.
    pub link: NodeLink,
    /// What the node says unasked.
    pub events: mpsc::Receiver<NodeEvent>,
}

/// The use cases. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    settings: Settings,
    store: Store,
    journal: Arc<Journal>,
    link: NodeLink,
    registry: Registry,
    actors: auth::Cache,
    catalogue: templates::Catalogue,
    /// Sandboxes that a task of this process is making.
    being_made: Mutex<HashSet<SandboxId>>,
}

impl App {
    /// Loads what has not ended, and keeps everything in step with the node until `stop` fires.
    pub async fn start(settings: Settings, parts: Parts, stop: CancellationToken) -> Result<Self, AppError> {
        let app = Self(Arc::new(Inner {
            settings,
            store: parts.store,
            journal: Arc::new(parts.journal),
            link: parts.link,
            registry: Registry::default(),
            actors: auth::Cache::default(),
            catalogue: templates::Catalogue::default(),
            being_made: Mutex::new(HashSet::new()),
        }));
        app.load().await?;
        tokio::spawn(app.clone().sweep(app.0.journal.last_seq()));
        tokio::spawn(converge::follow(app.clone(), parts.events, stop.clone()));
        tokio::spawn(upkeep::run(app.clone(), stop));
        Ok(app)
    }

    /// Name under which sandboxes are reached, `NAME[:PORT]`, when there is one.
    pub fn domain(&self) -> Option<&str> {
        self.0.settings.domain.as_deref()
    }

    /// The time, from the one clock of the server.
    pub fn now(&self) -> Timestamp {
        (self.0.settings.clock)()
    }

    /// Limits of a sandbox whose request names none.
    pub fn default_resources(&self) -> Resources {
        self.0.settings.resources
    }

    /// An id that no sandbox has.
    pub fn new_sandbox_id(&self) -> SandboxId {
        SandboxId::from_entropy(rand::random())
    }

    /// A running sandbox, whoever owns it: for the gateway, which checks tokens itself.
    pub fn live(&self, id: &SandboxId) -> Option<LiveSandbox> {
        let sandbox = self.0.registry.get(id)?;
        (sandbox.state() == cofferdam_core::State::Running).then_some(sandbox)
    }

    /// Every sandbox that has not ended (to find the one that a signature belongs to).
    pub fn all_live(&self) -> Vec<LiveSandbox> {
        self.0.registry.all()
    }

    /// A sandbox of the actor's tenant that has not ended, in whatever state.
    fn unended(&self, actor: &Actor, id: &SandboxId) -> Result<LiveSandbox, AppError> {
        let sandbox = self.0.registry.get(id).filter(|sandbox| sandbox.tenant == actor.tenant);
        sandbox.ok_or_else(|| AppError::SandboxNotFound(id.to_string()))
    }

    fn being_made(&self) -> std::sync::MutexGuard<'_, HashSet<SandboxId>> {
        self.0.being_made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `work` to its end even if whoever waits for it goes away.
async fn unstoppable<T: Send + 'static>(
    work: impl Future<Output = Result<T, AppError>> + Send + 'static,
) -> Result<T, AppError> {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

#[cfg(test)]
mod tests;
