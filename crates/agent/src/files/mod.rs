//! Owns what the agent does with files. Everything acts as root inside the sandbox; what is created belongs to the user.
//! Operations that move content run as jobs in the `work` cgroup, because the memory that they fill is the sandbox's.

pub(crate) mod across;
pub(crate) mod compose;
mod entry;
pub(crate) mod job;
pub(crate) mod list;
mod parents;
pub(crate) mod read;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod write;

use crate::agent::Agent;
use crate::failure::{at_path, because, failure};
use crate::paths;
use crate::users::{self, Account, Names};
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{self, Failure, Reason, Reply};
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// To whom something new belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl From<&Account> for Owner {
    fn from(account: &Account) -> Self {
        Self { uid: account.uid, gid: account.gid }
    }
}

/// What a path of a client means.
pub(crate) fn locate(agent: &Agent, path: &guest::Path) -> Result<(PathBuf, Account), Failure> {
    let defaults = agent.defaults();
    let account = users::find(&path.user, &defaults.user)?;
    let resolved = paths::resolve(&path.path, &account.home, &defaults.workdir)?;
    Ok((resolved, account))
}

/// `Stat`.
pub(crate) fn stat(agent: &Agent, path: &guest::Path) -> Result<Reply, Failure> {
    describe(&locate(agent, path)?.0)
}

/// The entry of `path` as an answer.
fn describe(path: &Path) -> Result<Reply, Failure> {
    let entry =
        entry::read(path, &Names::load()).map_err(|error| at_path("look at", path.display(), &error))?;
    Ok(Reply::Entry { entry })
}

/// `MakeDir`.
pub(crate) fn make_dir(agent: &Agent, path: &guest::Path) -> Result<Reply, Failure> {
    let (path, account) = locate(agent, path)?;
    let shown = path.display();
    if let Ok(existing) = fs::metadata(&path) {
        return Err(if existing.is_dir() {
            failure(ErrorKind::AlreadyExists, format!("directory '{shown}' exists already"))
        } else {
            let message = format!("'{shown}' exists already and is not a directory");
            because(ErrorKind::InvalidArgument, Reason::NotDirectory, message)
        });
    }
    let made =
        parents::make(&path, Owner::from(&account)).and_then(|()| make_one(&path, Owner::from(&account)));
    made.map_err(|error| at_path("make directory", shown, &error))?;
    describe(&path)
}

fn make_one(path: &Path, owner: Owner) -> std::io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(path)?;
    std::os::unix::fs::lchown(path, Some(owner.uid), Some(owner.gid))
}
