//! Owns the record: the vocabulary of events, their canonical encoding, the hash chain, its files and its verifier.
//!
//! Never decides anything and never reads a clock.

/// The event could not be recorded.
#[derive(Debug, thiserror::Error)]
#[error("append to the record")]
pub struct AppendError(#[from] std::io::Error);

/// The record could not be read.
#[derive(Debug, thiserror::Error)]
#[error("read the record")]
pub struct ReadError(#[from] std::io::Error);
