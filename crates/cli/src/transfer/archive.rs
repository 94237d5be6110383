//! Owns what `template import` sends: a tar file as it is, or a directory turned into a tar on the way.

use super::stream;
use crate::client::Body;
use crate::error::Error;
use crate::progress::Progress;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Entries of a tar that are looked at to tell an OCI layout from a root file system.
const ENTRIES_LOOKED_AT: usize = 1000;
const OCI_MARK: &str = "oci-layout";

/// What is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Rootfs,
    OciLayout,
}

impl Kind {
    /// The word of the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Rootfs => "rootfs",
            Self::OciLayout => "oci_layout",
        }
    }
}

/// A source to import.
pub(crate) struct Archive {
    source: Source,
    kind: Kind,
}

enum Source {
    File(File, u64),
    Directory(PathBuf),
}

impl Archive {
    /// Opens a tar or a directory, and finds out what it is unless that is given.
    pub(crate) fn open(path: &Path, kind: Option<Kind>) -> Result<Self, Error> {
        let what = format!("read `{}`", path.display());
        let mut file = File::open(path).map_err(Error::local(what.clone()))?;
        let metadata = file.metadata().map_err(Error::local(what.clone()))?;
        if metadata.is_dir() {
            let found = if path.join(OCI_MARK).is_file() { Kind::OciLayout } else { Kind::Rootfs };
            return Ok(Self { source: Source::Directory(path.to_owned()), kind: kind.unwrap_or(found) });
        }
        let kind = match kind {
            Some(kind) => kind,
            None if has_oci_mark(&mut file) => Kind::OciLayout,
            None => Kind::Rootfs,
        };
        file.rewind().map_err(Error::local(what))?;
        Ok(Self { source: Source::File(file, metadata.len()), kind })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// How many bytes will be sent; 0 when that is not known.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.source {
            Source::File(_, length) => *length,
            Source::Directory(_) => 0,
        }
    }
}

/// The archive as the body of a request.
pub(crate) fn body(archive: Archive, progress: &Progress) -> Body {
    match archive.source {
        Source::File(file, length) => stream::of_reader(file, length, progress),
        Source::Directory(path) => stream::of_thread(progress, move |sink| pack(&path, sink)),
    }
}

/// Writes a directory as a tar, with owners, permissions, links and special files.
fn pack(directory: &Path, sink: impl Write) -> io::Result<()> {
    let mut tar = tar::Builder::new(sink);
    tar.follow_symlinks(false);
    tar.append_dir_all(".", directory)?;
    tar.into_inner()?.flush()
}

/// A compressed tar cannot be looked into cheaply; it is taken for a root file system.
fn has_oci_mark(file: &mut (impl Read + Seek)) -> bool {
    let mut tar = tar::Archive::new(file);
    let Ok(entries) = tar.entries_with_seek() else { return false };
    entries.take(ENTRIES_LOOKED_AT).map_while(Result::ok).any(|entry| {
        entry.path().is_ok_and(|path| path.strip_prefix(".").unwrap_or(&path) == Path::new(OCI_MARK))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Kind) {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join(name), "{}").unwrap();
        assert_eq!(Archive::open(&tree, None).unwrap().kind(), expected);

        let packed = dir.path().join("x.tar");
        pack(&tree, File::create(&packed).unwrap()).unwrap();
        assert_eq!(Archive::open(&packed, None).unwrap().kind(), expected);
        assert_eq!(Archive::open(&packed, Some(Kind::OciLayout)).unwrap().kind(), Kind::OciLayout);
    }

    #[test]
    fn an_oci_layout_is_told_from_a_root_file_system() {
        check("oci-layout", Kind::OciLayout);
        check("etc", Kind::Rootfs);
    }

    #[test]
    fn what_is_no_tar_is_left_to_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, [7; 3000]).unwrap();
        assert_eq!(Archive::open(&path, None).unwrap().kind(), Kind::Rootfs);
        assert!(Archive::open(&dir.path().join("missing"), None).is_err());
    }
}
