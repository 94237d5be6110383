//! Owns `Compose`: several files become one. The target appears whole or not at all.

use super::{Owner, describe, job, locate, parents, read, write};
use crate::agent::Agent;
use crate::connection::Connection;
use crate::failure::{at_path, failure, invalid};
use crate::order::{Job, Kind};
use crate::paths;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{self, Failure, Reply};
use cofferdam_sys::file::{Backing, backing};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Most sources in one request.
const SOURCES_MAX: usize = 10_000;

/// Hands the files over to a job.
pub(crate) fn run(
    agent: &Agent,
    connection: &Connection,
    sources: &[String],
    destination: &guest::Path,
) -> Result<(), Failure> {
    let (target, account) = locate(agent, destination)?;
    if sources.is_empty() || sources.len() > SOURCES_MAX {
        return Err(invalid(format!("between 1 and {SOURCES_MAX} sources can be composed")));
    }
    let mut paths = Vec::with_capacity(sources.len() + 1);
    for source in sources {
        let source = paths::resolve(source, &account.home, &agent.defaults().workdir)?;
        if source == target {
            return Err(invalid(format!("'{}' is both source and destination", target.display())));
        }
        paths.push(source.to_string_lossy().into_owned());
    }
    paths.push(target.to_string_lossy().into_owned());
    let owner = Owner::from(&account);
    let metadata = Default::default();
    job::hand_over(
        agent,
        connection,
        Job { kind: Kind::Compose, uid: owner.uid, gid: owner.gid, mode: 0o644, paths, metadata },
    )
}

/// Concatenates, renames, deletes the sources.
pub(super) fn perform(job: &Job, in_agent: bool) -> Result<Reply, Failure> {
    let Some((target, sources)) = job.paths.split_last() else { return Err(invalid("no path")) };
    let target = Path::new(target);
    let at = |error: io::Error| at_path("write", target.display(), &error);
    if target.is_dir() {
        return Err(at(io::ErrorKind::IsADirectory.into()));
    }
    parents::make(target, job.owner()).map_err(at)?;
    let aside = aside(target);
    let composed =
        concatenate(&aside, sources, job, in_agent).and_then(|()| fs::rename(&aside, target).map_err(at));
    if let Err(failed) = composed {
        // The failure that brought us here is what the caller learns.
        fs::remove_file(&aside).ok();
        return Err(failed);
    }
    for source in sources {
        match fs::remove_file(source) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(at_path("remove", source, &error));
            }
            _ => {}
        }
    }
    describe(target)
}

/// A name beside `path` that is nobody else's.
pub(super) fn aside(path: &Path) -> PathBuf {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    path.with_file_name(format!(".cofferdam-{}-{now}", std::process::id()))
}

fn concatenate(aside: &Path, sources: &[String], job: &Job, in_agent: bool) -> Result<(), Failure> {
    let at = |error: io::Error| at_path("write", aside.display(), &error);
    let (mut file, _) = write::open(aside, job.owner(), job.mode).map_err(at)?;
    if in_agent && backing(file.as_fd()).map_err(at)? == Backing::Memory {
        return Err(failure(ErrorKind::Unavailable, "no process can be started to write files in memory"));
    }
    for source in sources {
        let mut source = read::open_regular(Path::new(source))?;
        io::copy(&mut source, &mut file).map_err(at)?;
    }
    Ok(())
}
