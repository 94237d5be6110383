//! Owns what every tree must have to become a sandbox: the mount points, and the three files in which a sandbox learns its
//! name. Adds what is missing, changes nothing that is there.

use crate::templates::error::ImportError;
use cofferdam_sys::openat::{Kind, Tree};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;

/// Directories that are mounted over, and their modes.
const MOUNT_POINTS: [(&str, u32); 5] =
    [("proc", 0o555), ("sys", 0o555), ("dev", 0o755), ("run", 0o755), ("tmp", 0o1777)];
const FILES: [(&str, &str); 3] = [
    ("hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"),
    ("resolv.conf", ""),
    ("hostname", "sandbox\n"),
];
/// Bytes of a user list that are looked at.
const PASSWD_BYTES_MAX: u64 = 1024 * 1024;

/// Makes the tree fit to be a sandbox.
pub(crate) fn complete(tree: &Path) -> Result<(), ImportError> {
    let root = Tree::open(tree).map_err(host)?;
    for (name, mode) in MOUNT_POINTS {
        mount_point(&root, name, mode)?;
    }
    directory(&root, "etc", 0o755).map_err(host)?;
    let etc = root.resolve(Path::new("etc"));
    let etc = etc.map_err(|_| refuse("etc", "it is no directory within the tree"))?;
    for (name, content) in FILES {
        let name = OsStr::new(name);
        if etc.stat(name).map_err(host)?.is_none() {
            let write = || -> io::Result<()> {
                etc.create_file(name)?.write_all(content.as_bytes())?;
                etc.set_mode(name, 0o644)
            };
            write().map_err(host)?;
        }
    }
    Ok(())
}

/// Tells whether the user list of the tree names this user. The list is the template's own and may be anything.
pub(crate) fn has_user(tree: &Path, user: &str) -> bool {
    let Ok(root) = Tree::open(tree) else { return false };
    let Ok(passwd) = root.open_resolved(Path::new("etc/passwd")) else { return false };
    let lines = BufReader::new(passwd.take(PASSWD_BYTES_MAX)).split(b'\n');
    let wanted = format!("{user}:");
    lines.map_while(Result::ok).any(|line| line.starts_with(wanted.as_bytes()))
}

fn mount_point(root: &Tree, name: &str, mode: u32) -> Result<(), ImportError> {
    directory(root, name, mode).map_err(host)?;
    match root.stat(OsStr::new(name)).map_err(host)? {
        Some(stat) if stat.kind == Kind::Directory => Ok(()),
        _ => Err(refuse(name, "it must be a directory, because the sandbox mounts over it")),
    }
}

fn directory(root: &Tree, name: &str, mode: u32) -> io::Result<()> {
    let name = OsStr::new(name);
    if root.stat(name)?.is_none() {
        root.create_dir(name)?;
        root.set_mode(name, mode)?;
    }
    Ok(())
}

fn host(source: io::Error) -> ImportError {
    ImportError::Host { doing: "complete the new template", source }
}

fn refuse(name: &str, problem: &'static str) -> ImportError {
    ImportError::Refused { path: name.to_owned(), problem }
}
