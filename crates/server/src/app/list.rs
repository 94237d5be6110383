//! Owns looking at sandboxes: one, or a page of them.

use super::{Actor, App, AppError, ListFilter, SandboxPage, SandboxView};
use crate::store::{ListQuery, SandboxRow};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cofferdam_core::{SandboxId, State, TenantId, Timestamp};
use cofferdam_policy::Action;

/// Largest page.
const PAGE_MAX: u32 = 100;
/// States when none is asked for.
const NOT_FINAL: [State; 6] =
    [State::Creating, State::Running, State::Pausing, State::Paused, State::Resuming, State::Killing];

impl App {
    /// A sandbox of the actor's tenant, also an ended one (look at its state).
    pub async fn sandbox(&self, actor: &Actor, id: &SandboxId) -> Result<SandboxView, AppError> {
        let _permit = self.permit(actor, Action::ReadSandboxes)?;
        self.view(&actor.tenant, id).await
    }

    /// A sandbox of the tenant.
    pub(super) async fn view(&self, tenant: &TenantId, id: &SandboxId) -> Result<SandboxView, AppError> {
        let row = self.0.store.sandbox(id.clone()).await?.filter(|row| row.tenant == *tenant);
        row.map(SandboxView::from).ok_or_else(|| AppError::SandboxNotFound(id.to_string()))
    }

    /// A page of the sandboxes of the actor's tenant.
    pub async fn list_sandboxes(&self, actor: &Actor, filter: ListFilter) -> Result<SandboxPage, AppError> {
        let _permit = self.permit(actor, Action::ReadSandboxes)?;
        let (query, limit) = query(actor, filter)?;
        let (mut rows, running) = self.0.store.list_sandboxes(query).await?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next = rows.last().filter(|_| more).map(page_token);
        Ok(SandboxPage { sandboxes: rows.into_iter().map(SandboxView::from).collect(), next, running })
    }
}

/// One more than the page holds is asked for, to learn whether there is another.
fn query(actor: &Actor, filter: ListFilter) -> Result<(ListQuery, u32), AppError> {
    let limit = filter.limit;
    if !(1..=PAGE_MAX).contains(&limit) {
        let why = format!("must be between 1 and {PAGE_MAX}");
        return Err(AppError::Invalid { field: "limit", why });
    }
    let states = if filter.states.is_empty() { NOT_FINAL.to_vec() } else { filter.states };
    let query = ListQuery {
        tenant: actor.tenant.clone(),
        states,
        metadata: filter.metadata,
        template: filter.template,
        started_after: filter.started_after,
        ascending: filter.ascending,
        after: filter.page.as_deref().map(parse_page_token).transpose()?,
        limit: limit + 1,
    };
    Ok((query, limit))
}

fn page_token(last: &SandboxRow) -> String {
    URL_SAFE_NO_PAD.encode(format!("{} {}", last.started_at.as_micros(), last.id))
}

fn parse_page_token(token: &str) -> Result<(Timestamp, SandboxId), AppError> {
    let parse = || {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
        let (at, id) = text.split_once(' ')?;
        Some((Timestamp::from_micros(at.parse().ok()?), id.parse().ok()?))
    };
    parse().ok_or(AppError::PageToken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_page_tokens_parse() {
        let token = URL_SAFE_NO_PAD.encode("5 i1");
        let (at, id) = parse_page_token(&token).unwrap();
        assert_eq!((at.as_micros(), id.as_str()), (5, "i1"));
        for wrong in ["", "%%", &URL_SAFE_NO_PAD.encode("5"), &URL_SAFE_NO_PAD.encode("5 I/1")] {
            assert!(matches!(parse_page_token(wrong), Err(AppError::PageToken)), "{wrong}");
        }
    }
}
