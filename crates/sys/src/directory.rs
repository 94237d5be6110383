//! Owns making what a directory holds, by descriptor: mkdirat(2), mknodat(2), symlinkat(2), openat(2). Names are single
//! elements that the caller chose; nothing is ever followed.

use crate::call::failed;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Opens a directory in a directory.
pub fn open(parent: impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).map(File::from).map_err(failed("openat"))
}

/// Names a directory in a directory, without the right to read it.
pub fn locate(parent: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty()).map_err(failed("openat"))
}

/// Names the directory at a path of this process. Links on the way are followed.
pub fn locate_at(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed("openat"))
}

/// Names the directory at a path inside `root`, as a process would see it whose root that is; links lead no further than
/// that.
pub fn locate_within(root: impl AsFd, path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = rustix::fs::ResolveFlags::IN_ROOT | rustix::fs::ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, flags, Mode::empty(), resolve).map_err(failed("openat2"))
}

/// Makes a directory with exactly this mode, if the umask is clear. An existing entry is `AlreadyExists`.
pub fn make(parent: impl AsFd, name: &str, mode: u32) -> io::Result<()> {
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)).map_err(failed("mkdirat"))
}

/// Makes a directory unless an entry of that name is there. Says whether it made one.
pub fn make_missing(parent: impl AsFd, name: &str, mode: u32) -> io::Result<bool> {
    match make(parent, name, mode) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a character device that everybody may use, if the umask is clear.
pub fn make_device(parent: impl AsFd, name: &str, major: u32, minor: u32) -> io::Result<()> {
    let device = rustix::fs::makedev(major, minor);
    let mode = Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(parent, name, FileType::CharacterDevice, mode, device).map_err(failed("mknodat"))
}

/// Makes a symbolic link.
pub fn make_link(parent: impl AsFd, name: &str, target: &str) -> io::Result<()> {
    rustix::fs::symlinkat(target, parent, name).map_err(failed("symlinkat"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_in_place_of_a_directory_is_not_followed() {
        let tree = tempfile::tempdir().unwrap();
        symlink("/", tree.path().join("dev")).unwrap();
        let root = File::open(tree.path()).unwrap();
        assert!(!make_missing(&root, "dev", 0o755).unwrap());
        assert!(locate(&root, "dev").is_err());
        assert!(open(&root, "dev").is_err());
    }

    #[test]
    fn a_path_within_a_root_never_leaves_it() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("etc")).unwrap();
        symlink("/etc", tree.path().join("link")).unwrap();
        let root = File::open(tree.path()).unwrap();
        let found = locate_within(&root, "link/../../etc").unwrap();
        let ours = rustix::fs::stat(tree.path().join("etc")).unwrap();
        assert_eq!(rustix::fs::fstat(&found).unwrap().st_ino, ours.st_ino);
        assert!(locate_within(&root, "usr").is_err());
    }
}
