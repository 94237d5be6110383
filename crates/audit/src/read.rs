//! Owns reading the record of one sandbox, from a position on.

use crate::files::{self, Segment};
use crate::line::LINE_BYTES_MAX;
use cofferdam_core::{SandboxId, TenantId};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// What to read.
#[derive(Debug, Clone)]
pub struct Query {
    /// Only of this tenant.
    pub tenant: TenantId,
    /// Only of this sandbox.
    pub sandbox: SandboxId,
    /// Only records with a larger number.
    pub after: u64,
    /// At most so many rows, the oldest first.
    pub limit: usize,
}

/// One record, as far as readers care.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Row {
    /// Its number.
    pub seq: u64,
    /// RFC 3339.
    pub at: String,
    /// Who did it.
    pub by: String,
    /// Name of the event.
    pub event: String,
    /// Its facts.
    #[serde(default)]
    pub fields: serde_json::Value,
    tenant: Option<String>,
    sandbox: Option<String>,
}

/// The record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file or the directory does not open or read.
    #[error("read the record in `{}`", .path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Rows that match, oldest first. Reads only segments that can hold them.
pub fn read(dir: &Path, query: &Query) -> Result<Vec<Row>, ReadError> {
    let io = |source| ReadError::Io { path: dir.to_owned(), source };
    let segments = files::list(dir).map_err(io)?;
    let skip = segments.iter().skip(1).take_while(|segment| segment.first_seq <= query.after + 1).count();
    let mut rows = Vec::new();
    for segment in &segments[skip.min(segments.len())..] {
        read_segment(segment, query, &mut rows)
            .map_err(|source| ReadError::Io { path: segment.path.clone(), source })?;
        if rows.len() >= query.limit {
            break;
        }
    }
    Ok(rows)
}

fn read_segment(segment: &Segment, query: &Query, rows: &mut Vec<Row>) -> io::Result<()> {
    let needle = format!("\"sandbox\":\"{}\"", query.sandbox);
    let mut lines = BufReader::with_capacity(256 * 1024, File::open(&segment.path)?);
    let mut line = Vec::new();
    while rows.len() < query.limit {
        line.clear();
        lines.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            break;
        }
        if !contains(&line, needle.as_bytes()) {
            continue;
        }
        let Ok(row) = serde_json::from_slice::<Row>(&line) else { continue };
        if matches(&row, query) {
            rows.push(row);
        }
    }
    Ok(())
}

fn matches(row: &Row, query: &Query) -> bool {
    row.seq > query.after
        && row.sandbox.as_deref() == Some(query.sandbox.as_str())
        && row.tenant.as_deref() == Some(query.tenant.as_str())
}

/// The sandbox stands near the beginning of a line, before anything a client chose.
fn contains(line: &[u8], needle: &[u8]) -> bool {
    let head = &line[..line.len().min(512)];
    head.windows(needle.len()).any(|window| window == needle)
}
