//! Owns `Move`.

use super::{Owner, describe, job, locate, parents};
use crate::agent::Agent;
use crate::connection::Connection;
use crate::failure::{at_path, failure};
use crate::order::{Job, Kind};
use crate::paths;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{self, Failure};
use std::fs;
use std::io;

/// Renames, or hands what has to be copied over to a job.
pub(crate) fn run(
    agent: &Agent,
    connection: &Connection,
    source: &guest::Path,
    destination: &str,
) -> Result<(), Failure> {
    let (source, account) = locate(agent, source)?;
    let target = paths::resolve(destination, &account.home, &agent.defaults().workdir)?;
    fs::symlink_metadata(&source).map_err(|error| at_path("move", source.display(), &error))?;
    let owner = Owner::from(&account);
    let to_target = |error: io::Error| match error.kind() {
        // The source is there, so it is something on the way to the target that is not.
        io::ErrorKind::NotFound => {
            failure(ErrorKind::NotFound, format!("path '{}' does not exist", target.display()))
        }
        _ => at_path("move to", target.display(), &error),
    };
    parents::make(&target, owner).map_err(to_target)?;
    match fs::rename(&source, &target) {
        Ok(()) => connection.try_reply(&describe(&target)?),
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let paths = [&source, &target].map(|path| path.to_string_lossy().into_owned()).to_vec();
            let (kind, metadata) = (Kind::MoveAcross, Default::default());
            let job = Job { kind, uid: owner.uid, gid: owner.gid, mode: 0, paths, metadata };
            return job::hand_over(agent, connection, job);
        }
        Err(error) => return Err(to_target(error)),
    }
    Ok(())
}
