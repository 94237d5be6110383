//! Owns the digest of a tree: SHA-256 over a canonical description of every entry in sorted order. Equal trees have equal
//! digests wherever they came from; times are left out, hard links are told from copies.

use crate::templates::error::{Bound, ImportError};
use cofferdam_core::{Digest, limits};
use cofferdam_sys::openat::{self, Kind, Stat, Tree};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// First bytes of every description.
const FORMAT: &[u8] = b"cofferdam tree 1\n";

/// What a tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) digest: Digest,
    pub(crate) size_bytes: u64,
    pub(crate) entries: u64,
}

/// Reads the whole tree. `progress` hears the number of entries now and then.
pub(crate) fn describe(path: &Path, progress: &mut dyn FnMut(u64)) -> Result<Described, ImportError> {
    let root = Tree::open(path).map_err(|source| ImportError::Host { doing: "open the template", source })?;
    let mut walk = Walk {
        hash: Sha256::new(),
        names_of_inodes: HashMap::new(),
        size_bytes: 0,
        entries: 0,
        buffer: vec![0; 256 * 1024],
        progress,
    };
    walk.hash.update(FORMAT);
    let stat = root.stat_self().map_err(|source| read_error(Path::new(""), source))?;
    walk.directory(&root, Path::new(""), stat, 0)?;
    Ok(Described {
        digest: Digest::from_sha256(walk.hash.finalize().into()),
        size_bytes: walk.size_bytes,
        entries: walk.entries,
    })
}

struct Walk<'a> {
    hash: Sha256,
    names_of_inodes: HashMap<u64, PathBuf>,
    size_bytes: u64,
    entries: u64,
    buffer: Vec<u8>,
    progress: &'a mut dyn FnMut(u64),
}

impl Walk<'_> {
    fn directory(&mut self, tree: &Tree, path: &Path, stat: Stat, depth: usize) -> Result<(), ImportError> {
        if depth > limits::TEMPLATE_DEPTH_MAX {
            return Err(ImportError::TooLarge(Bound::Depth));
        }
        self.head(b'd', path, stat);
        self.xattrs(openat::xattrs(tree), path)?;
        let max = usize::try_from(limits::IMPORT_ENTRIES_MAX).unwrap_or(usize::MAX);
        for name in tree.names(max).map_err(|source| read_error(path, source))? {
            self.entry(tree, &name, &path.join(&name), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, tree: &Tree, name: &OsStr, path: &Path, depth: usize) -> Result<(), ImportError> {
        let failed = |source| read_error(path, source);
        self.entries += 1;
        if self.entries.is_multiple_of(1024) {
            (self.progress)(self.entries);
        }
        let Some(stat) = tree.stat(name).map_err(failed)? else { return Ok(()) };
        match stat.kind {
            Kind::Directory => {
                let below = tree.descend(Path::new(name)).map_err(failed)?;
                self.directory(&below, path, stat, depth + 1)
            }
            Kind::File => self.file(tree, name, path, stat),
            Kind::Symlink => {
                let target = tree.read_link(name).map_err(failed)?;
                self.head(b'l', path, stat);
                self.field(target.as_bytes());
                Ok(())
            }
            Kind::Fifo => {
                self.head(b'p', path, stat);
                Ok(())
            }
            Kind::Special => {
                let problem = "a device or socket, which no template has";
                Err(ImportError::Refused { path: path.display().to_string(), problem })
            }
        }
    }

    fn file(&mut self, tree: &Tree, name: &OsStr, path: &Path, stat: Stat) -> Result<(), ImportError> {
        if stat.links > 1 {
            if let Some(first) = self.names_of_inodes.get(&stat.inode).cloned() {
                self.head(b'h', path, stat);
                self.field(first.as_os_str().as_bytes());
                return Ok(());
            }
            self.names_of_inodes.insert(stat.inode, path.to_path_buf());
        }
        let file = tree.open_file(name).map_err(|source| read_error(path, source))?;
        self.head(b'f', path, stat);
        self.xattrs(openat::xattrs(&file), path)?;
        let (content, bytes) = self.content(file).map_err(|source| read_error(path, source))?;
        self.field(&bytes.to_be_bytes());
        self.field(&content);
        self.size_bytes = self.size_bytes.saturating_add(bytes);
        Ok(())
    }

    fn content(&mut self, mut file: File) -> io::Result<([u8; 32], u64)> {
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        loop {
            let got = file.read(&mut self.buffer)?;
            if got == 0 {
                return Ok((hash.finalize().into(), bytes));
            }
            hash.update(&self.buffer[..got]);
            bytes += got as u64;
        }
    }

    fn head(&mut self, kind: u8, path: &Path, stat: Stat) {
        self.hash.update([kind]);
        self.field(path.as_os_str().as_bytes());
        // The mode of a link means nothing and differs between file systems.
        let mode = if stat.kind == Kind::Symlink { 0 } else { stat.mode };
        for number in [mode, stat.uid, stat.gid] {
            self.hash.update(number.to_be_bytes());
        }
    }

    fn xattrs(
        &mut self,
        found: io::Result<Vec<(std::ffi::OsString, Vec<u8>)>>,
        path: &Path,
    ) -> Result<(), ImportError> {
        let mut found = found.map_err(|source| read_error(path, source))?;
        // Labels are put on by the host and say nothing about the template.
        found.retain(|(name, _)| name.as_bytes().starts_with(b"user.") || name == "security.capability");
        self.hash.update((found.len() as u64).to_be_bytes());
        for (name, value) in found {
            self.field(name.as_bytes());
            self.field(&value);
        }
        Ok(())
    }

    /// Length first, so that no two different descriptions are the same bytes.
    fn field(&mut self, bytes: &[u8]) {
        self.hash.update((bytes.len() as u64).to_be_bytes());
        self.hash.update(bytes);
    }
}

fn read_error(path: &Path, source: io::Error) -> ImportError {
    tracing::warn!(path = %path.display(), error = %source, "cannot read back a new template");
    ImportError::Host { doing: "read the new template back", source }
}
