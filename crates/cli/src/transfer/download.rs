//! Owns copying out of a sandbox. Everything the sandbox says is hostile: names stay below the destination, set-uid bits
//! are dropped, links are made last so that nothing is written through one of them, and a file appears whole or not at all.

use super::{WIDTH, below};
use crate::client::files::Files;
use crate::console::Console;
use crate::error::Error;
use crate::progress::Progress;
use cofferdam_proto::guest::{Entry, FileType};
use futures::{StreamExt as _, TryStreamExt as _};
use http_body_util::BodyExt as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Directories below each other; a sandbox could make up a tree without end.
const DEPTH_MAX: usize = 256;

/// What a tree in the sandbox holds, parents before children.
#[derive(Debug, Default)]
struct Tree {
    /// Absolute path of the tree in the sandbox.
    root: String,
    directories: Vec<(PathBuf, u32)>,
    files: Vec<(Entry, PathBuf)>,
    links: Vec<(String, PathBuf)>,
    skipped: Vec<String>,
}

/// Copies a file or a directory of the sandbox to a local path.
pub(crate) async fn download(files: &Files, console: &Console, route: (&str, &Path)) -> Result<(), Error> {
    let (from, to) = route;
    let entry = files.stat(from).await?;
    let entry = entry.ok_or_else(|| Error::Usage(format!("`{from}` does not exist in the sandbox")))?;
    let kind = entry.target_type.unwrap_or(entry.file_type);
    let target = target(&entry, from, to, kind == FileType::Directory)?;
    let mut tree = Tree::default();
    match kind {
        FileType::Directory => {
            tree.root.clone_from(&entry.path);
            tree.directories.push((target.clone(), entry.mode));
            scan(files, from.to_owned(), target, &mut tree).await?;
        }
        FileType::File => tree.files.push((Entry { path: from.to_owned(), ..entry }, target)),
        FileType::Symlink | FileType::Other => {
            return Err(Error::Usage(format!("`{from}` is neither a file nor a directory")));
        }
    }
    for path in &tree.skipped {
        console
            .note(&format!("skipped `{}`: neither file, directory nor link", crate::output::printable(path)));
    }
    receive(files, console, tree).await
}

/// Where the copy goes: into `to` when that is a directory, onto it otherwise.
fn target(entry: &Entry, from: &str, to: &Path, directory: bool) -> Result<PathBuf, Error> {
    let contents_only = directory && (from.ends_with("/.") || from == ".");
    let into = to.is_dir() || (!directory && to.as_os_str().as_encoded_bytes().ends_with(b"/"));
    if directory && to.exists() && !to.is_dir() {
        return Err(Error::Usage(format!(
            "`{}` is a file; a directory cannot be copied onto it",
            to.display()
        )));
    }
    if !into || contents_only {
        return Ok(to.to_owned());
    }
    below(to, &entry.name).ok_or_else(|| Error::HostilePath { path: crate::output::printable(&entry.name) })
}

/// Walks the tree, one directory after the other.
async fn scan(files: &Files, from: String, to: PathBuf, tree: &mut Tree) -> Result<(), Error> {
    let mut queue = vec![(from, to, 0)];
    while let Some((from, to, depth)) = queue.pop() {
        if depth > DEPTH_MAX {
            return Err(Error::HostilePath { path: crate::output::printable(&from) });
        }
        for entry in files.list(&from).await? {
            let local = below(&to, &entry.name).filter(|local| local.parent() == Some(&to));
            let local =
                local.ok_or_else(|| Error::HostilePath { path: crate::output::printable(&entry.name) })?;
            let path = super::join(&from, &entry.name);
            match entry.file_type {
                FileType::Directory => {
                    tree.directories.push((local.clone(), entry.mode));
                    queue.push((path, local, depth + 1));
                }
                FileType::File => tree.files.push((Entry { path, ..entry }, local)),
                FileType::Symlink => tree.links.push((link_text(&tree.root, &entry), local)),
                FileType::Other => tree.skipped.push(path),
            }
        }
    }
    Ok(())
}

