//! Owns `Write`: content in frames into one file. A small new file makes exactly three events for a watcher: it is
//! created, it gets its owner, it is written. No temporary file, no truncation of what is empty.

use super::job;
use super::{Owner, describe, entry, locate, parents};
use crate::agent::Agent;
use crate::connection::Connection;
use crate::failure::{at_path, because, failure, invalid};
use crate::order::{Job, Kind};
use cofferdam_core::ErrorKind;
use cofferdam_core::limits::{GUEST_DATA_BYTES_MAX, METADATA_BYTES_MAX};
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::{self, Failure, Reason, Reply};
use cofferdam_sys::file::{Backing, backing, create_new, open_or_create, open_to_write};
use cofferdam_sys::xattr;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

/// ENXIO.
const NO_DEVICE: i32 = 6;

/// Hands the file over to a job; `content` is its attributes and its mode if it is new.
pub(crate) fn run(
    agent: &Agent,
    connection: &Connection,
    path: &guest::Path,
    content: (BTreeMap<String, String>, u32),
) -> Result<(), Failure> {
    let (path, account) = locate(agent, path)?;
    let (metadata, mode) = content;
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > METADATA_BYTES_MAX || metadata.keys().any(|name| name.is_empty() || name.contains('\0')) {
        return Err(invalid("these attributes cannot be stored"));
    }
    let owner = Owner::from(&account);
    let paths = vec![path.to_string_lossy().into_owned()];
    job::hand_over(
        agent,
        connection,
        Job { kind: Kind::Write, uid: owner.uid, gid: owner.gid, mode, paths, metadata },
    )
}

/// Takes the content from the caller. In the agent's own cgroup (`in_agent`) nothing is written that stays in memory.
pub(super) fn perform(connection: &Connection, job: &Job, in_agent: bool) -> Result<Reply, Failure> {
    let Some(path) = job.paths.first().map(Path::new) else { return Err(invalid("no path")) };
    let (file, is_new) = open(path, job.owner(), job.mode & 0o777).map_err(|error| fail(path, &error))?;
    let mut target = Target { path, file, is_new };
    match target.fill(connection, job, in_agent) {
        Ok(()) => describe(path),
        Err(failed) => {
            target.withdraw();
            Err(failed)
        }
    }
}

fn fail(path: &Path, error: &io::Error) -> Failure {
    let message = || format!("path '{}' is a directory", path.display());
    match error.kind() {
        io::ErrorKind::IsADirectory => because(ErrorKind::InvalidArgument, Reason::IsDirectory, message()),
        io::ErrorKind::InvalidInput => invalid(format!("path '{}' is not a regular file", path.display())),
        _ => at_path("write", path.display(), error),
    }
}

/// Opens `path` for writing, makes it with its parents if it is not there, and gives it to `owner`. Tells whether it is
/// new. The content of an existing file stays for now.
pub(crate) fn open(path: &Path, owner: Owner, mode: u32) -> io::Result<(File, bool)> {
    let created = match create_new(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            parents::make(path, owner)?;
            create_new(path, mode)
        }
        other => other,
    };
    let (file, is_new) = match created {
        Ok(file) => (file, true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (open_existing(path, mode)?, false),
        Err(error) => return Err(error),
    };
    fchown(&file, Some(owner.uid), Some(owner.gid))?;
    Ok((file, is_new))
}

/// Links are followed, also those that lead to nothing yet.
fn open_existing(path: &Path, mode: u32) -> io::Result<File> {
    let file = match open_to_write(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => open_or_create(path, mode)?,
        // A FIFO that nobody reads, or a socket.
        Err(error) if error.raw_os_error() == Some(NO_DEVICE) => {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        other => other?,
    };
    let is_writable = !matches!(backing(file.as_fd())?, Backing::Proc | Backing::Kernel);
    if !file.metadata()?.is_file() {
        Err(io::ErrorKind::InvalidInput.into())
    } else if is_writable {
        Ok(file)
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

struct Target<'a> {
    path: &'a Path,
    file: File,
    is_new: bool,
}

impl Target<'_> {
    fn fill(&mut self, connection: &Connection, job: &Job, in_agent: bool) -> Result<(), Failure> {
        let kind = backing(self.file.as_fd()).map_err(|error| fail(self.path, &error))?;
        if in_agent && kind == Backing::Memory {
            let message =
                format!("'{}' is in memory, and no process can be started to write it", self.path.display());
            return Err(failure(ErrorKind::Unavailable, message));
        }
        self.prepare(job).map_err(|error| fail(self.path, &error))?;
        connection.try_reply(&Reply::Ok);
        let mut pending = Vec::new();
        loop {
            let payload = match connection.read_frame() {
                Ok(Some(frame)) if frame.channel == Channel::File => frame.payload,
                _ => return Err(failure(ErrorKind::Unavailable, "the content was broken off")),
            };
            let is_end = payload.is_empty();
            let bytes = if pending.is_empty() { payload } else { [pending, payload].concat() };
            pending = Vec::new();
            // Small pieces are gathered: what fits into one write is one event for a watcher.
            if is_end || bytes.len() >= GUEST_DATA_BYTES_MAX / 2 {
                self.file.write_all(&bytes).map_err(|error| fail(self.path, &error))?;
            } else {
                pending = bytes;
            }
            if is_end {
                return Ok(());
            }
        }
    }

    fn prepare(&self, job: &Job) -> io::Result<()> {
        if !self.is_new {
            for name in xattr::names_of(self.file.as_fd())? {
                if name.starts_with(entry::PREFIX) {
                    xattr::remove(self.file.as_fd(), &name)?;
                }
            }
            if self.file.metadata()?.len() > 0 {
                self.file.set_len(0)?;
            }
        }
        for (name, value) in &job.metadata {
            xattr::set(self.file.as_fd(), &[entry::PREFIX, name.as_bytes()].concat(), value.as_bytes())?;
        }
        Ok(())
    }

    /// Half a file that was not there before is worse than none, and may hold the last free bytes.
    fn withdraw(&self) {
        let is_still_it = |a: &fs::Metadata, b: &fs::Metadata| (a.ino(), a.dev()) == (b.ino(), b.dev());
        if self.is_new
            && let (Ok(ours), Ok(there)) = (self.file.metadata(), fs::symlink_metadata(self.path))
            && is_still_it(&ours, &there)
        {
            // The failure that brought us here is what the caller learns.
            fs::remove_file(self.path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn own() -> Owner {
        let metadata = fs::metadata("/proc/self").unwrap();
        Owner { uid: metadata.uid(), gid: metadata.gid() }
    }

    #[test]
    fn a_new_file_gets_its_parents_and_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/c");
        assert!(open(&path, own(), 0o604).unwrap().1);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&path), 0o604);
        assert_eq!(mode(path.parent().unwrap()), 0o755);
        assert!(!open(&path, own(), 0o777).unwrap().1);
        assert_eq!(mode(&path), 0o604);
    }

    #[test]
    fn links_are_followed_and_only_regular_files_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::os::unix::fs::symlink("target", path("link")).unwrap();
        open(&path("link"), own(), 0o644).unwrap();
        assert!(path("target").is_file());
        let kind = |path: &Path| open(path, own(), 0o644).unwrap_err().kind();
        assert_eq!(kind(directory.path()), io::ErrorKind::IsADirectory);
        assert_eq!(kind(Path::new("/dev/null")), io::ErrorKind::InvalidInput);
        assert_eq!(kind(Path::new("/proc/self/comm")), io::ErrorKind::PermissionDenied);
        assert_eq!(kind(&path("target/below")), io::ErrorKind::NotADirectory);
    }
}
