//! Owns access to a directory tree that somebody else filled: openat2(2) and its *at(2) relatives. Every path is resolved
//! inside the tree the [`Tree`] was opened on, whatever symbolic links it holds. Never follows a link in the last element.

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

const XATTR_BYTES_MAX: usize = 64 * 1024;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Device or socket.
    Special,
}

/// What stat(2) says about an entry itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Permission bits, set-id and sticky bits included.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of the content.
    pub size: u64,
    /// Number of the inode, unique within its device.
    pub inode: u64,
    /// Names that the inode has.
    pub links: u64,
}

/// Whom an entry belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// An open directory. Names given to its methods are single path elements; anything else is refused.
#[derive(Debug)]
pub struct Tree {
    fd: OwnedFd,
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn element(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a single path element"));
    }
    Ok(name)
}

fn kind_of(mode: u32) -> Kind {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        _ => Kind::Special,
    }
}

fn stat_of(raw: &rustix::fs::Stat) -> Stat {
    Stat {
        kind: kind_of(raw.st_mode),
        mode: raw.st_mode & 0o7777,
        uid: raw.st_uid,
        gid: raw.st_gid,
        size: u64::try_from(raw.st_size).unwrap_or(0),
        inode: raw.st_ino,
        links: raw.st_nlink,
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Tree {
    /// Opens the root of a tree. The path itself is the caller's own and trusted.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = rustix::fs::open(path, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Self { fd })
    }

    /// Opens a directory below, with symbolic links and `..` taken as they would be after a chroot(2) into this one.
    pub fn resolve(&self, path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        self.open_directory(path, ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    /// Opens a directory below, reached without any symbolic link.
    pub fn descend(&self, path: &Path) -> io::Result<Self> {
        self.open_directory(path, ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS)
    }

    fn open_directory(&self, path: &Path, how: ResolveFlags) -> io::Result<Self> {
        Ok(Self { fd: openat2(self.as_fd(), path, DIRECTORY, how)? })
    }

    /// Opens a regular file of this directory for reading.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let fd = openat2(self.as_fd(), Path::new(element(name)?), flags, how)?;
        if kind_of(rustix::fs::fstat(&fd)?.st_mode) != Kind::File {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(File::from(fd))
    }

    /// Opens a regular file below for reading, resolved like [`Tree::resolve`], links in the last element included.
    pub fn open_resolved(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let fd = openat2(self.as_fd(), path, flags, how)?;
        if kind_of(rustix::fs::fstat(&fd)?.st_mode) != Kind::File {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(File::from(fd))
    }

    /// Makes a regular file that must not exist.
    pub fn create_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(File::from(rustix::fs::openat(&self.fd, element(name)?, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Makes a directory, open to its owner alone.
    pub fn create_dir(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.fd, element(name)?, Mode::RWXU)?)
    }

    /// Makes a symbolic link. Its target is only text here.
    pub fn create_symlink(&self, target: &OsStr, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(target, &self.fd, element(name)?)?)
    }

    /// Makes a named pipe.
    pub fn create_fifo(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::mkfifoat(&self.fd, element(name)?, Mode::RUSR | Mode::WUSR)?)
    }

    /// Makes a second name of an entry of `from`; a symbolic link is linked itself, not what it points to.
    pub fn create_hard_link(&self, from: &Self, existing: &OsStr, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(&from.fd, element(existing)?, &self.fd, element(name)?, AtFlags::empty())?)
    }

    /// Removes anything but a directory.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, element(name)?, AtFlags::empty())?)
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, element(name)?, AtFlags::REMOVEDIR)?)
    }

    /// What an entry is; `None` when there is none.
    pub fn stat(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.fd, element(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(raw) => Ok(Some(stat_of(&raw))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What this directory itself is.
    pub fn stat_self(&self) -> io::Result<Stat> {
        Ok(stat_of(&rustix::fs::fstat(&self.fd)?))
    }

    /// The text of a symbolic link.
    pub fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        let text = rustix::fs::readlinkat(&self.fd, element(name)?, Vec::new())?;
        Ok(OsString::from_vec(text.into_bytes()))
    }

    /// The names in this directory, sorted by bytes; more than `max` is an error.
    pub fn names(&self, max: usize) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if names.len() == max {
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too many entries in a directory"));
            }
            names.push(OsStr::from_bytes(name).to_os_string());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Sets the owner of an entry; clears set-id bits, so it comes before [`Tree::set_mode`].
    pub fn set_owner(&self, name: &OsStr, owner: Owner) -> io::Result<()> {
        let (uid, gid) = (rustix::fs::Uid::from_raw(owner.uid), rustix::fs::Gid::from_raw(owner.gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        Ok(rustix::fs::chownat(&self.fd, element(name)?, Some(uid), Some(gid), flags)?)
    }

    /// Sets the permission bits of an entry that the caller knows to be no symbolic link; one is refused.
    pub fn set_mode(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        if self.stat(name)?.is_none_or(|stat| stat.kind == Kind::Symlink) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a symbolic link has no mode"));
        }
        let mode = Mode::from_raw_mode(mode & 0o7777);
        Ok(rustix::fs::chmodat(&self.fd, element(name)?, mode, AtFlags::empty())?)
    }

    /// Sets the time of the last change of an entry itself.
    pub fn set_modified(&self, name: &OsStr, seconds: i64) -> io::Result<()> {
        let at = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = Timestamps { last_access: at, last_modification: at };
        Ok(rustix::fs::utimensat(&self.fd, element(name)?, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

fn openat2(at: BorrowedFd<'_>, path: &Path, flags: OFlags, how: ResolveFlags) -> io::Result<OwnedFd> {
    loop {
        // EAGAIN means that a rename raced with the resolution; the next try resolves the new state.
        match rustix::fs::openat2(at, path, flags, Mode::empty(), how) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Sets the owner of an open file; clears set-id bits.
pub fn set_owner(file: impl AsFd, owner: Owner) -> io::Result<()> {
    let (uid, gid) = (rustix::fs::Uid::from_raw(owner.uid), rustix::fs::Gid::from_raw(owner.gid));
    Ok(rustix::fs::fchown(file, Some(uid), Some(gid))?)
}

/// Sets the permission bits of an open file or directory.
pub fn set_mode(file: impl AsFd, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777))?)
}

/// Sets an extended attribute of an open file or directory.
pub fn set_xattr(file: impl AsFd, name: &OsStr, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::fsetxattr(file, name, value, rustix::fs::XattrFlags::empty())?)
}

/// The extended attributes of an open file or directory, sorted by name.
pub fn xattrs(file: impl AsFd) -> io::Result<Vec<(OsString, Vec<u8>)>> {
    let file = file.as_fd();
    let mut list = vec![0; XATTR_BYTES_MAX];
    let length = match rustix::fs::flistxattr(file, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut found = Vec::new();
    for name in list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let bytes = rustix::fs::fgetxattr(file, name, &mut value[..])?;
        value.truncate(bytes);
        found.push((OsStr::from_bytes(name).to_os_string(), value));
    }
    found.sort_unstable();
    Ok(found)
}

/// True when a path could not be resolved because of too many symbolic links.
pub fn is_link_loop(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Bytes that can still be written to the file system that holds `path`, and its size.
pub fn space(path: &Path) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::statvfs(path)?;
    Ok((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn tree() -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        (dir, tree)
    }

    #[test]
    fn links_out_of_the_tree_lead_back_into_it() {
        let (dir, tree) = tree();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::fs::write(dir.path().join("etc/passwd"), "inside").unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("abs")).unwrap();
        std::os::unix::fs::symlink("../../../../etc", dir.path().join("up")).unwrap();
        for link in ["abs", "up", "../../etc", "/etc"] {
            let etc = tree.resolve(Path::new(link)).unwrap();
            let mut text = String::new();
            etc.open_file(OsStr::new("passwd")).unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "inside", "{link}");
        }
        assert!(tree.descend(Path::new("abs")).is_err());
        assert!(tree.descend(Path::new("..")).is_err());
    }

    #[test]
    fn only_single_elements_are_names() {
        let (_dir, tree) = tree();
        for name in ["", ".", "..", "a/b", "/", "a\0b"] {
            assert!(tree.create_dir(OsStr::new(name)).is_err(), "{name:?}");
            assert!(tree.stat(OsStr::new(name)).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_mode_of_what_a_link_points_to_cannot_be_changed_through_it() {
        let (dir, tree) = tree();
        std::fs::write(dir.path().join("file"), "").unwrap();
        tree.create_symlink(OsStr::new("file"), OsStr::new("link")).unwrap();
        assert!(tree.set_mode(OsStr::new("link"), 0o4777).is_err());
        assert!(tree.set_mode(OsStr::new("file"), 0o4755).is_ok());
        assert_eq!(tree.stat(OsStr::new("file")).unwrap().unwrap().mode, 0o4755);
    }
}
