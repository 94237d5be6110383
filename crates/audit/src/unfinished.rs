//! Owns finding wishes without an outcome, as a crash leaves them.

use crate::files;
use crate::line::LINE_BYTES_MAX;
use crate::read::ReadError;
use cofferdam_core::{SandboxId, TenantId};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// What the names of wishes end with.
const WISH: &str = "_requested";
/// The one wish whose outcome, the end of the sandbox, does not carry its number.
const KILL: &str = "sandbox_kill_requested";

/// A wish without an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// Its number.
    pub intent: u64,
    /// Whose record it belongs to.
    pub tenant: Option<TenantId>,
    /// The sandbox it is about.
    pub sandbox: Option<SandboxId>,
}

#[derive(Deserialize)]
struct Line {
    seq: u64,
    event: String,
    tenant: Option<TenantId>,
    sandbox: Option<SandboxId>,
    #[serde(default)]
    fields: Fields,
}

#[derive(Deserialize, Default)]
struct Fields {
    intent: Option<u64>,
}

/// Wishes with numbers above `after` and up to `until` that have no outcome up to `until`.
pub fn unfinished(dir: &Path, after: u64, until: u64) -> Result<Vec<Unfinished>, ReadError> {
    let failed = |path: &Path, source| ReadError::Io { path: path.to_owned(), source };
    let segments = files::list(dir).map_err(|source| failed(dir, source))?;
    let skip = segments.iter().skip(1).take_while(|segment| segment.first_seq <= after + 1).count();
    let mut open = BTreeMap::new();
    for segment in segments.iter().skip(skip).take_while(|segment| segment.first_seq <= until) {
        scan(&segment.path, (after, until), &mut open).map_err(|source| failed(&segment.path, source))?;
    }
    Ok(open.into_values().collect())
}

fn scan(path: &Path, (after, until): (u64, u64), open: &mut BTreeMap<u64, Unfinished>) -> io::Result<()> {
    let mut lines = BufReader::with_capacity(256 * 1024, File::open(path)?);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        lines.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut bytes)?;
        if bytes.last() != Some(&b'\n') {
            return Ok(());
        }
        let Ok(line) = serde_json::from_slice::<Line>(&bytes) else { continue };
        if line.seq > until {
            return Ok(());
        }
        if let Some(intent) = line.fields.intent {
            open.remove(&intent);
        } else if line.seq > after && line.event.ends_with(WISH) && line.event != KILL {
            let Line { seq: intent, tenant, sandbox, .. } = line;
            open.insert(intent, Unfinished { intent, tenant, sandbox });
        }
    }
}
