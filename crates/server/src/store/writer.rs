//! Owns the one thread that writes. It takes whatever waits, runs each in a savepoint of one transaction, commits, and
//! only then tells each how it went.

use super::StoreError;
use rusqlite::{Connection, TransactionBehavior};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::sync::oneshot;

/// Writes that may wait.
const QUEUE_MAX: usize = 4096;
/// Writes in one transaction.
const GROUP_MAX: usize = 256;

type Report = Box<dyn FnOnce(Result<(), Arc<rusqlite::Error>>) + Send>;
type Job = Box<dyn FnOnce(&Connection) -> Report + Send>;

/// The way to the writing thread; the thread ends when it is dropped.
pub(super) struct Writer(SyncSender<Job>);

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Self, StoreError> {
        let (queue, jobs) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new().name("store".to_owned());
        thread.spawn(move || run(connection, &jobs)).map_err(|_| StoreError::Stopped)?;
        Ok(Self(queue))
    }

    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let result = in_savepoint(connection, work);
            Box::new(move |committed| {
                let result = result.and_then(|value| committed.map(|()| value).map_err(StoreError::Commit));
                // Whoever asked may have gone away; the write stands.
                drop(answer.send(result));
            })
        });
        self.0.try_send(job).map_err(|_| StoreError::Stopped)?;
        answered.await.map_err(|_| StoreError::Stopped)?
    }
}

fn run(mut connection: Connection, jobs: &Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut reports = Vec::new();
        let committed = commit_group(&mut connection, first, jobs, &mut reports).map_err(Arc::new);
        for report in reports {
            report(committed.clone());
        }
    }
}

fn commit_group(
    connection: &mut Connection,
    first: Job,
    jobs: &Receiver<Job>,
    reports: &mut Vec<Report>,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    reports.push(first(&transaction));
    while reports.len() < GROUP_MAX {
        let Ok(job) = jobs.try_recv() else { break };
        reports.push(job(&transaction));
    }
    transaction.commit()
}

fn in_savepoint<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.prepare_cached("SAVEPOINT job")?.execute([])?;
    let result = work(connection);
    if result.is_err() {
        connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
    }
    connection.prepare_cached("RELEASE job")?.execute([])?;
    result
}
