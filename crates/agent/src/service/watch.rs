//! Owns `Watch`: what happens in a directory, in the order in which the kernel tells it, with names relative to the
//! directory. Directories that appear later are watched too, and what was put into them before we looked is told as if
//! we had.

use crate::agent::Agent;
use crate::connection::Connection;
use crate::failure::{at_path, because, failure};
use crate::files;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{self, Change, Failure, Reason, Reply};
use cofferdam_sys::inotify::{Event, Inotify, WatchId, What};
use cofferdam_sys::poll::{self, PollFd, PollFlags};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Most directories of one recursive watch.
const DIRECTORIES_MAX: usize = 16_384;
/// Changes that are told before the caller is looked at again.
const TOLD_AT_ONCE_MAX: usize = 1024;

/// Runs until the caller leaves.
pub(super) fn run(
    agent: &Agent,
    connection: &Connection,
    path: &guest::Path,
    recursive: bool,
) -> Result<(), Failure> {
    let (root, _) = files::locate(agent, path)?;
    let mut watcher = Watcher::new(root, recursive)?;
    if connection.reply(&Reply::Ok).is_err() {
        return Ok(());
    }
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(watcher.inotify.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN | PollFlags::RDHUP),
        ];
        let polled = poll::wait(&mut fds, None);
        // The caller has nothing to say: whatever comes from it is its end.
        if polled.is_err() || !fds[1].revents().is_empty() {
            return Ok(());
        }
        for (name, change) in watcher.take()? {
            if connection.reply(&Reply::Event { name, change }).is_err() {
                return Ok(());
            }
        }
    }
}

/// Changes in the order in which they are told.
type Changes = Vec<(String, Change)>;

struct Watcher {
    inotify: Inotify,
    root: PathBuf,
    recursive: bool,
    /// Path of every watched directory, relative to the root.
    directories: HashMap<WatchId, PathBuf>,
    /// Entries that were told because we found them; the kernel may tell them once more.
    found: HashSet<PathBuf>,
    /// A directory that was moved away, until we know where to.
    moved: Option<(u32, PathBuf)>,
}

impl Watcher {
    fn new(root: PathBuf, recursive: bool) -> Result<Self, Failure> {
        let at = |error: &io::Error| at_path("watch", root.display(), error);
        if !fs::metadata(&root).map_err(|error| at(&error))?.is_dir() {
            let message = format!("'{}' is not a directory", root.display());
            return Err(because(ErrorKind::InvalidArgument, Reason::NotDirectory, message));
        }
        let inotify = Inotify::new().map_err(|_| too_many())?;
        let id = inotify.add(&root, true).map_err(|error| no_watch(&root, &error))?;
        let directories = [(id, PathBuf::new())].into();
        let mut watcher = Self { inotify, root, recursive, directories, found: HashSet::new(), moved: None };
        if recursive {
            watcher.descend(PathBuf::new(), None)?;
        }
        Ok(watcher)
    }

    /// Watches everything below `directory` (relative); tells what is there if `told` is given.
    fn descend(&mut self, directory: PathBuf, mut told: Option<&mut Changes>) -> Result<(), Failure> {
        let mut pending = vec![directory];
        while let Some(directory) = pending.pop() {
            // What cannot be read, or vanished, has nothing in it.
            for entry in fs::read_dir(self.root.join(&directory)).into_iter().flatten().flatten() {
                let path = directory.join(entry.file_name());
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if let Some(told) = told.as_deref_mut() {
                    self.tell_found(&path, is_directory, told);
                }
                if is_directory && self.watch(&path)? {
                    pending.push(path);
                }
            }
        }
        Ok(())
    }

    fn tell_found(&mut self, path: &Path, is_directory: bool, told: &mut Changes) {
        // The kernel's own event may have come first.
        if !self.found.insert(path.to_owned()) {
            return;
        }
        told.push((shown(path), Change::Create));
        let has_content = || fs::symlink_metadata(self.root.join(path)).is_ok_and(|found| found.len() > 0);
        if !is_directory && has_content() {
            told.push((shown(path), Change::Write));
        }
    }

