//! Owns making the directories that lead to a path: mode 0755, owned by the user.

use super::{Owner, make_one};
use std::fs;
use std::io;
use std::path::Path;

/// Makes every missing directory above `path`.
pub(super) fn make(path: &Path, owner: Owner) -> io::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let mut missing = Vec::new();
    for directory in parent.ancestors() {
        match fs::metadata(directory) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(directory),
            Err(error) => return Err(error),
        }
    }
    for directory in missing.into_iter().rev() {
        match make_one(directory, owner) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && directory.is_dir() => {}
            other => other?,
        }
    }
    Ok(())
}
