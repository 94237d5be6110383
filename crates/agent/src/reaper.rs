//! Owns reaping: every child of this process, those that clients started and orphans that the kernel gave us, is taken
//! as soon as it has ended.

use crate::agent::Agent;
use cofferdam_sys::wait;
use std::time::Duration;

/// How often we look for children while there was none at all: orphans can come only from processes that we started or
/// that somebody put into the namespace from outside.
const NO_CHILD_PAUSE: Duration = Duration::from_secs(1);

/// Reaps for ever.
pub(crate) fn run(agent: &Agent) {
    loop {
        match wait::next_ended() {
            // A pump that waited for the same child may have been faster.
            Ok(pid) => drop(agent.table.reap(pid)),
            Err(_) => agent.table.wait_for_start(NO_CHILD_PAUSE),
        }
    }
}
