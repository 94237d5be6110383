//! Owns what the store needs of a place for trees: make one, make it read-only for ever, remove it. Storage is such a
//! place; tests use plain directories.

use cofferdam_sys::btrfs;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A directory of trees. Names are single path elements that the store chose.
pub(crate) trait Trees: Send + Sync + 'static {
    /// The directory itself.
    fn directory(&self) -> &Path;

    /// Makes an empty tree.
    fn create(&self, name: &str) -> io::Result<()>;

    /// Makes a tree read-only.
    fn seal(&self, name: &str) -> io::Result<()>;

    /// Removes a tree, sealed or not.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// Trees that are subvolumes of the data volume: read-only means that not even the host writes to them.
#[derive(Debug)]
pub(crate) struct VolumeTrees {
    directory: PathBuf,
    parent: File,
}

impl VolumeTrees {
    /// Trees in this directory of the volume, which is made when it is missing.
    pub(crate) fn open(directory: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&directory)?;
        let parent = File::open(&directory)?;
        Ok(Self { directory, parent })
    }
}

impl Trees for VolumeTrees {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn create(&self, name: &str) -> io::Result<()> {
        btrfs::create_subvolume(&self.parent, name)
    }

    fn seal(&self, name: &str) -> io::Result<()> {
        btrfs::make_subvolume_read_only(File::open(self.directory.join(name))?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        btrfs::destroy_subvolume(&self.parent, name)
    }
}

/// Trees that are plain directories; sealing is a promise.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct PlainTrees {
    pub(crate) directory: std::path::PathBuf,
}

#[cfg(test)]
impl Trees for PlainTrees {
    fn directory(&self) -> &Path {
        &self.directory
    }

    fn create(&self, name: &str) -> io::Result<()> {
        std::fs::create_dir(self.directory.join(name))
    }

    fn seal(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_dir_all(self.directory.join(name))
    }
}
