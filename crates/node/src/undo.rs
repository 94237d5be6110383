//! Owns the way back: each step of making a sandbox pushes how it is undone, and one place unwinds. The same stack ends a
//! half-made sandbox, a running one and one that waits in the pool.

use crate::host::Host;
use crate::isolation::{DriverError, Slot};
use crate::records::RecordError;
use std::time::Duration;
use tokio::time::timeout;

/// How long one attempt to destroy may take before the next.
const DESTROY_DEADLINE: Duration = Duration::from_secs(10);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(10);

/// How one step is taken back. Every one is idempotent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undo {
    FreeSlot(Slot),
    RemoveRecord(Slot),
    Destroy(Slot),
}

/// Why a step could not be taken back yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UndoError {
    #[error("destroy the sandbox")]
    Destroy(#[source] DriverError),
    #[error("destroy the sandbox in time")]
    Deadline,
    #[error("remove the record")]
    Record(#[source] RecordError),
}

/// Steps that were taken, the last on top.
#[derive(Debug, Default)]
pub(crate) struct UndoStack {
    steps: Vec<Undo>,
}

impl UndoStack {
    /// Everything a slot may hold.
    pub(crate) fn of(slot: Slot) -> Self {
        Self { steps: vec![Undo::FreeSlot(slot), Undo::RemoveRecord(slot), Undo::Destroy(slot)] }
    }

    pub(crate) fn push(&mut self, step: Undo) {
        self.steps.push(step);
    }

    /// Takes everything back, and tries until it is done. Never gives up: a slot that cannot be cleared is not reused.
    pub(crate) async fn unwind(mut self, host: &Host) {
        let mut pause = RETRY_FIRST;
        while let Some(step) = self.steps.last().copied() {
            match take_back(step, host).await {
                Ok(()) => {
                    self.steps.pop();
                }
                Err(error) => {
                    tracing::error!(?step, error = ?error, "cannot clean up; trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(RETRY_LAST);
                }
            }
        }
    }
}

async fn take_back(step: Undo, host: &Host) -> Result<(), UndoError> {
    match step {
        Undo::Destroy(slot) => match timeout(DESTROY_DEADLINE, host.driver.destroy(slot)).await {
            Ok(result) => result.map_err(UndoError::Destroy),
            Err(_) => Err(UndoError::Deadline),
        },
        Undo::RemoveRecord(slot) => host.records.remove(slot).await.map_err(UndoError::Record),
        Undo::FreeSlot(slot) => {
            host.slots.give_back(slot);
            Ok(())
        }
    }
}
