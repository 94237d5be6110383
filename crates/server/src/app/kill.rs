//! Owns ending a sandbox on request: dead in memory first, then in the store, then in fact.

use super::{Actor, App, AppError, unstoppable};
use cofferdam_audit::{Entry, Event};
use cofferdam_core::{SandboxId, State};
use cofferdam_policy::Action;

impl App {
    /// Ends a sandbox; nothing of it is left when this returns. One that has ended is not found.
    pub async fn kill_sandbox(&self, actor: &Actor, id: &SandboxId) -> Result<(), AppError> {
        let permit = self.permit(actor, Action::KillSandbox)?;
        if self.unended(actor, id).is_err() {
            self.find_half_killed(actor, id).await?;
        }
        let entry = self.entry(actor, Some(id));
        self.intent(&permit, &entry, &Event::SandboxKillRequested {})?;
        self.0.registry.end(id);
        let (app, id) = (self.clone(), id.clone());
        unstoppable(async move { app.finish_kill(&entry, id).await }).await
    }

    /// A kill that did not get through to the node may be asked for again.
    async fn find_half_killed(&self, actor: &Actor, id: &SandboxId) -> Result<(), AppError> {
        let row = self.0.store.sandbox(id.clone()).await?;
        let half = row.filter(|row| row.tenant == actor.tenant && row.observed == State::Killing);
        half.map(|_| ()).ok_or_else(|| AppError::SandboxNotFound(id.to_string()))
    }

    async fn finish_kill(&self, entry: &Entry, id: SandboxId) -> Result<(), AppError> {
        if !self.0.store.want_killed(id.clone()).await? {
            return Err(AppError::SandboxNotFound(id.to_string()));
        }
        self.0.link.kill(id.clone()).await?;
        self.note_end(entry, &id, State::Killed, "killed").await
    }

    /// Notes that a sandbox is gone, once.
    pub(super) async fn note_end(
        &self,
        entry: &Entry,
        id: &SandboxId,
        state: State,
        reason: &str,
    ) -> Result<(), AppError> {
        let (now, reason) = (self.now(), reason.to_owned());
        if self.0.store.sandbox_ended(id.clone(), state, reason.clone(), now).await? {
            self.outcome(entry, &Event::SandboxEnded { reason });
        }
        Ok(())
    }
}
