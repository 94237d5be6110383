//! Owns the bond between doing and recording: a permit or a recorded refusal first, then the intent, then the outcome.

use super::{Actor, App, AppError};
use cofferdam_audit::{AppendError, Entry, Event};
use cofferdam_core::SandboxId;
use cofferdam_policy::{Action, Permit, Scopes, authorize};

impl App {
    /// Decides whether the actor may do it; a refusal is recorded.
    pub(super) fn permit(&self, actor: &Actor, action: Action) -> Result<Permit, AppError> {
        self.permit_as(&self.entry(actor, None), actor.scopes, action)
    }

    /// Decides whether a holder of `scopes` may do it; a refusal is recorded.
    pub(super) fn permit_as(
        &self,
        entry: &Entry,
        scopes: Scopes,
        action: Action,
    ) -> Result<Permit, AppError> {
        authorize(scopes, action).map_err(|denied| {
            let event = Event::Denied { action: action.as_str().to_owned(), why: denied.to_string() };
            self.outcome(entry, &event);
            denied.into()
        })
    }

    /// Whom a record is about.
    pub(super) fn entry(&self, actor: &Actor, sandbox: Option<&SandboxId>) -> Entry {
        Entry {
            by: actor.caller().recorded(),
            tenant: Some(actor.tenant.clone()),
            sandbox: sandbox.cloned(),
            request: super::model::current_request(),
        }
    }

    /// Records a wish, for which there must be a permit. When it cannot be recorded, what it wishes must not be done.
    pub(super) fn intent(&self, _permit: &Permit, entry: &Entry, wish: &Event) -> Result<u64, AppendError> {
        self.0.journal.append(self.now(), entry, wish)
    }

    /// Records what happened. It happened, so a failure to record it can only be shouted about.
    pub(super) fn outcome(&self, entry: &Entry, fact: &Event) {
        if let Err(error) = self.0.journal.append(self.now(), entry, fact) {
            tracing::error!(error = &error as &dyn std::error::Error, ?fact, "outcome not recorded");
        }
    }
}
