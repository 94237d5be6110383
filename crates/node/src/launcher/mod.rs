//! Owns the launcher: a small process with one thread that makes the processes of sandboxes, because copying a process
//! with many threads, much memory or many descriptors is slow and unsafe. The node starts it, tells it what to do over a
//! socket and starts another when it dies; sandboxes are not harmed by that.
//!
//! ```text
//!   node ── Park ──▶ launcher ── clone ──▶ shell (PID 1 of the sandbox) ── fork ──▶ spawner-to-be, in `work`
//!   node ◀─ pid, pidfd, control socket, user namespace ─┘  │ mounts, devices, network; "parked" on the control socket
//!   node ── Fill + control socket ──▶ launcher ── overlay mount, on the control socket ──▶ shell
//!                                                          │ root file system, Landlock, filter, capabilities
//!                                                          └ exec of the agent: the control socket closes
//! ```
//!
//! It sees neither the host's file systems nor the data directory, keeps no descriptor of any sandbox, and parses
//! nothing that a sandbox or a client wrote.

mod enter;
mod failure;
mod filter;
mod home;
mod overlay;
mod park;
pub(crate) mod protocol;
mod shell;
mod tree;

use cofferdam_sys::clone::SingleThreaded;
use cofferdam_sys::{exec, seqpacket};
use failure::{Failure, Step};
use home::Home;
use protocol::{Call, MESSAGE_BYTES_MAX, Outcome, Reply, Request};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Runs the launcher until the node closes the socket. The program's `main` calls this for the hidden command
/// `launcher`, before anything else and before any thread, with the socket that `sys::helper` inherited.
pub fn launcher_main(socket: OwnedFd) -> ! {
    let code = match serve(&socket) {
        Ok(()) => 0,
        Err(failure) => {
            // Nobody is left to tell when this fails too.
            io::stderr().write_all(format!("launcher: {failure}\n").as_bytes()).ok();
            1
        }
    };
    std::process::exit(code)
}

/// What a park and a fill need beside their own message.
struct Launcher {
    proof: SingleThreaded,
    home: Home,
    agent: OwnedFd,
    filter: cofferdam_sys::seccomp::Program,
}

fn serve(socket: &OwnedFd) -> Result<(), Failure> {
    let proof = SingleThreaded::check().step("count threads")?;
    let Some(first) = seqpacket::receive(socket, MESSAGE_BYTES_MAX).step("receive the agent")? else {
        return Ok(());
    };
    let agent = first
        .descriptors
        .into_iter()
        .next()
        .ok_or(io::ErrorKind::InvalidData.into())
        .step("take the agent")?;
    // Whatever whoever started us forgot to close would be copied into every shell.
    exec::close_all_but(&[socket.as_raw_fd(), agent.as_raw_fd()]).step("close inherited descriptors")?;
    exec::set_name(c"cofferdam-launch").step("set name")?;
    exec::new_session().step("start a session")?;
    exec::ignore_children().step("ignore ended children")?;
    exec::clear_umask();
    let launcher = Launcher { proof, home: Home::enter()?, agent, filter: filter::sandbox().compile() };
    reply(socket, &Reply { id: 0, outcome: Outcome::Ready }, &[])?;
    while let Some(message) = seqpacket::receive(socket, MESSAGE_BYTES_MAX).step("receive a call")? {
        let call: Call =
            serde_json::from_slice(&message.bytes).map_err(io::Error::from).step("parse a call")?;
        launcher.answer(socket, call, message.descriptors)?;
    }
    Ok(())
}

fn reply(socket: &OwnedFd, reply: &Reply, descriptors: &[BorrowedFd<'_>]) -> Result<(), Failure> {
    let bytes = serde_json::to_vec(reply).map_err(io::Error::from).step("encode a reply")?;
    seqpacket::send(socket, &bytes, descriptors).step("send a reply")
}

impl Launcher {
    /// Does what is asked. Only a broken socket is an error here; every other failure is part of the reply.
    fn answer(&self, socket: &OwnedFd, call: Call, descriptors: Vec<OwnedFd>) -> Result<(), Failure> {
        let id = call.id;
        let outcome = match call.request {
            Request::Park(park) => match self.park(&park, descriptors) {
                Ok(shell) => {
                    let outcome = Outcome::Parked { pid: shell.pid };
                    let fds = [shell.pidfd.as_fd(), shell.control.as_fd(), shell.user_namespace.as_fd()];
                    return reply(socket, &Reply { id, outcome }, &fds);
                }
                Err(failure) => failure.into(),
            },
            Request::Fill(fill) => match self.fill(&fill, descriptors) {
                Ok(()) => Outcome::Filled,
                Err(failure) => failure.into(),
            },
        };
        reply(socket, &Reply { id, outcome }, &[])
    }
}
