//! Owns describing one entry of the file system.

use crate::users::Names;
use cofferdam_proto::guest::{Entry, FileType};
use cofferdam_sys::xattr;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Namespace of the attributes that clients see.
pub(super) const PREFIX: &[u8] = b"user.e2b.";
/// Attributes that are told about one file, and bytes of all of them: programs inside can set more.
const METADATA_COUNT_MAX: usize = 256;
const METADATA_BYTES_MAX: usize = 64 * 1024;

/// Looks at `path`, not through a link at its end.
pub(super) fn read(path: &Path, names: &Names) -> io::Result<Entry> {
    let metadata = fs::symlink_metadata(path)?;
    Ok(describe(path, &metadata, names))
}

/// The entry that `metadata` is of.
pub(super) fn describe(path: &Path, metadata: &Metadata, names: &Names) -> Entry {
    let file_type = kind(metadata);
    let (target_type, target) = match file_type {
        FileType::Symlink => {
            let (kind, target) = follow(path);
            (Some(kind), Some(target))
        }
        FileType::File | FileType::Directory | FileType::Other => (None, None),
    };
    let name = path.file_name().unwrap_or(path.as_os_str());
    let attributes = if file_type == FileType::Symlink { BTreeMap::new() } else { attributes(path) };
    Entry {
        name: name.to_string_lossy().into_owned(),
        path: path.to_string_lossy().into_owned(),
        file_type,
        target_type,
        target,
        size: metadata.size(),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        owner: names.user(metadata.uid()),
        group: names.group(metadata.gid()),
        modified_us: metadata.mtime().saturating_mul(1_000_000).saturating_add(metadata.mtime_nsec() / 1000),
        metadata: attributes,
    }
}

fn kind(metadata: &Metadata) -> FileType {
    let kind = metadata.file_type();
    if kind.is_file() {
        FileType::File
    } else if kind.is_dir() {
        FileType::Directory
    } else if kind.is_symlink() {
        FileType::Symlink
    } else {
        FileType::Other
    }
}

fn follow(path: &Path) -> (FileType, String) {
    match (fs::metadata(path), fs::canonicalize(path)) {
        (Ok(metadata), Ok(target)) => (kind(&metadata), target.to_string_lossy().into_owned()),
        _ => {
            let text = fs::read_link(path).unwrap_or_default();
            (FileType::Other, text.to_string_lossy().into_owned())
        }
    }
}

fn attributes(path: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut bytes = 0;
    // A file without readable attributes is one without attributes.
    for name in xattr::names(path).unwrap_or_default() {
        let Some(short) = name.strip_prefix(PREFIX) else { continue };
        let Ok(value) = xattr::value(path, &name) else { continue };
        bytes += name.len() + value.len();
        if found.len() >= METADATA_COUNT_MAX || bytes > METADATA_BYTES_MAX {
            break;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        found.insert(text(short), text(&value));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_tell_where_they_lead() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "abc").unwrap();
        symlink("file", path("good")).unwrap();
        symlink("nowhere", path("broken")).unwrap();
        symlink("loop", path("loop")).unwrap();
        let entry = |name: &str| read(&path(name), &Names::default()).unwrap();

        let good = entry("good");
        assert_eq!((good.file_type, good.target_type), (FileType::Symlink, Some(FileType::File)));
        assert!(good.target.unwrap().ends_with("/file"));
        let broken = entry("broken");
        assert_eq!((broken.target_type, broken.target.as_deref()), (Some(FileType::Other), Some("nowhere")));
        assert_eq!(entry("loop").target.as_deref(), Some("loop"));
        assert_eq!((entry("file").size, entry("file").file_type), (3, FileType::File));
    }

    #[test]
    fn the_root_has_a_name() {
        let root = read(Path::new("/"), &Names::default()).unwrap();
        assert_eq!((root.name.as_str(), root.path.as_str()), ("/", "/"));
    }
}
