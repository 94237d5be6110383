//! Owns moving the planned end of a sandbox.

use super::{Actor, App, AppError, SandboxView, unstoppable};
use cofferdam_audit::{Entry, Event};
use cofferdam_core::{SandboxId, Timestamp};
use cofferdam_policy::Action;

impl App {
    /// Ends the sandbox so many seconds from now, be that earlier or later than planned. 0 ends it at once.
    pub async fn set_timeout(
        &self,
        actor: &Actor,
        id: &SandboxId,
        seconds: u64,
    ) -> Result<SandboxView, AppError> {
        self.move_deadline(actor, id, seconds, false).await
    }

    /// Ends the sandbox so many seconds from now, unless it is planned to live longer anyway.
    pub async fn extend_timeout(
        &self,
        actor: &Actor,
        id: &SandboxId,
        seconds: u64,
    ) -> Result<SandboxView, AppError> {
        self.move_deadline(actor, id, seconds, true).await
    }

    async fn move_deadline(
        &self,
        actor: &Actor,
        id: &SandboxId,
        seconds: u64,
        extend_only: bool,
    ) -> Result<SandboxView, AppError> {
        let permit = self.permit(actor, Action::ChangeDeadline)?;
        let sandbox = self.unended(actor, id)?;
        let seconds = self.check_timeout(seconds, 0)?;
        let expires_at = self.now().plus_millis(seconds * 1000);
        if extend_only && expires_at <= sandbox.expires_at() {
            return self.view(&actor.tenant, id).await;
        }
        let entry = self.entry(actor, Some(id));
        let intent = self.intent(&permit, &entry, &Event::DeadlineChangeRequested { expires_at })?;
        let (app, id) = (self.clone(), id.clone());
        unstoppable(async move { app.finish_move((entry, intent), id, expires_at, extend_only).await }).await
    }

    async fn finish_move(
        &self,
        (entry, intent): (Entry, u64),
        id: SandboxId,
        expires_at: Timestamp,
        extend_only: bool,
    ) -> Result<SandboxView, AppError> {
        let row = self.0.store.set_deadline(id.clone(), expires_at, extend_only).await?;
        let row = row.ok_or_else(|| AppError::SandboxNotFound(id.to_string()))?;
        if let Some(sandbox) = self.0.registry.get(&id) {
            sandbox.set_expires_at(row.expires_at);
        }
        self.0.link.set_deadline(id, row.expires_at).await?;
        self.outcome(&entry, &Event::DeadlineChanged { intent, expires_at: row.expires_at });
        Ok(row.into())
    }
}
