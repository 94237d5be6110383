//! Owns `Attach`: another listener for a process, or the end of one that is gone.

use super::processes::follow;
use crate::agent::Agent;
use crate::connection::Connection;
use crate::table::Known;
use cofferdam_proto::guest::{Failure, Reply, Selector};
use std::sync::Arc;

/// Runs until the process or the caller ends.
pub(super) fn run(agent: &Agent, connection: &Arc<Connection>, selector: &Selector) -> Result<(), Failure> {
    match agent.table.known(selector)? {
        Known::Running(process) => {
            if connection.reply(&Reply::Started { pid: process.pid() }).is_ok() {
                process.listen(connection);
                follow(&process, connection);
            }
        }
        Known::Gone(gone) => {
            connection.try_reply(&Reply::Started { pid: gone.pid });
            connection.try_reply(&Reply::Exited(gone.exit));
        }
    }
    Ok(())
}
