//! Owns the use cases: what can be done, by whom, in which order, whatever surface asks. One file each.
//!
//! Knows no HTTP. Everything that changes something is recorded before it is done and after.

mod agent;
mod error;
mod live;
mod model;

pub use agent::{Agent, Command, Upload};
pub use error::AppError;
pub use live::{LiveFacts, LiveSandbox, Registry};
pub use model::*;

use cofferdam_core::{SandboxId, Timestamp};
use std::sync::Arc;

/// The use cases. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    registry: Registry,
    domain: Option<String>,
}

fn unfinished() -> AppError {
    AppError::NodeUnavailable(crate::cluster::LinkError::Lost)
}

#[expect(unused_variables, clippy::unused_async, reason = "the shape comes before the content")]
impl App {
    /// Name under which sandboxes are reached, `NAME[:PORT]`, when there is one.
    pub fn domain(&self) -> Option<&str> {
        self.0.domain.as_deref()
    }

    /// The time, from the one clock of the server.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(0)
    }

    /// Who comes with this key.
    pub async fn authenticate(&self, api_key: &str) -> Result<Actor, AppError> {
        Err(AppError::Unauthenticated)
    }

    /// Makes a sandbox; it is running, and its agent answers, when this returns.
    pub async fn create_sandbox(
        &self,
        actor: &Actor,
        request: CreateSandbox,
    ) -> Result<SandboxView, AppError> {
        Err(unfinished())
    }

    /// A sandbox of the actor's tenant, also an ended one (look at its state).
    pub async fn sandbox(&self, actor: &Actor, id: &SandboxId) -> Result<SandboxView, AppError> {
        Err(unfinished())
    }

    /// A page of the sandboxes of the actor's tenant.
    pub async fn list_sandboxes(&self, actor: &Actor, filter: ListFilter) -> Result<SandboxPage, AppError> {
        Err(unfinished())
    }

    /// Ends a sandbox; nothing of it is left when this returns. One that has ended is not found.
    pub async fn kill_sandbox(&self, actor: &Actor, id: &SandboxId) -> Result<(), AppError> {
        Err(unfinished())
    }

    /// Ends the sandbox so many seconds from now, be that earlier or later than planned.
    pub async fn set_timeout(
        &self,
        actor: &Actor,
        id: &SandboxId,
        seconds: u64,
    ) -> Result<SandboxView, AppError> {
        Err(unfinished())
    }

    /// Ends the sandbox so many seconds from now, unless it is planned to live longer anyway.
    pub async fn extend_timeout(
        &self,
        actor: &Actor,
        id: &SandboxId,
        seconds: u64,
    ) -> Result<SandboxView, AppError> {
        Err(unfinished())
    }

    /// A sandbox that has not ended, whoever owns it: for the gateway, which checks tokens itself.
    pub fn live(&self, id: &SandboxId) -> Option<LiveSandbox> {
        self.0.registry.get(id)
    }

    /// Every sandbox that has not ended (to find the one that a signature belongs to).
    pub fn all_live(&self) -> Vec<LiveSandbox> {
        self.0.registry.all()
    }

    /// The way into a sandbox of the actor's tenant.
    pub async fn agent(&self, actor: &Actor, id: &SandboxId) -> Result<Agent, AppError> {
        Err(unfinished())
    }

    /// The way into a sandbox for a caller whom the gateway has let in.
    pub fn agent_for(&self, sandbox: LiveSandbox, caller: Caller) -> Agent {
        Agent { app: self.clone(), sandbox, caller }
    }
}
