//! Owns removing trees of any depth with few descriptors and little stack: unlinkat(2), renameat(2), openat(2). Never
//! follows a link.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Levels that are open at once. What lies deeper is moved up to the top and removed from there.
const LEVELS_MAX: usize = 32;
/// How often a directory is looked through again because something new is in it.
const PASSES_MAX: u32 = 100_000;

/// Makes the names at the top unique.
static MOVED: AtomicU64 = AtomicU64::new(0);

/// Removes whatever `path` is, with everything in it. What is not there is fine; what cannot be removed stays, and the
/// first reason is the error.
pub fn remove_all(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    for _ in 0..PASSES_MAX {
        match remove_one(CWD, &name, None) {
            Ok(()) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let top = open(CWD, &name)?;
        let removed = Sweep::new(top)?.run()?;
        if removed == 0 {
            return Err(Errno::NOTEMPTY.into());
        }
    }
    Err(Errno::NOTEMPTY.into())
}

/// A file, or an empty directory.
fn remove_one(at: BorrowedFd<'_>, name: &CStr, kind: Option<FileType>) -> Result<(), Errno> {
    if kind != Some(FileType::Directory) {
        match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    match rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        // It was a file after all, one that may not be removed.
        Err(Errno::NOTDIR) => Err(Errno::PERM),
        Err(error) => Err(error),
    }
}

fn open(at: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

struct Level {
    fd: OwnedFd,
    entries: Dir,
    name: CString,
}

impl Level {
    fn new(fd: OwnedFd, name: CString) -> Result<Self, Errno> {
        let entries = Dir::read_from(&fd)?;
        Ok(Self { fd, entries, name })
    }
}

/// One look through a directory.
struct Sweep {
    levels: Vec<Level>,
    removed: u64,
    moved: u64,
    failed: Option<Errno>,
}

impl Sweep {
    fn new(top: OwnedFd) -> Result<Self, Errno> {
        let levels = vec![Level::new(top, CString::default())?];
        Ok(Self { levels, removed: 0, moved: 0, failed: None })
    }

    /// Gives the number of entries that were removed.
    fn run(mut self) -> io::Result<u64> {
        while let Some(level) = self.levels.last_mut() {
            match level.entries.next() {
                Some(Ok(entry)) if [c".", c".."].contains(&entry.file_name()) => {}
                Some(Ok(entry)) => {
                    let (name, kind) = (entry.file_name().to_owned(), entry.file_type());
                    self.entry(name, kind);
                }
                Some(Err(error)) => {
                    self.failed.get_or_insert(error);
                    self.leave();
                }
                None => self.leave(),
            }
        }
        match self.failed {
            Some(error) => Err(error.into()),
            None => Ok(self.removed + self.moved),
        }
    }

    fn entry(&mut self, name: CString, kind: FileType) {
        let Some(level) = self.levels.last() else { return };
        match remove_one(level.fd.as_fd(), &name, Some(kind)) {
            Ok(()) => self.removed += 1,
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                if let Err(error) = self.enter(name) {
                    self.failed.get_or_insert(error);
                }
            }
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }

    fn enter(&mut self, name: CString) -> Result<(), Errno> {
        let (Some(top), Some(level)) = (self.levels.first(), self.levels.last()) else { return Ok(()) };
        if self.levels.len() >= LEVELS_MAX {
            self.moved += 1;
            let serial = MOVED.fetch_add(1, Ordering::Relaxed);
            let aside = CString::new(format!(".cofferdam-removed-{}-{serial}", std::process::id()));
            return rustix::fs::renameat(&level.fd, &name, &top.fd, aside.map_err(|_| Errno::INVAL)?);
        }
        let fd = open(level.fd.as_fd(), &name)?;
        self.levels.push(Level::new(fd, name)?);
        Ok(())
    }

    /// A directory was looked through; it should be empty now.
    fn leave(&mut self) {
        let (Some(done), Some(parent)) = (self.levels.pop(), self.levels.last()) else { return };
        match remove_one(parent.fd.as_fd(), &done.name, Some(FileType::Directory)) {
            Ok(()) => self.removed += 1,
            // Something failed below, or is new: the next pass sees.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => {
                self.failed.get_or_insert(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_links_and_nothing_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        remove_all(&path).unwrap();
        fs::write(&path, "1").unwrap();
        remove_all(&path).unwrap();
        std::os::unix::fs::symlink(directory.path(), &path).unwrap();
        remove_all(&path).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn links_in_a_tree_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (kept, tree) = (directory.path().join("kept"), directory.path().join("tree"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "1").unwrap();
        std::os::unix::fs::symlink(&kept, tree.join("a/link")).unwrap();
        remove_all(&tree).unwrap();
        assert!(!tree.exists() && kept.join("file").exists());
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut fd: OwnedFd = fs::File::open(&tree).unwrap().into();
        let name = CString::new("x".repeat(200)).unwrap();
        for _ in 0..3 * LEVELS_MAX {
            rustix::fs::mkdirat(&fd, &name, Mode::from_raw_mode(0o700)).unwrap();
            fd = open(fd.as_fd(), &name).unwrap();
        }
        drop(fd);
        remove_all(&tree).unwrap();
        assert!(!tree.exists());
    }
}
