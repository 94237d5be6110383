//! Tests of imports: what is kept, what is refused, and that nothing ever leaves the tree. Run as root, as the node is.

mod archives;
mod hostile;
mod images;
mod kept;
mod mutated;

use crate::templates::error::ImportError;
use crate::templates::import::{self, Built};
use cofferdam_proto::node::ImportFormat;
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::Arc;

/// A place for one import, with a directory beside the tree that must stay as it is.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["tree", "scratch", "outside"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("outside/file"), "untouched").unwrap();
        Self { dir }
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn build(&self, format: ImportFormat, bytes: Vec<u8>) -> Result<Built, ImportError> {
        let (tree, scratch) = (self.tree(), self.dir.path().join("scratch"));
        let built = import::build(Cursor::new(bytes), format, &tree, &scratch, &(Arc::new(|_| ()) as _));
        self.assert_untouched();
        built
    }

    fn rootfs(&self, bytes: Vec<u8>) -> Result<Built, ImportError> {
        self.build(ImportFormat::Rootfs, bytes)
    }

    #[track_caller]
    fn assert_untouched(&self) {
        let outside = self.dir.path().join("outside");
        assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), "untouched");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
        let mut names: Vec<_> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(names, ["outside", "scratch", "tree"]);
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.tree().join(path)).unwrap()
    }

    fn exists(&self, path: &str) -> bool {
        self.tree().join(path).symlink_metadata().is_ok()
    }
}
