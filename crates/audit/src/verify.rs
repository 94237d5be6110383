//! Owns the check of a record, offline: every line continues the one before it.
//!
//! A record whose newest lines were taken away still verifies; what it then ends with is in the answer, to compare.

use crate::files;
use crate::line::{self, GENESIS, Hash, LINE_BYTES_MAX, Link};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// A record that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Number of records.
    pub records: u64,
    /// Number of files.
    pub segments: usize,
    /// Hash of the newest record in hex, zeros when there is none.
    pub head: String,
    /// Bytes of an unfinished last line in the newest file.
    pub torn_bytes: u64,
}

/// Where a record does not hold.
#[derive(Debug, thiserror::Error)]
#[error("`{}` line {line}: {fault}", .path.display())]
pub struct Broken {
    /// The file.
    pub path: PathBuf,
    /// The line, 1 for the first.
    pub line: u64,
    /// What is wrong.
    #[source]
    pub fault: Fault,
}

/// What is wrong with a record.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be read.
    #[error("cannot be read")]
    Io(#[source] io::Error),
    /// It is no record.
    #[error("is no record")]
    Malformed,
    /// It does not end, and is not the newest.
    #[error("does not end")]
    Torn,
    /// Records are missing, repeated or out of order.
    #[error("has number {found}, expected {expected}")]
    Sequence {
        /// What should be there.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// It, or the one before it, was changed.
    #[error("does not continue the line before")]
    Chain,
}

/// Checks the record in `dir`.
pub fn verify(dir: &Path) -> Result<Verified, Broken> {
    let broken = |path: &Path, line, fault| Broken { path: path.to_owned(), line, fault };
    let segments = files::list(dir).map_err(|error| broken(dir, 0, Fault::Io(error)))?;
    let mut chain = Chain { next_seq: 1, prev: GENESIS };
    let mut torn_bytes = 0;
    for (index, segment) in segments.iter().enumerate() {
        let newest = index + 1 == segments.len();
        torn_bytes = chain
            .verify_segment(&segment.path, newest)
            .map_err(|(line, fault)| broken(&segment.path, line, fault))?;
    }
    let head = hex::encode(chain.prev);
    Ok(Verified { records: chain.next_seq - 1, segments: segments.len(), head, torn_bytes })
}

struct Chain {
    next_seq: u64,
    prev: Hash,
}

impl Chain {
    fn verify_segment(&mut self, path: &Path, newest: bool) -> Result<u64, (u64, Fault)> {
        let file = File::open(path).map_err(|error| (0, Fault::Io(error)))?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let mut bounded = lines.by_ref().take(LINE_BYTES_MAX as u64);
            bounded.read_until(b'\n', &mut line).map_err(|error| (number, Fault::Io(error)))?;
            match line.pop() {
                None => return Ok(0),
                Some(b'\n') => self.verify_line(&line).map_err(|fault| (number, fault))?,
                Some(_) if newest => return Ok(line.len() as u64 + 1),
                Some(_) => return Err((number, Fault::Torn)),
            }
        }
        Ok(0)
    }

    fn verify_line(&mut self, line: &[u8]) -> Result<(), Fault> {
        let link: Link = serde_json::from_slice(line).map_err(|_| Fault::Malformed)?;
        if link.seq != self.next_seq {
            return Err(Fault::Sequence { expected: self.next_seq, found: link.seq });
        }
        if link.prev != hex::encode(self.prev) {
            return Err(Fault::Chain);
        }
        self.next_seq += 1;
        self.prev = line::hash(line);
        Ok(())
    }
}
