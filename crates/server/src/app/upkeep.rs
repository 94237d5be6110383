//! Owns what is done aside from requests: making the record and the store survive a power cut, and forgetting old rows.

use super::App;
use cofferdam_audit::{Entry, Event, Unfinished, unfinished};
use cofferdam_core::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often what was written is made durable.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// How many of those rounds pass between two rounds of forgetting.
const ROUNDS_TO_FORGET: u64 = 3600;
/// How long ended sandboxes are remembered, in microseconds.
const REMEMBER_US: i64 = 7 * 24 * 3600 * 1_000_000;

/// Records in which wishes without an outcome are looked for.
const SWEEP_RECORDS_MAX: u64 = 100_000;

/// Works until `stop` fires, and then once more.
pub(super) async fn run(app: App, stop: CancellationToken) {
    let mut tick = tokio::time::interval(SYNC_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut synced = 0;
    for round in 0.. {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = tick.tick() => {}
        }
        let newest = app.0.journal.last_seq();
        if newest != synced {
            app.make_durable().await;
            synced = newest;
        }
        if round % ROUNDS_TO_FORGET == 0 {
            app.forget().await;
        }
    }
    app.make_durable().await;
}

impl App {
    /// Says of every wish that an earlier process left without an outcome that it is not known. `until` is the newest
    /// record of that process.
    pub(super) async fn sweep(self, until: u64) {
        let journal = Arc::clone(&self.0.journal);
        let after = until.saturating_sub(SWEEP_RECORDS_MAX);
        let found = tokio::task::spawn_blocking(move || unfinished(journal.dir(), after, until));
        match found.await.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic())) {
            Ok(found) => {
                for Unfinished { intent, tenant, sandbox } in found {
                    let entry = Entry { by: "server".to_owned(), tenant, sandbox, request: None };
                    self.outcome(&entry, &Event::OutcomeUnknown { intent });
                }
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "look for wishes without an outcome"
                );
            }
        }
    }

    async fn make_durable(&self) {
        let journal = Arc::clone(&self.0.journal);
        match tokio::task::spawn_blocking(move || journal.sync()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "sync the record"),
            Err(error) => tracing::error!(%error, "sync the record"),
        }
        if let Err(error) = self.0.store.checkpoint().await {
            tracing::error!(error = &error as &dyn std::error::Error, "checkpoint the store");
        }
    }

    async fn forget(&self) {
        let now = self.now();
        let ended = Timestamp::from_micros(now.as_micros() - REMEMBER_US);
        if let Err(error) = self.0.store.forget_before(ended, now).await {
            tracing::error!(error = &error as &dyn std::error::Error, "forget old rows");
        }
    }
}
