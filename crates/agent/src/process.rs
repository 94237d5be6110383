//! Owns one process that a client started, from the moment its pid is known until its end was told to everybody: its
//! input, its listeners, its end. Output is the pump's.
//!
//! Its pid names it only until it is reaped, so reaping and signalling both hold `life`.

use crate::connection::Connection;
use crate::failure::{because, doing, failure, invalid};
use crate::sync::lock;
use crate::table::Ticket;
use crate::tree;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{self, Exit, Failure, PtySize, Reason, Reply, SignalScope};
use cofferdam_sys::pipe::{self, Wake};
use cofferdam_sys::poll::{self, PollFd, PollFlags};
use cofferdam_sys::wait::{self, Ended, Outcome};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Largest signal number.
const SIGNAL_MAX: u8 = 64;
/// Signals after which nobody waits for output of others who hold the pipes: HUP, INT, QUIT, ABRT, KILL, TERM.
const ENDING: [u8; 6] = [1, 2, 3, 6, 9, 15];

/// A process.
#[derive(Debug)]
pub(crate) struct Process {
    /// What the client asked for, as far as it is remembered.
    pub(crate) info: guest::Process,
    /// Its number in the order of starts.
    pub(crate) serial: u64,
    /// Marks it and all that descends from it.
    pub(crate) mark: u64,
    started: Instant,
    /// Rings for the pump when `life` changed.
    pub(crate) wake: Wake,
    input: Mutex<Input>,
    /// Held while somebody writes to the input, so that writes do not mix.
    turn: Mutex<()>,
    life: Mutex<Life>,
    audience: Mutex<Audience>,
}

/// Where input goes.
#[derive(Debug)]
pub(crate) enum Input {
    /// Nowhere: it never had any, or it was closed.
    Closed,
    /// A pipe.
    Pipe(Arc<OwnedFd>),
    /// The terminal, which is also where output comes from.
    Terminal(Arc<OwnedFd>),
}

#[derive(Debug, Default)]
struct Life {
    ended: Option<(Ended, Duration)>,
    cut_short: bool,
    timed_out: bool,
}

#[derive(Debug, Default)]
struct Audience {
    listeners: Vec<Arc<Connection>>,
    exit: Option<Exit>,
}

/// What the pump should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Course {
    /// It runs.
    Running,
    /// It has ended; what is in the pipes until their end is its output.
    Ended,
    /// It has ended by order; what is in the pipes now is its output.
    CutShort,
}

impl Process {
    /// A process that was just cloned.
    pub(crate) fn new(info: guest::Process, ticket: &Ticket<'_>, input: Input, wake: Wake) -> Self {
        Self {
            info,
            serial: ticket.serial,
            mark: ticket.mark(),
            started: Instant::now(),
            wake,
            input: Mutex::new(input),
            turn: Mutex::new(()),
            life: Mutex::default(),
            audience: Mutex::default(),
        }
    }

    /// Its pid.
    pub(crate) fn pid(&self) -> u32 {
        self.info.pid
    }

    /// Waits until it has ended and takes its end from the kernel. An error when somebody else does or did.
    pub(crate) fn await_end(&self) -> io::Result<()> {
        if self.has_ended() {
            return Ok(());
        }
        wait::ended(self.pid())?;
        self.reap()
    }

    /// Takes its end from the kernel, unless that was done.
    pub(crate) fn reap(&self) -> io::Result<()> {
        let mut life = lock(&self.life);
        if life.ended.is_some() {
            return Ok(());
        }
        if let Some(ended) = wait::try_reap(self.pid())? {
            life.ended = Some((ended, self.started.elapsed()));
        }
        drop(life);
        self.wake.ring();
        Ok(())
    }

    /// Notes an end that was taken from the kernel before this process was known.
    pub(crate) fn note_end(&self, ended: Ended) {
        lock(&self.life).ended = Some((ended, self.started.elapsed()));
        self.wake.ring();
    }

    /// What the pump should do now.
    pub(crate) fn course(&self) -> Course {
        let life = lock(&self.life);
        match (&life.ended, life.cut_short) {
            (None, _) => Course::Running,
            (Some(_), false) => Course::Ended,
            (Some(_), true) => Course::CutShort,
        }
    }

    /// It was reaped; its pid may be another process by now.
    pub(crate) fn has_ended(&self) -> bool {
        self.course() != Course::Running
    }

    /// Sends a signal for a client.
    pub(crate) fn signal(&self, signal: u8, scope: SignalScope) -> Result<(), Failure> {
        if signal > SIGNAL_MAX {
            return Err(invalid(format!("there is no signal {signal}")));
        }
        if ENDING.contains(&signal) {
            self.cut_short();
        }
        match scope {
            SignalScope::Process => self.send(signal).map_err(|error| doing("send the signal", &error)),
            SignalScope::Tree => {
                tree::signal(self, signal);
                Ok(())
            }
        }
    }

    fn cut_short(&self) {
        lock(&self.life).cut_short = true;
        self.wake.ring();
    }

    /// Sends a signal to the process alone; nothing happens when it has ended.
    pub(crate) fn send(&self, signal: u8) -> io::Result<()> {
        let life = lock(&self.life);
        if life.ended.is_some() { Ok(()) } else { wait::kill(self.pid(), signal) }
    }

    /// Ends it and everything that descends from it.
    pub(crate) fn kill_tree(&self, timed_out: bool) {
        if self.exit().is_some() {
            return;
        }
        if timed_out {
            lock(&self.life).timed_out = true;
        }
        self.cut_short();
        tree::kill(self);
    }

