//! Owns moving files: local trees and archives as streams, names that come out of a sandbox, what goes where.

pub(crate) mod archive;
pub(crate) mod download;
pub(crate) mod stream;
pub(crate) mod upload;

use std::path::{Component, Path, PathBuf};

/// Files that are moved at the same time.
const WIDTH: usize = 8;

/// The local place of a name that came out of a sandbox; nothing if it would leave the directory.
fn below(directory: &Path, name: &str) -> Option<PathBuf> {
    let path = Path::new(name);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && !name.is_empty() && !name.contains('\0')).then(|| directory.join(path))
}

/// `directory` and `name` as a path in a sandbox.
fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() || directory.ends_with('/') {
        format!("{directory}{name}")
    } else {
        format!("{directory}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_a_sandbox_stay_below_the_destination() {
        assert_eq!(below(Path::new("/d"), "a"), Some("/d/a".into()));
        for name in ["", "..", "../x", "/etc/passwd", ".", "a/../../x", "a\0b"] {
            assert_eq!(below(Path::new("/d"), name), None, "{name:?}");
        }
    }

    #[test]
    fn remote_paths_are_joined_by_one_slash() {
        assert_eq!(join("/a", "b"), "/a/b");
        assert_eq!(join("/", "b"), "/b");
        assert_eq!(join("", "b"), "b");
    }
}
