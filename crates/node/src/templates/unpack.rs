//! Owns the placing of archive members in a new tree. Every name is resolved by the kernel inside the tree; members of
//! later layers replace earlier ones, and whiteouts remove them. Never leaves the tree, makes no device.

use crate::templates::archive::{Member, MemberKind};
use crate::templates::error::{self, ImportError};
use cofferdam_core::limits;
use cofferdam_sys::openat::{self, Kind, Owner, Tree};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::ops::Bound;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes between two looks at the free space of the volume.
const SPACE_CHECK_BYTES: u64 = 64 * 1024 * 1024;
/// Bytes that an import leaves free for the sandboxes that run.
const SPACE_RESERVE_BYTES: u64 = 256 * 1024 * 1024;

/// How the names `.wh.*` are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whiteouts {
    /// As names like any other.
    Ignored,
    /// As marks that remove what earlier layers placed.
    Applied,
}

/// A tree being filled.
#[derive(Debug)]
pub(crate) struct Unpacker {
    root: Tree,
    path: PathBuf,
    whiteouts: Whiteouts,
    /// Still allowed, over all layers.
    bytes_left: u64,
    bytes_to_check: u64,
    /// Of the present layer.
    placed: BTreeSet<PathBuf>,
    entries: u64,
    directory_times: Vec<(PathBuf, i64)>,
}

impl Unpacker {
    pub(crate) fn new(path: &Path, whiteouts: Whiteouts) -> Result<Self, ImportError> {
        let root = Tree::open(path)
            .map_err(|source| ImportError::Host { doing: "open the new template", source })?;
        Ok(Self {
            root,
            path: path.to_path_buf(),
            whiteouts,
            bytes_left: limits::IMPORT_BYTES_MAX,
            bytes_to_check: 0,
            placed: BTreeSet::new(),
            entries: 0,
            directory_times: Vec::new(),
        })
    }

    /// Forgets what the layer before placed, so that whiteouts reach it.
    pub(crate) fn next_layer(&mut self) {
        self.placed.clear();
    }

    /// Members placed so far.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Places one member.
    pub(crate) fn place(&mut self, member: Member, content: &mut dyn Read) -> Result<(), ImportError> {
        self.entries += 1;
        if self.entries > limits::IMPORT_ENTRIES_MAX {
            return Err(ImportError::TooLarge(error::Bound::Entries));
        }
        let Some(name) = member.path.file_name() else { return self.place_root(&member) };
        let parent_path = member.path.parent().unwrap_or(Path::new(""));
        let parent = self.parent(parent_path)?;
        if self.whiteouts == Whiteouts::Applied && name.as_bytes().starts_with(b".wh.") {
            return self.white_out(&parent, parent_path, name);
        }
        let done = self.place_in(&parent, name, &member, content);
        if self.whiteouts == Whiteouts::Applied {
            self.placed.insert(member.path);
        }
        done
    }

    /// Sets the times of directories, which filling them changed.
    pub(crate) fn finish(self) -> Result<(), ImportError> {
        for (path, modified) in self.directory_times.iter().rev() {
            let (Some(name), parent) = (path.file_name(), path.parent().unwrap_or(Path::new(""))) else {
                continue;
            };
            // A later member may have replaced it; then there is nothing to set.
            let Ok(parent) = self.root.resolve(parent) else { continue };
            if parent.stat(name).is_ok_and(|stat| stat.is_some_and(|stat| stat.kind == Kind::Directory)) {
                parent.set_modified(name, *modified).map_err(|source| write_error(path, source))?;
            }
        }
        Ok(())
    }

    fn place_root(&self, member: &Member) -> Result<(), ImportError> {
        if member.kind != MemberKind::Directory {
            return Err(refused(member, "the root is no directory"));
        }
        let owner = Owner { uid: member.uid, gid: member.gid };
        let set = || {
            openat::set_owner(&self.root, owner)?;
            openat::set_mode(&self.root, member.mode)
        };
        set().map_err(|source| write_error(&member.path, source))
    }

