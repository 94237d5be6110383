//! Owns the database: what should be, as rows. One writer with group commit, several readers.

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite says no.
    #[error("database")]
    Sqlite(#[from] rusqlite::Error),
    /// The writer is gone.
    #[error("database writer has stopped")]
    Stopped,
}
