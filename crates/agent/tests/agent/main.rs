//! The agent as its callers see it: a real process behind its socket, as PID 1 of a pid namespace of its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod exec;
mod files;
mod processes;
mod robust;
mod support;
