//! Owns the form of one line: fixed order of fields, no spaces, no floats, so that equal facts are equal bytes.

use crate::event::{Entry, Event};
use cofferdam_core::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// SHA-256 of a line without its line feed.
pub(crate) type Hash = [u8; 32];

/// What the first line of all has as `prev`.
pub(crate) const GENESIS: Hash = [0; 32];

/// Longest line that a reader takes, in bytes.
pub(crate) const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    prev: &'a str,
    at: String,
    by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a str>,
    #[serde(flatten)]
    event: &'a Event,
}

/// The part of a line that the chain is made of.
#[derive(Deserialize)]
pub(crate) struct Link {
    pub(crate) seq: u64,
    pub(crate) prev: String,
}

/// Writes a line with its line feed.
pub(crate) fn encode(
    (seq, prev): (u64, &Hash),
    at: Timestamp,
    entry: &Entry,
    event: &Event,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut hex_prev = [0; 64];
    let prev = match hex::encode_to_slice(prev, &mut hex_prev) {
        Ok(()) => std::str::from_utf8(&hex_prev).unwrap_or_default(),
        Err(_) => "",
    };
    let line = Line {
        seq,
        prev,
        at: at.to_string(),
        by: &entry.by,
        tenant: entry.tenant.as_ref().map(|id| id.as_str()),
        sandbox: entry.sandbox.as_ref().map(|id| id.as_str()),
        request: entry.request.as_ref().map(|id| id.as_str()),
        event,
    };
    let mut bytes = serde_json::to_vec(&line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Hash of a line, which is given without its line feed.
pub(crate) fn hash(line: &[u8]) -> Hash {
    Sha256::digest(line).into()
}

/// SHA-256 over texts, each followed by a zero byte, in hex.
pub(crate) fn digest_of_parts<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    hex::encode(digest.finalize())
}
