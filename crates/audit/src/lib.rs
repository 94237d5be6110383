//! Owns the record: the vocabulary of events, their canonical encoding, the hash chain, its files and its verifier.
//!
//! Never decides anything, never reads a clock, never changes what was written. Each line of the record is a JSON
//! object whose `prev` is the SHA-256 of the line before it (without the line feed), so that stock tools can check it:
//! `sed -n 7p FILE | tr -d '\n' | sha256sum` is the `prev` of line 8.

#![warn(missing_docs)]

mod event;
mod files;
mod journal;
mod line;
mod read;
mod unfinished;
mod verify;

pub use event::{Entry, Event, FileChange, bounded_argv};
pub use journal::{AppendError, Journal, OpenError, Settings};
pub use read::{Query, ReadError, Row, read};
pub use unfinished::{Unfinished, unfinished};
pub use verify::{Broken, Fault, Verified, verify};

#[cfg(test)]
mod tests;
