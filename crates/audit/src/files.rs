//! Owns the names of the segments: the number of the first record in each, so that sorting them is the order of time.

use std::io;
use std::path::{Path, PathBuf};

const SUFFIX: &str = ".jsonl";

/// One file of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first_seq: u64,
    pub(crate) path: PathBuf,
}

impl Segment {
    pub(crate) fn new(dir: &Path, first_seq: u64) -> Self {
        Self { first_seq, path: dir.join(format!("{first_seq:020}{SUFFIX}")) }
    }
}

/// All segments of a directory, oldest first. Other files are none of ours.
pub(crate) fn list(dir: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).filter(|n| n.len() == 20);
        if let Some(first_seq) = number.and_then(|n| n.parse().ok()) {
            segments.push(Segment::new(dir, first_seq));
        }
    }
    segments.sort_by_key(|segment| segment.first_seq);
    Ok(segments)
}
