//! Owns `ListDir`: entries before what is in them, names sorted, links listed and not followed.

use super::{entry, locate};
use crate::agent::Agent;
use crate::connection::Connection;
use crate::failure::{at_path, because, failure};
use crate::users::Names;
use cofferdam_core::ErrorKind;
use cofferdam_core::limits::LISTING_ENTRIES_MAX;
use cofferdam_proto::guest::{self, Entry, Failure, Reason, Reply};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of entries in one message, roughly; an entry can take a hundred kilobytes at worst.
const BATCH_BYTES: usize = 256 * 1024;

/// Sends everything, then an empty message.
pub(crate) fn run(
    agent: &Agent,
    connection: &Connection,
    path: &guest::Path,
    depth: u32,
) -> Result<(), Failure> {
    let (root, _) = locate(agent, path)?;
    let at_root = |error: &io::Error| at_path("list", root.display(), error);
    let metadata = fs::metadata(&root).map_err(|error| at_root(&error))?;
    if !metadata.is_dir() {
        let message = format!("'{}' is not a directory", root.display());
        return Err(because(ErrorKind::InvalidArgument, Reason::NotDirectory, message));
    }
    let mut walk = Walk::new(&root, depth.max(1)).map_err(|error| at_root(&error))?;
    let names = Names::load();
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(path) = walk.next()? {
        // What vanished meanwhile is not there.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            walk.descend(&path);
        }
        let entry = entry::describe(&path, &metadata, &names);
        bytes += size(&entry);
        batch.push(entry);
        if bytes >= BATCH_BYTES {
            bytes = 0;
            if connection.reply(&Reply::Entries { entries: std::mem::take(&mut batch) }).is_err() {
                return Ok(());
            }
        }
    }
    if !batch.is_empty() {
        connection.try_reply(&Reply::Entries { entries: batch });
    }
    connection.try_reply(&Reply::Entries { entries: Vec::new() });
    Ok(())
}

/// Bytes in JSON, at most.
fn size(entry: &Entry) -> usize {
    let texts = [&entry.name, &entry.path, &entry.owner, &entry.group];
    let pairs = entry.metadata.iter().flat_map(|(name, value)| [name, value]);
    let texts = texts.into_iter().chain(entry.target.as_ref()).chain(pairs);
    256 + texts.map(|text| text.len() * 2 + 8).sum::<usize>()
}

/// A walk that keeps names, not paths, and no descriptors.
struct Walk {
    /// Path of the directory whose entries are on top of `pending`.
    directory: PathBuf,
    level: u32,
    depth: u32,
    pending: Vec<(OsString, u32)>,
    seen: usize,
}

impl Walk {
    fn new(root: &Path, depth: u32) -> io::Result<Self> {
        let mut walk = Self { directory: root.to_owned(), level: 1, depth, pending: Vec::new(), seen: 0 };
        walk.push(root, 1)?;
        Ok(walk)
    }

    fn push(&mut self, directory: &Path, level: u32) -> io::Result<()> {
        // One more than is legal, so that too many are noticed.
        let room = (LISTING_ENTRIES_MAX + 1).saturating_sub(self.seen + self.pending.len());
        let start = self.pending.len();
        for entry in fs::read_dir(directory)?.take(room) {
            self.pending.push((entry?.file_name(), level));
        }
        self.pending[start..].sort_unstable_by(|a, b| b.0.cmp(&a.0));
        Ok(())
    }

    fn next(&mut self) -> Result<Option<PathBuf>, Failure> {
        let Some((name, level)) = self.pending.pop() else { return Ok(None) };
        self.seen += 1;
        if self.seen + self.pending.len() > LISTING_ENTRIES_MAX {
            let message = format!("more than {LISTING_ENTRIES_MAX} entries");
            return Err(failure(ErrorKind::ResourceExhausted, message));
        }
        while self.level > level {
            self.directory.pop();
            self.level -= 1;
        }
        Ok(Some(self.directory.join(name)))
    }

    /// The entry that was given last is a directory.
    fn descend(&mut self, path: &Path) {
        // One that cannot be read, or vanished, has no entries.
        if self.level < self.depth && self.push(path, self.level + 1).is_ok() {
            self.directory = path.to_owned();
            self.level += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_sorted_and_gives_directories_before_their_content() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for path in ["b/x/deep", "b/y", "a", "c/z", "empty"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("b/link")).unwrap();
        let list = |depth| {
            let (mut walk, mut seen) = (Walk::new(root, depth).unwrap(), Vec::new());
            while let Some(path) = walk.next().unwrap() {
                if fs::symlink_metadata(&path).unwrap().is_dir() {
                    walk.descend(&path);
                }
                seen.push(path.strip_prefix(root).unwrap().display().to_string());
            }
            seen.join(" ")
        };
        assert_eq!(list(1), "a b c empty");
        assert_eq!(list(2), "a b b/link b/x b/y c c/z empty");
        assert_eq!(list(9), "a b b/link b/x b/x/deep b/y c c/z empty");
    }
}