    /// Writes all of `bytes` to its input, unless `caller` leaves first.
    pub(crate) fn write_input(&self, bytes: &[u8], caller: &Connection) -> Result<(), Failure> {
        let turn = lock(&self.turn);
        let (target, is_terminal) = match &*lock(&self.input) {
            Input::Closed => return Err(stdin_closed()),
            Input::Pipe(pipe) => (Arc::clone(pipe), false),
            Input::Terminal(terminal) => (Arc::clone(terminal), true),
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            match pipe::write(target.as_fd(), rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_for_room(&target, caller)?
                }
                Err(error) if is_terminal || error.kind() == io::ErrorKind::BrokenPipe => {
                    return Err(stdin_closed());
                }
                Err(error) => return Err(doing("write to the standard input", &error)),
            }
        }
        drop(turn);
        Ok(())
    }

    fn wait_for_room(&self, target: &OwnedFd, caller: &Connection) -> Result<(), Failure> {
        let mut fds = [
            PollFd::from_borrowed_fd(target.as_fd(), PollFlags::OUT),
            PollFd::from_borrowed_fd(caller.as_fd(), PollFlags::empty()),
        ];
        poll::wait(&mut fds, None).map_err(|error| doing("wait for the standard input", &error))?;
        if !fds[1].revents().is_empty() {
            return Err(failure(ErrorKind::Unavailable, "the caller left before all input was taken"));
        }
        if fds[0].revents().contains(PollFlags::HUP) {
            return Err(stdin_closed());
        }
        Ok(())
    }

    /// Makes it read end of file.
    pub(crate) fn close_input(&self) -> Result<(), Failure> {
        let turn = lock(&self.turn);
        let mut input = lock(&self.input);
        if matches!(*input, Input::Terminal(_)) {
            return Err(not_pty("the standard input of a terminal cannot be closed"));
        }
        *input = Input::Closed;
        drop(turn);
        Ok(())
    }

    /// An error unless the caller is right about whether it has a terminal.
    pub(crate) fn check_terminal(&self, expected: bool) -> Result<(), Failure> {
        match (self.info.pty, expected) {
            (true, false) => Err(not_pty("the process has a terminal")),
            (false, true) => Err(not_pty("the process has no terminal")),
            (true, true) | (false, false) => Ok(()),
        }
    }

    /// Gives its terminal a new size.
    pub(crate) fn resize(&self, size: PtySize) -> Result<(), Failure> {
        match &*lock(&self.input) {
            Input::Terminal(terminal) => cofferdam_sys::pty::resize(terminal.as_fd(), size.cols, size.rows)
                .map_err(|error| doing("resize the terminal", &error)),
            Input::Pipe(_) | Input::Closed if self.info.pty => Ok(()),
            Input::Pipe(_) | Input::Closed => Err(not_pty("the process has no terminal")),
        }
    }

    /// Lets `listener` have everything from now on, after it was told that the process runs. One that comes too late
    /// gets the end.
    pub(crate) fn listen(&self, listener: &Arc<Connection>) {
        let mut audience = lock(&self.audience);
        match audience.exit.clone() {
            None => audience.listeners.push(Arc::clone(listener)),
            Some(exit) => {
                drop(audience);
                listener.try_reply(&Reply::Exited(exit));
                listener.close();
            }
        }
    }

    /// `listener` is gone.
    pub(crate) fn stop_listening(&self, listener: &Arc<Connection>) {
        lock(&self.audience).listeners.retain(|other| !Arc::ptr_eq(other, listener));
    }

    /// Who listens now.
    pub(crate) fn listeners(&self) -> Vec<Arc<Connection>> {
        lock(&self.audience).listeners.clone()
    }

    /// Its end, once everything was said.
    pub(crate) fn exit(&self) -> Option<Exit> {
        lock(&self.audience).exit.clone()
    }

    /// All output was given: closes its input, fixes its end and gives those who are to be told.
    pub(crate) fn finish(&self) -> (Exit, Vec<Arc<Connection>>) {
        *lock(&self.input) = Input::Closed;
        let exit = self.summary();
        let mut audience = lock(&self.audience);
        audience.exit = Some(exit.clone());
        (exit, std::mem::take(&mut audience.listeners))
    }

    fn summary(&self) -> Exit {
        let life = lock(&self.life);
        let timed_out = life.timed_out;
        let Some((ended, duration)) = life.ended else {
            return Exit {
                code: None,
                signal: None,
                timed_out,
                duration_ms: millis(self.started.elapsed()),
                cpu_user_ms: 0,
                cpu_system_ms: 0,
                max_rss_kib: 0,
            };
        };
        let (code, signal) = match ended.outcome {
            Outcome::Code(code) => (Some(code), None),
            Outcome::Signal(signal) => (None, Some(signal)),
        };
        Exit {
            code,
            signal,
            timed_out,
            duration_ms: millis(duration),
            cpu_user_ms: millis(ended.cpu_user),
            cpu_system_ms: millis(ended.cpu_system),
            max_rss_kib: ended.max_rss_kib,
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn stdin_closed() -> Failure {
    because(ErrorKind::Conflict, Reason::StdinClosed, "the standard input is closed")
}

fn not_pty(message: &str) -> Failure {
    because(ErrorKind::Conflict, Reason::NotPty, message)
}
