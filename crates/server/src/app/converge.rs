//! Owns keeping the rows and the node in step: what the node says unasked, and the comparison of everything after a
//! connection was made anew. The row says what should be; the node says what is.

use super::{App, AppError, LiveSandbox};
use crate::cluster::NodeEvent;
use crate::store::SandboxRow;
use cofferdam_audit::{Entry, Event};
use cofferdam_core::{SandboxId, State};
use cofferdam_proto::node::{EndReason, SandboxRecord};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often everything is compared although nothing seems to be wrong.
const COMPARE_EVERY: Duration = Duration::from_secs(30);

/// How long the word on how a sandbox ended may be on its way after the node has let go of it. Only when none came is
/// the sandbox lost.
const WORD_ON_ITS_WAY: Duration = Duration::from_secs(1);

/// Sandboxes that the node did not have at the last comparison, without a word on how they ended.
type Missing = HashSet<SandboxId>;

/// Handles what the node says until `stop` fires.
pub(super) async fn follow(app: App, mut events: mpsc::Receiver<NodeEvent>, stop: CancellationToken) {
    let mut missing = Missing::new();
    let mut again = tokio::time::interval(COMPARE_EVERY);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    again.reset();
    loop {
        let compare = tokio::select! {
            () = stop.cancelled() => return,
            event = events.recv() => match event {
                None => return,
                Some(NodeEvent::Connected) => true,
                Some(NodeEvent::Ended(sandbox, reason)) => {
                    warn_of(app.ended_by_itself(&sandbox, &reason).await);
                    false
                }
            },
            _ = again.tick() => app.is_ready(),
        };
        if compare {
            warn_of(app.converge(&mut missing).await);
            again.reset_after(if missing.is_empty() { COMPARE_EVERY } else { WORD_ON_ITS_WAY });
        }
    }
}

fn warn_of(result: Result<(), AppError>) {
    if let Err(error) = result {
        tracing::warn!(error = error.log(), "keep in step with the node");
    }
}

impl App {
    /// Takes what has not ended into memory, at the start of the process.
    pub(super) async fn load(&self) -> Result<(), AppError> {
        for row in self.0.store.unended_sandboxes().await?.iter().filter(|row| !row.kill_wanted) {
            let live = LiveSandbox::new(super::create::facts(row), row.observed, row.expires_at);
            self.0.registry.insert(live);
        }
        self.reload_templates().await
    }

    async fn ended_by_itself(&self, id: &SandboxId, reason: &EndReason) -> Result<(), AppError> {
        let (state, reason) = match reason {
            EndReason::Expired => (State::Killed, "expired".to_owned()),
            EndReason::AgentDied => (State::Failed, "agent_died".to_owned()),
            EndReason::Limit { hit } => (State::Failed, format!("limit: {hit}")),
            EndReason::Lost => (State::Failed, "lost".to_owned()),
        };
        self.0.registry.end(id);
        match self.0.store.sandbox(id.clone()).await? {
            Some(row) => self.note_end(&by_node(&row), id, state, &reason).await,
            None => Ok(()),
        }
    }

    /// Compares rows and node, and makes the difference go away. Rows are read before the node is asked, so that a row
    /// that is running must be at the node; and again after, so that what is at the node without a row is not wanted.
    async fn converge(&self, missing: &mut Missing) -> Result<(), AppError> {
        self.refresh_templates().await?;
        let mut rows = self.0.store.unended_sandboxes().await?;
        // What was being made when its row was read may be unknown to the node and yet be running a moment later.
        let being_made = self.being_made().clone();
        let held: HashMap<SandboxId, SandboxRecord> =
            self.0.link.sandboxes().await?.into_iter().map(|record| (record.id.clone(), record)).collect();
        rows.retain(|row| !being_made.contains(&row.id));
        let missing_before = std::mem::take(missing);
        for row in &rows {
            let record = held.get(&row.id);
            if record.is_none() && !missing_before.contains(&row.id) {
                self.0.registry.end(&row.id);
                missing.insert(row.id.clone());
                continue;
            }
            self.converge_row(row, record).await?;
        }
        for id in held.into_keys().filter(|id| !rows.iter().any(|row| row.id == *id)) {
            let wanted = self.0.store.sandbox(id.clone()).await?.is_some_and(|row| !row.observed.is_final());
            if !wanted {
                tracing::info!(sandbox = %id, "kill a sandbox that should not be");
                self.0.link.kill(id).await?;
            }
        }
        Ok(())
    }

    async fn converge_row(&self, row: &SandboxRow, held: Option<&SandboxRecord>) -> Result<(), AppError> {
        match held {
            None => {
                self.0.registry.end(&row.id);
                self.note_end(&by_node(row), &row.id, State::Failed, "lost").await
            }
            Some(_) if row.kill_wanted => {
                self.0.link.kill(row.id.clone()).await?;
                self.note_end(&by_node(row), &row.id, State::Killed, "killed").await
            }
            Some(record) => self.adopt(row, record).await,
        }
    }

    /// A sandbox that is as it should be, or was made while nobody waited for it any more.
    async fn adopt(&self, row: &SandboxRow, record: &SandboxRecord) -> Result<(), AppError> {
        if row.observed == State::Creating
            && record.state == State::Running
            && self.0.store.sandbox_started(row.id.clone(), row.started_at).await?
            && let Some(live) = self.0.registry.get(&row.id)
        {
            live.started();
            self.outcome(&by_node(row), &Event::SandboxCreated { intent: row.journal_after + 1 });
        }
        let moved = self.0.registry.get(&row.id).map_or(row.expires_at, |live| live.expires_at());
        if record.expires_at != moved {
            self.0.link.set_deadline(row.id.clone(), moved).await?;
        }
        Ok(())
    }
}

fn by_node(row: &SandboxRow) -> Entry {
    Entry {
        by: "node".to_owned(),
        tenant: Some(row.tenant.clone()),
        sandbox: Some(row.id.clone()),
        request: None,
    }
}