    /// False when it is gone already.
    fn watch(&mut self, path: &Path) -> Result<bool, Failure> {
        if self.directories.len() >= DIRECTORIES_MAX {
            return Err(too_many());
        }
        let full = self.root.join(path);
        match self.inotify.add(&full, false) {
            Ok(id) => {
                self.directories.insert(id, path.to_owned());
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(too_many()),
            // Gone, replaced by something else, or deeper than a path can be.
            Err(_) => Ok(false),
        }
    }

    /// What the kernel has to tell now.
    fn take(&mut self) -> Result<Changes, Failure> {
        let mut told = Changes::new();
        while told.len() < TOLD_AT_ONCE_MAX {
            let events = self.inotify.take().map_err(|_| failure(ErrorKind::Internal, "the watch broke"))?;
            if events.is_empty() {
                // Everything that happened before we looked was told.
                self.found.clear();
                self.forget_moved();
                break;
            }
            for event in events {
                self.translate(event, &mut told)?;
            }
        }
        Ok(told)
    }

    fn translate(&mut self, event: Event, told: &mut Changes) -> Result<(), Failure> {
        if event.what == What::Overflow {
            return Err(failure(ErrorKind::ResourceExhausted, "more happened than could be told"));
        }
        let Some(directory) = self.directories.get(&event.watch) else { return Ok(()) };
        let (path, is_itself) = (directory.join(&event.name), event.name.is_empty());
        // What happens to a watched directory itself is told by the one above it; only the root has none.
        let is_told = !is_itself || path.as_os_str().is_empty();
        if !matches!((event.what, &self.moved), (What::MovedTo(to), Some((from, _))) if to == *from) {
            self.forget_moved();
        }
        let follow = self.recursive && event.is_directory;
        let change = match event.what {
            What::Created => {
                if !self.found.remove(&path) {
                    told.push((shown(&path), Change::Create));
                }
                if follow && self.watch(&path)? {
                    self.descend(path, Some(told))?;
                }
                return Ok(());
            }
            What::MovedTo(_) => {
                told.push((shown(&path), Change::Create));
                self.moved = None;
                // One that was watched before keeps its watches, which now get their new paths.
                if follow && self.watch(&path)? {
                    self.descend(path, None)?;
                }
                return Ok(());
            }
            What::MovedFrom(cookie) => {
                if follow {
                    self.moved = Some((cookie, path.clone()));
                }
                Change::Rename
            }
            What::Ignored => {
                self.directories.remove(&event.watch);
                return Ok(());
            }
            What::Modified => Change::Write,
            What::Attributes => Change::Chmod,
            What::Deleted | What::SelfDeleted => Change::Remove,
            What::SelfMoved => Change::Rename,
            What::Overflow => return Ok(()),
        };
        if is_told {
            told.push((shown(&path), change));
        }
        Ok(())
    }

    /// A directory that was moved away did not come back under another name: it is not below the root any more.
    fn forget_moved(&mut self) {
        let Some((_, gone)) = self.moved.take() else { return };
        let inotify = &self.inotify;
        self.directories.retain(|id, path| {
            let stays = !path.starts_with(&gone);
            if !stays {
                // It may have been deleted meanwhile.
                inotify.remove(*id).ok();
            }
            stays
        });
    }
}

fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
}

fn no_watch(path: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::StorageFull {
        too_many()
    } else {
        at_path("watch", path.display(), error)
    }
}

fn too_many() -> Failure {
    failure(ErrorKind::ResourceExhausted, "too many directories are watched")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene {
        directory: tempfile::TempDir,
        watcher: Watcher,
    }

    impl Scene {
        fn new(recursive: bool) -> Self {
            let directory = tempfile::tempdir().unwrap();
            fs::create_dir_all(directory.path().join("old/deep")).unwrap();
            let watcher =
                Watcher::new(directory.path().to_owned(), recursive).unwrap_or_else(|e| panic!("{e}"));
            Self { directory, watcher }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        #[track_caller]
        fn check(&mut self, expected: &str) {
            let told = self.watcher.take().unwrap_or_else(|error| panic!("{error}"));
            let told: Vec<_> = told.iter().map(|(name, change)| format!("{change:?} {name}")).collect();
            assert_eq!(told.join(", "), expected);
        }
    }

    #[test]
    fn a_small_new_file_makes_exactly_three_events() {
        use std::io::Write;
        let mut scene = Scene::new(false);
        let own = fs::metadata(scene.path("")).map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap();
        let owner = crate::files::Owner { uid: own, gid: own };
        let (mut file, _) = crate::files::write::open(&scene.path("x"), owner, 0o644).unwrap();
        file.write_all(b"content").unwrap();
        scene.check("Create x, Chmod x, Write x");
    }

    #[test]
    fn a_file_put_into_a_new_directory_at_once_is_told() {
        let mut scene = Scene::new(true);
        fs::create_dir_all(scene.path("new/sub")).unwrap();
        fs::write(scene.path("new/sub/file"), "1").unwrap();
        scene.check("Create new, Create new/sub, Create new/sub/file, Write new/sub/file");
        fs::write(scene.path("new/sub/file"), "2").unwrap();
        scene.check("Write new/sub/file");
        fs::write(scene.path("old/deep/file"), "").unwrap();
        scene.check("Create old/deep/file");
    }

    #[test]
    fn a_watch_that_is_not_recursive_stays_on_top() {
        let mut scene = Scene::new(false);
        fs::create_dir(scene.path("new")).unwrap();
        fs::write(scene.path("new/file"), "1").unwrap();
        scene.check("Create new");
    }

    #[test]
    fn a_renamed_directory_is_followed() {
        let mut scene = Scene::new(true);
        fs::rename(scene.path("old"), scene.path("young")).unwrap();
        scene.check("Rename old, Create young");
        fs::write(scene.path("young/deep/file"), "").unwrap();
        scene.check("Create young/deep/file");
    }

    #[test]
    fn a_directory_that_left_is_not_watched_any_more() {
        let mut scene = Scene::new(true);
        let elsewhere = tempfile::tempdir_in(scene.directory.path().parent().unwrap()).unwrap();
        fs::rename(scene.path("old"), elsewhere.path().join("old")).unwrap();
        scene.check("Rename old");
        fs::write(elsewhere.path().join("old/deep/file"), "").unwrap();
        scene.check("");
    }

    #[test]
    fn removal_is_told_once() {
        let mut scene = Scene::new(true);
        fs::remove_dir(scene.path("old/deep")).unwrap();
        scene.check("Remove old/deep");
    }

    #[test]
    fn the_end_of_the_root_is_told() {
        let mut scene = Scene::new(false);
        fs::remove_dir_all(scene.path("")).unwrap();
        scene.check("Remove old, Remove .");
    }

    #[test]
    fn only_directories_can_be_watched() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x"), "").unwrap();
        let refused = Watcher::new(directory.path().join("x"), false).err().unwrap();
        assert_eq!(refused.reason, Reason::NotDirectory);
        assert_eq!(Watcher::new(directory.path().join("y"), false).err().unwrap().kind, ErrorKind::NotFound);
    }
}