    /// Opens the directory of a member, and makes it when the archive did not name it.
    fn parent(&self, path: &Path) -> Result<Tree, ImportError> {
        match self.root.resolve(path) {
            Ok(tree) => return Ok(tree),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(parent_error(path, source)),
        }
        let (Some(name), above) = (path.file_name(), path.parent().unwrap_or(Path::new(""))) else {
            return Err(refused_path(path, "its directory cannot be made"));
        };
        let tree = self.parent(above)?;
        match tree.create_dir(name).and_then(|()| tree.set_mode(name, 0o755)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(refused_path(path, "its directory is a link to nothing"));
            }
            Err(source) => return Err(write_error(path, source)),
        }
        self.root.resolve(path).map_err(|source| parent_error(path, source))
    }

    fn place_in(
        &mut self,
        parent: &Tree,
        name: &OsStr,
        member: &Member,
        content: &mut dyn Read,
    ) -> Result<(), ImportError> {
        match &member.kind {
            MemberKind::Device if member.path.starts_with("dev") => Ok(()),
            MemberKind::Device => Err(refused(member, "a device outside of /dev")),
            MemberKind::Directory => self.place_directory(parent, name, member),
            MemberKind::HardLink(target) => self.place_hard_link(parent, name, member, target),
            MemberKind::File => self.place_file(parent, name, member, content),
            MemberKind::Symlink(target) => {
                let make = || {
                    clear(parent, name)?;
                    parent.create_symlink(target, name)?;
                    finish_entry(parent, name, member, false)
                };
                make().map_err(|source| write_error(&member.path, source))
            }
            MemberKind::Fifo => {
                let make = || {
                    clear(parent, name)?;
                    parent.create_fifo(name)?;
                    finish_entry(parent, name, member, true)
                };
                make().map_err(|source| write_error(&member.path, source))
            }
        }
    }

    fn place_directory(&mut self, parent: &Tree, name: &OsStr, member: &Member) -> Result<(), ImportError> {
        let make = || {
            let existing = parent.stat(name)?;
            if existing.is_none_or(|stat| stat.kind != Kind::Directory) {
                clear(parent, name)?;
                parent.create_dir(name)?;
            }
            let directory = parent.descend(Path::new(name))?;
            finish_open(&directory, member)
        };
        make().map_err(|source| write_error(&member.path, source))?;
        self.directory_times.push((member.path.clone(), member.modified));
        Ok(())
    }

    fn place_hard_link(
        &self,
        parent: &Tree,
        name: &OsStr,
        member: &Member,
        target: &Path,
    ) -> Result<(), ImportError> {
        let Some(target_name) = target.file_name() else {
            return Err(refused(member, "a hard link to the root"));
        };
        let above = target.parent().unwrap_or(Path::new(""));
        let from = self.root.resolve(above).map_err(|_| refused(member, "a hard link to nothing"))?;
        let link = || -> io::Result<Option<&'static str>> {
            let Some(existing) = from.stat(target_name)? else { return Ok(Some("a hard link to nothing")) };
            if existing.kind == Kind::Directory {
                return Ok(Some("a hard link to a directory"));
            }
            if parent.stat(name)?.is_some_and(|stat| stat.inode == existing.inode) {
                return Ok(None);
            }
            clear(parent, name)?;
            parent.create_hard_link(&from, target_name, name)?;
            Ok(None)
        };
        match link() {
            Ok(None) => Ok(()),
            Ok(Some(problem)) => Err(refused(member, problem)),
            Err(source) => Err(write_error(&member.path, source)),
        }
    }

    fn place_file(
        &mut self,
        parent: &Tree,
        name: &OsStr,
        member: &Member,
        content: &mut dyn Read,
    ) -> Result<(), ImportError> {
        self.bytes_left =
            self.bytes_left.checked_sub(member.size).ok_or(ImportError::TooLarge(error::Bound::Bytes))?;
        let create = || {
            clear(parent, name)?;
            parent.create_file(name)
        };
        let mut file = create().map_err(|source| write_error(&member.path, source))?;
        self.copy(member, content, &mut file)?;
        let finish = || {
            finish_open(&file, member)?;
            parent.set_modified(name, member.modified)
        };
        finish().map_err(|source| write_error(&member.path, source))
    }

    fn copy(
        &mut self,
        member: &Member,
        content: &mut dyn Read,
        file: &mut impl Write,
    ) -> Result<(), ImportError> {
        let mut left = member.size;
        let mut buffer = vec![0; 256 * 1024];
        while left > 0 {
            let want = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let got = content.read(&mut buffer[..want]).map_err(ImportError::Read)?;
            if got == 0 {
                return Err(ImportError::Truncated);
            }
            self.check_space(got as u64)?;
            file.write_all(&buffer[..got]).map_err(|source| write_error(&member.path, source))?;
            left -= got as u64;
        }
        Ok(())
    }

    fn check_space(&mut self, bytes: u64) -> Result<(), ImportError> {
        if let Some(left) = self.bytes_to_check.checked_sub(bytes) {
            self.bytes_to_check = left;
            return Ok(());
        }
        self.bytes_to_check = SPACE_CHECK_BYTES;
        let (free, _) = openat::space(&self.path).map_err(|source| ImportError::Host {
            doing: "ask for the free space of the data volume",
            source,
        })?;
        if free < SPACE_RESERVE_BYTES { Err(ImportError::NoSpace) } else { Ok(()) }
    }

    fn white_out(&self, parent: &Tree, parent_path: &Path, name: &OsStr) -> Result<(), ImportError> {
        let path = parent_path.join(name);
        let failed = |source| write_error(&path, source);
        let hidden = &name.as_bytes()[b".wh.".len()..];
        if hidden == b".wh..opq" {
            return self.clear_lower(parent, parent_path, 0).map_err(failed);
        }
        if hidden.starts_with(b".wh.") {
            return Ok(()); // Bookkeeping of aufs.
        }
        if matches!(hidden, b"" | b"." | b"..") {
            return Err(refused_path(&path, "a whiteout of nothing"));
        }
        let hidden = OsStr::from_bytes(hidden);
        if self.placed.contains(&parent_path.join(hidden)) {
            return Ok(());
        }
        clear(parent, hidden).map_err(failed)
    }

    /// Removes what earlier layers placed in a directory and keeps what this one did.
    fn clear_lower(&self, directory: &Tree, path: &Path, depth: usize) -> io::Result<()> {
        too_deep(depth)?;
        for name in directory.names(entries_max())? {
            let below = path.join(&name);
            // Paths sort by element, so what was placed below comes right after.
            let mut from_here =
                self.placed.range::<Path, _>((Bound::Included(below.as_path()), Bound::Unbounded));
            if !from_here.next().is_some_and(|placed| placed.starts_with(&below)) {
                clear(directory, &name)?;
            } else if directory.stat(&name)?.is_some_and(|stat| stat.kind == Kind::Directory) {
                self.clear_lower(&directory.descend(Path::new(&name))?, &below, depth + 1)?;
            }
        }
        Ok(())
    }
}

