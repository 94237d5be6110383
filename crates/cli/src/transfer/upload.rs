//! Owns copying into a sandbox.

use super::{WIDTH, join, stream};
use crate::client::files::Files;
use crate::console::Console;
use crate::error::Error;
use crate::progress::Progress;
use cofferdam_proto::api::ExecRequest;
use cofferdam_proto::guest::FileType;
use futures::{StreamExt as _, TryStreamExt as _};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// What a local tree holds, parents before children.
#[derive(Debug, Default)]
struct Tree {
    directories: Vec<String>,
    files: Vec<(PathBuf, String, u64)>,
    links: Vec<(String, String)>,
    skipped: Vec<PathBuf>,
}

/// Copies a file or a directory to a path in the sandbox.
pub(crate) async fn upload(files: &Files, console: &Console, route: (&Path, &str)) -> Result<(), Error> {
    let (from, to) = route;
    let what = format!("read `{}`", from.display());
    let metadata = fs::metadata(from).map_err(Error::local(what))?;
    let target = target(files, from, to, metadata.is_dir()).await?;
    let mut tree = Tree::default();
    if metadata.is_dir() {
        tree.directories.push(target.clone());
        scan(from, &target, &mut tree)?;
    } else {
        tree.files.push((from.to_owned(), target, metadata.len()));
    }
    for path in &tree.skipped {
        console.note(&format!("skipped `{}`: neither file, directory nor link", path.display()));
    }
    send(files, console, tree).await
}

/// Where the copy goes: into `to` when that is a directory, onto it otherwise.
async fn target(files: &Files, from: &Path, to: &str, directory: bool) -> Result<String, Error> {
    let contents_only = directory && from.as_os_str().as_encoded_bytes().ends_with(b"/.");
    let into = match files.stat(to).await? {
        Some(entry) => {
            let found = entry.target_type.unwrap_or(entry.file_type) == FileType::Directory;
            if directory && !found {
                return Err(Error::Usage(format!("`{to}` is a file; a directory cannot be copied onto it")));
            }
            found
        }
        None => to.ends_with('/') && !directory,
    };
    if !into || contents_only {
        return Ok(to.trim_end_matches('/').to_owned());
    }
    let absolute = fs::canonicalize(from).map_err(Error::local(format!("read `{}`", from.display())))?;
    let name = if from.file_name().is_some() { from } else { &absolute }.file_name();
    let name = name.ok_or_else(|| Error::Usage("`/` has no name to copy it under; use `/.`".into()))?;
    Ok(join(to, text(Path::new(name))?))
}

/// Paths of the API are text.
fn text(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Error::Usage(format!("`{}`: the name is no UTF-8", path.display())))
}

fn scan(directory: &Path, target: &str, tree: &mut Tree) -> Result<(), Error> {
    let what = || format!("read `{}`", directory.display());
    let mut entries: Vec<_> =
        fs::read_dir(directory).and_then(Iterator::collect).map_err(Error::local(what()))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let to = join(target, text(Path::new(&entry.file_name()))?);
        let metadata = entry.metadata().map_err(Error::local(what()))?;
        if metadata.is_dir() {
            tree.directories.push(to.clone());
            scan(&path, &to, tree)?;
        } else if metadata.is_file() {
            tree.files.push((path, to, metadata.len()));
        } else if metadata.is_symlink() {
            let link = fs::read_link(&path).map_err(Error::local(what()))?;
            tree.links.push((text(&link)?.to_owned(), to));
        } else {
            tree.skipped.push(path);
        }
    }
    Ok(())
}

async fn send(files: &Files, console: &Console, tree: Tree) -> Result<(), Error> {
    for directory in &tree.directories {
        files.make_dir(directory).await?;
    }
    let total = tree.files.iter().map(|(_, _, length)| length).sum();
    let progress = Progress::bytes(console, "upload", total);
    let sent = futures::stream::iter(tree.files)
        .map(|(from, to, length)| send_file(files, from, to, (length, &progress)))
        .buffer_unordered(WIDTH)
        .try_collect::<()>()
        .await;
    progress.finish();
    sent?;
    for (link, to) in &tree.links {
        make_link(files, link, to).await?;
    }
    Ok(())
}

async fn send_file(
    files: &Files,
    from: PathBuf,
    to: String,
    (length, progress): (u64, &Progress),
) -> Result<(), Error> {
    let what = format!("read `{}`", from.display());
    let file = File::open(&from).map_err(Error::local(what.clone()))?;
    let mode = file.metadata().map_err(Error::local(what))?.permissions().mode() & 0o7777;
    files.write(&to, mode, (length, stream::of_reader(file, length, progress))).await
}

/// The API has no request that makes links; `ln` in the sandbox does.
async fn make_link(files: &Files, link: &str, to: &str) -> Result<(), Error> {
    let argv = ["ln", "-sfn", "--", link, to].map(str::to_owned).to_vec();
    let request = ExecRequest { argv, user: files.user.clone(), ..ExecRequest::default() };
    let result = files.client.exec(&files.sandbox, &request).await?;
    if result.exit.code == Some(0) {
        return Ok(());
    }
    let why = crate::output::printable(result.stderr.trim());
    Err(Error::Local {
        what: format!("make the link `{to}` in the sandbox"),
        source: std::io::Error::other(why),
    })
}
