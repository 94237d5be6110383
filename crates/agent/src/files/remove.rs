//! Owns `Remove`.

use super::locate;
use crate::agent::Agent;
use crate::failure::{at_path, invalid};
use cofferdam_proto::guest::{self, Failure, Reply};
use std::io;

/// Removes whatever is there.
pub(crate) fn run(agent: &Agent, path: &guest::Path) -> Result<Reply, Failure> {
    let (path, _) = locate(agent, path)?;
    if path.parent().is_none() {
        return Err(invalid("the root directory cannot be removed"));
    }
    match cofferdam_sys::remove::remove_all(&path) {
        // There cannot be anything below what is no directory.
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(at_path("remove", path.display(), &error))
        }
        _ => Ok(Reply::Ok),
    }
}