fn entries_max() -> usize {
    usize::try_from(limits::IMPORT_ENTRIES_MAX).unwrap_or(usize::MAX)
}

fn too_deep(depth: usize) -> io::Result<()> {
    if depth > limits::TEMPLATE_DEPTH_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many levels of directories"));
    }
    Ok(())
}

/// Removes whatever has this name, with everything below.
fn clear(parent: &Tree, name: &OsStr) -> io::Result<()> {
    remove_tree(parent, name, 0)
}

fn remove_tree(parent: &Tree, name: &OsStr, depth: usize) -> io::Result<()> {
    too_deep(depth)?;
    match parent.stat(name)? {
        None => Ok(()),
        Some(stat) if stat.kind != Kind::Directory => parent.remove(name),
        Some(_) => {
            let directory = parent.descend(Path::new(name))?;
            for child in directory.names(entries_max())? {
                remove_tree(&directory, &child, depth + 1)?;
            }
            parent.remove_dir(name)
        }
    }
}

/// Owner first: changing it clears set-id bits and file capabilities.
fn finish_open(file: &impl AsFd, member: &Member) -> io::Result<()> {
    openat::set_owner(file, Owner { uid: member.uid, gid: member.gid })?;
    for (name, value) in &member.xattrs {
        openat::set_xattr(file, name, value)?;
    }
    openat::set_mode(file, member.mode)
}

fn finish_entry(parent: &Tree, name: &OsStr, member: &Member, has_mode: bool) -> io::Result<()> {
    parent.set_owner(name, Owner { uid: member.uid, gid: member.gid })?;
    if has_mode {
        parent.set_mode(name, member.mode)?;
    }
    parent.set_modified(name, member.modified)
}

fn write_error(path: &Path, source: io::Error) -> ImportError {
    ImportError::Write { path: path.to_path_buf(), source }
}

fn parent_error(path: &Path, source: io::Error) -> ImportError {
    match source.kind() {
        io::ErrorKind::NotADirectory => refused_path(path, "its directory is a file"),
        _ if cofferdam_sys::openat::is_link_loop(&source) => {
            refused_path(path, "its directory is a loop of links")
        }
        _ => write_error(path, source),
    }
}

fn refused(member: &Member, problem: &'static str) -> ImportError {
    refused_path(&member.path, problem)
}

fn refused_path(path: &Path, problem: &'static str) -> ImportError {
    ImportError::Refused { path: path.display().to_string(), problem }
}
