//! Owns reading the record of one sandbox.

use super::{Actor, App, AppError};
use cofferdam_audit::{Query, Row, read};
use cofferdam_core::SandboxId;
use cofferdam_policy::Action;
use std::sync::Arc;

/// Rows in one answer.
const ROWS_MAX: usize = 1000;

impl App {
    /// What happened to and in a sandbox of the actor's tenant, after a cursor, and the cursor to go on with.
    pub async fn logs(
        &self,
        actor: &Actor,
        id: &SandboxId,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<Row>, u64), AppError> {
        let _permit = self.permit(actor, Action::ReadLogs)?;
        let row = self.0.store.sandbox(id.clone()).await?.filter(|row| row.tenant == actor.tenant);
        let row = row.ok_or_else(|| AppError::SandboxNotFound(id.to_string()))?;
        let limit = limit.clamp(1, ROWS_MAX);
        let after = after.max(row.journal_after);
        let query = Query { tenant: row.tenant, sandbox: row.id, after, limit };
        let journal = Arc::clone(&self.0.journal);
        let newest = journal.last_seq().max(after);
        let rows = tokio::task::spawn_blocking(move || read(journal.dir(), &query));
        let rows = rows.await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))?;
        let cursor = match rows.last() {
            Some(last) if rows.len() == limit => last.seq,
            Some(last) => newest.max(last.seq),
            None => newest,
        };
        Ok((rows, cursor))
    }
}