/// What a link is to say here. The sandbox tells the resolved target: one inside the tree becomes relative again, so that
/// the copy is whole in itself; any other stays as it is.
fn link_text(root: &str, link: &Entry) -> String {
    let target = link.target.as_deref().unwrap_or_default();
    let root = root.trim_end_matches('/');
    let inside = |path: &str| path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    if !inside(target) || !inside(&link.path) {
        return target.to_owned();
    }
    let from: Vec<&str> = link.path.split('/').collect();
    let to: Vec<&str> = target.split('/').collect();
    let directory = &from[..from.len() - 1];
    let common = directory.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n("..", directory.len() - common);
    up.chain(to[common..].iter().copied()).collect::<Vec<_>>().join("/")
}

async fn receive(files: &Files, console: &Console, tree: Tree) -> Result<(), Error> {
    for (directory, _) in &tree.directories {
        fs::create_dir_all(directory).map_err(Error::local(format!("make `{}`", directory.display())))?;
    }
    let total = tree.files.iter().fold(0_u64, |sum, (entry, _)| sum.saturating_add(entry.size));
    let progress = Progress::bytes(console, "download", total);
    let received = futures::stream::iter(tree.files)
        .map(|(entry, to)| receive_file(files, entry, to, &progress))
        .buffer_unordered(WIDTH)
        .try_collect::<()>()
        .await;
    progress.finish();
    received?;
    for (link, to) in &tree.links {
        replace_link(link, to).map_err(Error::local(format!("make the link `{}`", to.display())))?;
    }
    // Last and from the leaves up: a directory may be read-only.
    for (directory, mode) in tree.directories.iter().rev() {
        set_mode(directory, *mode)?;
    }
    Ok(())
}

async fn receive_file(files: &Files, entry: Entry, to: PathBuf, progress: &Progress) -> Result<(), Error> {
    let what = format!("write `{}`", to.display());
    let directory = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut content = files.read(&entry.path).await?.into_data_stream();
    let mut file = NamedTempFile::new_in(directory).map_err(Error::local(what.clone()))?;
    while let Some(chunk) = content.next().await {
        let chunk =
            chunk.map_err(|e| Error::Broken { what: format!("read `{}`", entry.path), source: e.into() })?;
        file.write_all(&chunk).map_err(Error::local(what.clone()))?;
        progress.add(chunk.len() as u64);
    }
    set_mode(file.path(), entry.mode)?;
    file.persist(&to).map_err(|error| Error::local(what)(error.error))?;
    Ok(())
}

/// Gives permissions without set-uid, set-gid and sticky bits.
fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    let permissions = fs::Permissions::from_mode(mode & 0o777);
    let what = format!("set the permissions of `{}`", path.display());
    fs::set_permissions(path, permissions).map_err(Error::local(what))
}

fn replace_link(link: &str, to: &Path) -> std::io::Result<()> {
    if fs::symlink_metadata(to).is_ok_and(|found| !found.is_dir()) {
        fs::remove_file(to)?;
    }
    symlink(link, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_link(path: &str, target: &str, expected: &str) {
        let entry: Entry = serde_json::from_value(serde_json::json!({
            "name": "l", "path": path, "file_type": "symlink", "target_type": null, "target": target,
            "size": 0, "mode": 0o777, "uid": 0, "gid": 0, "owner": "root", "group": "root", "modified_us": 0,
        }))
        .unwrap();
        assert_eq!(link_text("/t", &entry), expected, "{path} -> {target}");
    }

    #[test]
    fn links_inside_the_tree_become_relative() {
        check_link("/t/a/l", "/t/a/x", "x");
        check_link("/t/a/l", "/t/b/x", "../b/x");
        check_link("/t/l", "/t/a/b/x", "a/b/x");
    }

    #[test]
    fn links_out_of_the_tree_and_broken_ones_stay() {
        check_link("/t/l", "/etc/passwd", "/etc/passwd");
        check_link("/t/l", "/tx/y", "/tx/y");
        check_link("/t/l", "missing", "missing");
    }
}
