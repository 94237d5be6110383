//! Owns the database: what should be, as rows. One writer thread with group commit, a few readers.
//!
//! Never decides anything but what has to be decided together with a write: quotas and idempotency. A write is in the
//! database file when it returns; a power cut may take the last moments, a crash of the process takes nothing.

mod bootstrap;
mod keys;
mod rows;
mod sandboxes;
mod schema;
mod templates;
mod writer;

pub use bootstrap::InitialKey;
pub use keys::{KeyRow, TenantRow, hash_key};
pub use sandboxes::{IdempotencyClaim, Inserted, ListQuery, Refused, SandboxRow};
pub use templates::TemplateRow;

use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use writer::Writer;

/// Connections kept for reading.
const READERS_MAX: usize = 4;

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite says no.
    #[error("database")]
    Sqlite(#[from] rusqlite::Error),
    /// The group of writes that this one was in did not commit.
    #[error("commit to the database")]
    Commit(#[source] Arc<rusqlite::Error>),
    /// A row holds something that this version does not understand.
    #[error("row of `{table}`: {column}")]
    Row {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
    /// The database was made by a newer version.
    #[error("database has version {found}, this program knows {known}")]
    Version {
        /// What it has.
        found: i64,
        /// What this program knows.
        known: i64,
    },
    /// The writer is gone.
    #[error("database writer has stopped")]
    Stopped,
}

/// The database. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    path: PathBuf,
    writer: Writer,
    readers: Mutex<Vec<Connection>>,
}

impl Store {
    /// Opens the database at `path`, makes it if there is none, and brings its tables to this version.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "foreign_keys", "ON")?;
        // Checkpoints write and sync; `checkpoint` does them aside, so that no commit waits for the disk.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.set_prepared_statement_cache_capacity(64);
        schema::migrate(&mut connection)?;
        let writer = Writer::start(connection)?;
        Ok(Self(Arc::new(Inner { path: path.to_owned(), writer, readers: Mutex::new(Vec::new()) })))
    }

    /// Runs `work` in the next group of writes. Its effects are committed, and seen by every later read, when this
    /// returns `Ok`; on an error it had none.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.0.writer.write(work).await
    }

    /// Runs `work` on a connection that only reads.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || {
            let connection = inner.reader()?;
            let result = work(&connection);
            inner.give_back(connection);
            result
        });
        done.await.map_err(|_| StoreError::Stopped)?
    }

    /// Moves what was committed from the log into the database file.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        self.read(|connection| Ok(connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?))
            .await
    }
}

impl Inner {
    fn reader(&self) -> Result<Connection, StoreError> {
        if let Some(connection) = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(connection);
        }
        // Not opened read-only, because a checkpoint runs on it too.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        Ok(connection)
    }

    fn give_back(&self, connection: Connection) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < READERS_MAX {
            readers.push(connection);
        }
    }
}

#[cfg(test)]
mod tests;
