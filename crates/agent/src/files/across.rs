//! Owns moving between file systems (and between the layers of an overlay, which refuses to rename directories of its
//! lower one): a copy beside the target takes its place, then the source goes. Modes, owners, times and attributes of
//! the namespace `user.` are kept.

use super::compose::aside;
use super::describe;
use crate::failure::{at_path, failure, invalid};
use crate::order::Job;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{Failure, Reply};
use cofferdam_sys::file::{Backing, backing, create_new, open_to_read};
use cofferdam_sys::{remove, xattr};
use std::fs::{self, File, FileTimes, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

/// Copies, renames, removes the source.
pub(super) fn perform(job: &Job, in_agent: bool) -> Result<Reply, Failure> {
    let [source, target] = job.paths.as_slice() else { return Err(invalid("two paths are needed")) };
    let (source, target) = (Path::new(source), Path::new(target));
    if target.starts_with(source) {
        return Err(invalid(format!("'{}' is inside of what is moved", target.display())));
    }
    if in_agent && is_in_memory(target.parent().unwrap_or(target)) {
        return Err(failure(ErrorKind::Unavailable, "no process can be started to write files in memory"));
    }
    let copy = aside(target);
    let placed = copy_tree(source, &copy).and_then(|()| {
        fs::rename(&copy, target).map_err(|error| at_path("move to", target.display(), &error))
    });
    if let Err(failed) = placed {
        // The failure that brought us here is what the caller learns.
        remove::remove_all(&copy).ok();
        return Err(failed);
    }
    remove::remove_all(source).map_err(|error| at_path("remove", source.display(), &error))?;
    describe(target)
}

fn is_in_memory(directory: &Path) -> bool {
    let kind = open_to_read(directory).and_then(|directory| backing(directory.as_fd()));
    kind.is_ok_and(|kind| kind == Backing::Memory)
}

/// Without recursion: depth costs no stack. Directories get their times and modes after their content.
fn copy_tree(source: &Path, copy: &Path) -> Result<(), Failure> {
    let mut pending = vec![(source.to_owned(), copy.to_owned())];
    let mut directories: Vec<(PathBuf, Metadata)> = Vec::new();
    while let Some((from, to)) = pending.pop() {
        let at = |error: io::Error| at_path("copy", from.display(), &error);
        let metadata = fs::symlink_metadata(&from).map_err(at)?;
        if metadata.is_dir() {
            fs::create_dir(&to).map_err(at)?;
            for entry in fs::read_dir(&from).map_err(at)? {
                let name = entry.map_err(at)?.file_name();
                pending.push((from.join(&name), to.join(&name)));
            }
            copy_attributes(&from, &to).map_err(at)?;
            directories.push((to, metadata));
        } else {
            copy_one(&from, &to, &metadata).map_err(at)?;
        }
    }
    for (directory, metadata) in directories.iter().rev() {
        let done = File::open(directory).and_then(|file| finish(&file, metadata));
        done.map_err(|error| at_path("copy", directory.display(), &error))?;
    }
    Ok(())
}

fn copy_one(from: &Path, to: &Path, metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        symlink(fs::read_link(from)?, to)?;
        lchown(to, Some(metadata.uid()), Some(metadata.gid()))
    } else if kind.is_file() {
        let (mut source, mut target) = (open_to_read(from)?, create_new(to, 0o600)?);
        io::copy(&mut source, &mut target)?;
        copy_attributes(from, to)?;
        finish(&target, metadata)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn copy_attributes(from: &Path, to: &Path) -> io::Result<()> {
    let target = open_to_read(to)?;
    for name in xattr::names(from)?.iter().filter(|name| name.starts_with(b"user.")) {
        xattr::set(target.as_fd(), name, &xattr::value(from, name)?)?;
    }
    Ok(())
}

/// Owner before mode: changing the owner clears the set-user-id bit.
fn finish(file: &File, metadata: &Metadata) -> io::Result<()> {
    std::os::unix::fs::fchown(file, Some(metadata.uid()), Some(metadata.gid()))?;
    file.set_permissions(fs::Permissions::from_mode(metadata.mode() & 0o7777))?;
    file.set_times(FileTimes::new().set_modified(metadata.modified()?).set_accessed(metadata.accessed()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_copied_with_what_belongs_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/file"), "content").unwrap();
        fs::set_permissions(from.join("a/file"), fs::Permissions::from_mode(0o4751)).unwrap();
        fs::set_permissions(from.join("a"), fs::Permissions::from_mode(0o1777)).unwrap();
        symlink("nowhere", from.join("a/b/link")).unwrap();
        copy_tree(&from, &to).unwrap();

        let mode = |path: &str| fs::metadata(to.join(path)).unwrap().mode() & 0o7777;
        assert_eq!((mode("a/file"), mode("a")), (0o4751, 0o1777));
        assert_eq!(fs::read_to_string(to.join("a/file")).unwrap(), "content");
        assert_eq!(fs::read_link(to.join("a/b/link")).unwrap(), Path::new("nowhere"));
        let times = |root: &Path| fs::metadata(root.join("a")).unwrap().modified().unwrap();
        assert_eq!(times(&from), times(&to));
    }
}
