//! Owns where work with content runs: in a copy of the spawner in the `work` cgroup, or, when no process can be started
//! there, in the agent, as far as that is safe for its memory.

use super::{Owner, across, compose, write};
use crate::agent::Agent;
use crate::connection::Connection;
use crate::failure::failure;
use crate::link::{Child, read_report};
use crate::order::{Job, Kind, Order};
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{Failure, Reply};
use cofferdam_sys::spawn::Report;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

impl Job {
    /// To whom what it creates belongs.
    pub(super) fn owner(&self) -> Owner {
        Owner { uid: self.uid, gid: self.gid }
    }
}

/// Has the job done; its answer goes to the caller from wherever it runs.
pub(super) fn hand_over(agent: &Agent, connection: &Connection, job: Job) -> Result<(), Failure> {
    let order = Order::Job(job);
    let refused = match agent.link.carry_out(&order, &[connection.as_fd()]) {
        Ok(child) => return await_done(&child),
        Err(refused) => refused,
    };
    let may_be_done_here = matches!(refused.kind, ErrorKind::Unavailable | ErrorKind::ResourceExhausted);
    match order {
        Order::Job(job) if may_be_done_here => {
            connection.try_reply(&perform(connection, &job, true)?);
            Ok(())
        }
        Order::Job(_) | Order::Program(_) => Err(refused),
    }
}

/// The copy answers the caller, unless it is killed.
fn await_done(child: &Child) -> Result<(), Failure> {
    match read_report(&child.report) {
        Ok(Some(Report::Done)) => Ok(()),
        _ => {
            let message = "the work on the file was killed, as it happens when the memory limit is reached";
            Err(failure(ErrorKind::ResourceExhausted, message))
        }
    }
}

/// Does the job for the caller at the other end of `stream`: what a copy of the spawner does.
pub(crate) fn serve(stream: UnixStream, job: &Job) {
    let Ok(connection) = Connection::new(stream) else { return };
    if connection.wait_for_ever().is_ok() {
        let reply = perform(&connection, job, false).unwrap_or_else(Reply::Error);
        connection.try_reply(&reply);
    }
}

fn perform(connection: &Connection, job: &Job, in_agent: bool) -> Result<Reply, Failure> {
    match job.kind {
        Kind::Write => write::perform(connection, job, in_agent),
        Kind::Compose => compose::perform(job, in_agent),
        Kind::MoveAcross => across::perform(job, in_agent),
    }
}
