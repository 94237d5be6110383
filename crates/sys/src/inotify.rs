//! Owns watching directories: inotify(7).

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Names a watched directory within its [`Inotify`].
pub type WatchId = i32;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A new entry.
    Created,
    /// Content of an entry changed.
    Modified,
    /// Mode, owner, times or attributes changed.
    Attributes,
    /// An entry is gone.
    Deleted,
    /// An entry got another name; the number pairs it with [`What::MovedTo`].
    MovedFrom(u32),
    /// An entry came from another name.
    MovedTo(u32),
    /// The watched directory itself is gone.
    SelfDeleted,
    /// The watched directory itself was moved.
    SelfMoved,
    /// The watch does not exist any more.
    Ignored,
    /// Events were lost.
    Overflow,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which watch saw it.
    pub watch: WatchId,
    /// What happened.
    pub what: What,
    /// The entry is a directory.
    pub is_directory: bool,
    /// Name of the entry; empty when it is the watched directory itself.
    pub name: OsString,
}

/// A queue of events.
#[derive(Debug)]
pub struct Inotify(OwnedFd);

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Inotify {
    /// A queue that watches nothing yet and never blocks.
    pub fn new() -> io::Result<Self> {
        Ok(Self(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches a directory, following a link only if told so. Watching one twice gives the same id.
    pub fn add(&self, directory: &Path, follow: bool) -> io::Result<WatchId> {
        let mut flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        if !follow {
            flags |= WatchFlags::DONT_FOLLOW;
        }
        Ok(inotify::add_watch(&self.0, directory, flags)?)
    }

    /// Stops watching.
    pub fn remove(&self, watch: WatchId) -> io::Result<()> {
        Ok(inotify::remove_watch(&self.0, watch)?)
    }

    /// Takes what one read of the queue gives; nothing when it is empty.
    pub fn take(&self) -> io::Result<Vec<Event>> {
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.0, &mut space);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => events.extend(convert(&event)),
                Err(rustix::io::Errno::AGAIN) => return Ok(events),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if reader.is_buffer_empty() {
                return Ok(events);
            }
        }
    }
}

fn convert(event: &inotify::Event<'_>) -> Option<Event> {
    let flags = event.events();
    let kinds = [
        (ReadFlags::QUEUE_OVERFLOW, What::Overflow),
        (ReadFlags::IGNORED, What::Ignored),
        (ReadFlags::CREATE, What::Created),
        (ReadFlags::MOVED_TO, What::MovedTo(event.cookie())),
        (ReadFlags::MOVED_FROM, What::MovedFrom(event.cookie())),
        (ReadFlags::ATTRIB, What::Attributes),
        (ReadFlags::MODIFY, What::Modified),
        (ReadFlags::DELETE, What::Deleted),
        (ReadFlags::DELETE_SELF, What::SelfDeleted),
        (ReadFlags::MOVE_SELF, What::SelfMoved),
    ];
    let what = kinds.iter().find(|(flag, _)| flags.contains(*flag))?.1;
    let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
    Some(Event {
        watch: event.wd(),
        what,
        is_directory: flags.contains(ReadFlags::ISDIR),
        name: OsString::from_vec(name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let inotify = Inotify::new().unwrap();
        let watch = inotify.add(directory.path(), true).unwrap();
        std::fs::write(directory.path().join("x"), "1").unwrap();
        let seen: Vec<_> = inotify.take().unwrap().into_iter().map(|e| (e.watch, e.what, e.name)).collect();
        assert_eq!(seen, [(watch, What::Created, "x".into()), (watch, What::Modified, "x".into())]);
        assert!(inotify.take().unwrap().is_empty());
    }
}
