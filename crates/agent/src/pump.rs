//! Owns the output of one process: a thread that carries it to everybody who listens, throws it away when nobody does,
//! and tells the end after the last byte.

use crate::agent::Agent;
use crate::connection::{Connection, Outgoing};
use crate::process::{Course, Process};
use cofferdam_core::limits::{OUTPUT_CHUNK_BYTES_MAX, PTY_CHUNK_BYTES_MAX};
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::Reply;
use cofferdam_sys::poll::{self, PollFd, PollFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Chunks of one stream before the other gets its turn.
const TURN_CHUNKS: usize = 8;
/// Chunks that are still taken when the end does not wait for the end of the pipes: what a pipe can hold, and more.
const LAST_CHUNKS: usize = 64;

/// A stream of output.
#[derive(Debug)]
pub(crate) struct Source {
    channel: Channel,
    fd: OwnedFd,
}

impl Source {
    /// Output that goes to `channel`; `fd` does not block.
    pub(crate) fn new(channel: Channel, fd: OwnedFd) -> io::Result<Self> {
        cofferdam_sys::pipe::set_nonblocking(fd.as_fd())?;
        Ok(Self { channel, fd })
    }
}

/// Whether a stream goes on.
#[derive(Debug, PartialEq, Eq)]
enum Flow {
    /// Nothing now.
    Empty,
    /// There may be more.
    More,
    /// It is at its end.
    Over,
}

/// Runs until the end was told.
pub(crate) fn run(agent: &Agent, process: &Arc<Process>, mut sources: Vec<Source>) {
    loop {
        let course = process.course();
        match course {
            Course::Ended if sources.is_empty() => break,
            // Nothing but the end is left to wait for: taking it here saves a change of threads.
            Course::Running if sources.is_empty() && process.await_end().is_ok() => continue,
            Course::CutShort => {
                sources.retain_mut(|source| carry(process, source, LAST_CHUNKS) == Flow::More);
                break;
            }
            Course::Running | Course::Ended => {}
        }
        let ready = match wait(process, &sources) {
            Ok(ready) => ready,
            // Cannot happen with descriptors of our own; without poll there is no output any more.
            Err(_) => vec![true; sources.len()],
        };
        let mut ready = ready.into_iter();
        sources.retain_mut(|source| {
            !ready.next().unwrap_or(false) || carry(process, source, TURN_CHUNKS) != Flow::Over
        });
    }
    drop(sources);
    agent.deadlines.cancel(process);
    let (exit, listeners) = process.finish();
    agent.table.retire(process, exit.clone());
    let end = Reply::Exited(exit);
    for listener in listeners {
        listener.try_reply(&end);
        listener.close();
    }
}

/// Waits for output or a change of the process; tells which sources have something.
fn wait(process: &Process, sources: &[Source]) -> io::Result<Vec<bool>> {
    let fds = sources.iter().map(|source| source.fd.as_fd()).chain([process.wake.as_fd()]);
    let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    poll::wait(&mut fds, None)?;
    let mut ready: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    if ready.pop().unwrap_or(false) {
        process.wake.clear();
    }
    Ok(ready)
}

/// Carries at most `chunks` chunks.
fn carry(process: &Process, source: &mut Source, chunks: usize) -> Flow {
    let capacity = match source.channel {
        Channel::Pty => PTY_CHUNK_BYTES_MAX,
        _ => OUTPUT_CHUNK_BYTES_MAX,
    };
    let mut frame = Outgoing::with_capacity(capacity);
    for _ in 0..chunks {
        frame.clear();
        match fill(&mut frame, source.fd.as_fd()) {
            Flow::More => tell(process, source.channel, &mut frame),
            other => return other,
        }
    }
    Flow::More
}

fn fill(frame: &mut Outgoing, fd: BorrowedFd<'_>) -> Flow {
    match frame.fill(fd) {
        Ok(0) => Flow::Over,
        Ok(_) => Flow::More,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Flow::Empty,
        // A terminal whose last process has closed it.
        Err(_) => Flow::Over,
    }
}

fn tell(process: &Process, channel: Channel, frame: &mut Outgoing) {
    for listener in process.listeners() {
        if listener.send(channel, frame).is_err() {
            cut_off(process, &listener);
        }
    }
}

/// It is gone, or it took nothing for so long that others must not wait for it any more.
fn cut_off(process: &Process, listener: &Arc<Connection>) {
    process.stop_listening(listener);
    listener.close();
}
