//! Owns giving input to a process that somebody started, and the input that follows `Exec` and `Attach`.

use crate::agent::Agent;
use crate::connection::Connection;
use crate::failure::invalid;
use crate::process::Process;
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::{self, Failure, Input, Reply, Selector};
use std::sync::Arc;

/// `Input`: frames until an empty one.
pub(super) fn input(
    agent: &Agent,
    connection: &Connection,
    selector: &Selector,
    pty: bool,
) -> Result<Reply, Failure> {
    let process = agent.table.running(selector)?;
    process.check_terminal(pty)?;
    loop {
        match connection.read_frame() {
            Ok(Some(frame)) if frame.channel == Channel::Stdin && frame.payload.is_empty() => {
                return Ok(Reply::Ok);
            }
            Ok(Some(frame)) if frame.channel == Channel::Stdin => {
                process.write_input(&frame.payload, connection)?
            }
            _ => return Err(invalid("the input was broken off")),
        }
    }
}

/// Follows what a caller sends while it listens, and notices when it has left.
pub(super) fn follow(process: &Arc<Process>, connection: &Arc<Connection>) {
    while let Ok(Some(frame)) = connection.read_frame() {
        let done = match frame.channel {
            Channel::Stdin if frame.payload.is_empty() => process.close_input(),
            Channel::Stdin => process.write_input(&frame.payload, connection),
            Channel::Control => control(process, &frame.payload),
            Channel::Stdout | Channel::Stderr | Channel::Pty | Channel::File => break,
        };
        // There is no answer to input: a closed standard input swallows it, like `yes | true`.
        done.ok();
    }
    // The caller may have closed only its half.
    connection.wait_for_hang_up();
    process.stop_listening(connection);
}

fn control(process: &Process, payload: &[u8]) -> Result<(), Failure> {
    match guest::decode("input", payload).map_err(|error| invalid(error.to_string()))? {
        Input::Resize { size } => process.resize(size),
        Input::Signal { signal, scope } => process.signal(signal, scope),
    }
}
