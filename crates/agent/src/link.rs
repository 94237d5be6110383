//! Owns PID 1's side of the spawner: one at a time, started again when it died or does not answer. No order is ever
//! carried out in the cgroup of the agent instead.

use crate::failure::{because, failure};
use crate::order::{self, Order};
use crate::sync::lock;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{Failure, Reason};
use cofferdam_sys::poll::{self, PollFd, PollFlags};
use cofferdam_sys::spawn::{REPORT_BYTES, Report, start_binary};
use cofferdam_sys::wait::PidFd;
use cofferdam_sys::{pipe, scm};
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long the spawner may take, twice: it competes with user processes for the CPU, and a sandbox that was frozen
/// meanwhile must not look like one that hangs.
const ANSWER_MAX: Duration = Duration::from_secs(8);
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const SIGKILL: u8 = 9;

/// What starting a spawner takes.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Our own binary; `None` where there is no /proc to open it from.
    pub(crate) binary: Option<OwnedFd>,
    /// What it joins before it does anything else; `None` forbids starting one.
    pub(crate) work_cgroups: Option<Vec<OwnedFd>>,
}

/// The way to the spawner.
#[derive(Debug)]
pub(crate) struct Link {
    recipe: Recipe,
    current: Mutex<Option<Arc<Spawner>>>,
}

#[derive(Debug)]
struct Spawner {
    stream: UnixStream,
    pid: u32,
    /// For ending exactly this one, whatever became of its number.
    handle: Option<PidFd>,
    /// Held while an order is sent.
    turn: Mutex<()>,
}

/// A process that exists.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: u32,
    /// Gives what else it reports.
    pub(crate) report: OwnedFd,
}

impl Child {
    /// True when a program has executed, or failed to; false when it was stopped on its way.
    pub(crate) fn is_decided(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.report.as_fd(), PollFlags::empty())];
        poll::wait(&mut fds, Some(Instant::now())).is_ok_and(|ready| ready > 0)
    }
}

impl Link {
    /// Uses `given`, the end of a socketpair with a spawner that runs already, or starts one when it is needed.
    pub(crate) fn new(recipe: Recipe, given: Option<UnixStream>) -> Self {
        let given = given.and_then(|stream| Spawner::greet(stream).ok());
        Self { recipe, current: Mutex::new(given.map(Arc::new)) }
    }

    /// The spawner that runs, started if there is none.
    fn spawner(&self) -> io::Result<Arc<Spawner>> {
        let mut current = lock(&self.current);
        if let Some(spawner) = &*current {
            return Ok(Arc::clone(spawner));
        }
        let spawner = Arc::new(self.recipe.start()?);
        *current = Some(Arc::clone(&spawner));
        Ok(spawner)
    }

    /// Starts the spawner now if there is none, so that the first order does not have to.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        self.spawner().map(drop)
    }

    /// The spawner's pid.
    pub(crate) fn pid(&self) -> Option<u32> {
        lock(&self.current).as_ref().map(|spawner| spawner.pid)
    }

    /// Has an order carried out. A spawner that died or hangs is replaced once; only an order that certainly made no
    /// process is given a second time.
    pub(crate) fn carry_out(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> Result<Child, Failure> {
        let message = order::encode(order);
        if message.len() > order::ORDER_BYTES_MAX {
            return Err(failure(ErrorKind::InvalidArgument, "arguments and environment are too large"));
        }
        for _ in 0..2 {
            let spawner = self.spawner().map_err(|error| unavailable(&error))?;
            // An order that was not sent as a whole is not carried out.
            if let Ok(report) = spawner.send(&message, descriptors) {
                match spawner.first_report(&report, order) {
                    Ok(Some(Report::Started(pid))) => return Ok(Child { pid, report }),
                    Ok(Some(Report::Failed(_, error))) => return Err(refused(&error)),
                    // A copy that is done before it began cannot be.
                    Ok(Some(Report::Done) | None) => {}
                    Err(error) => {
                        self.discard(&spawner);
                        return Err(unavailable(&error));
                    }
                }
            }
            self.discard(&spawner);
        }
        Err(failure(ErrorKind::Unavailable, "processes cannot be started now"))
    }

    fn discard(&self, spawner: &Arc<Spawner>) {
        spawner.end();
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|other| Arc::ptr_eq(other, spawner)) {
            *current = None;
        }
    }
}

fn unavailable(error: &io::Error) -> Failure {
    let text = crate::failure::text(error);
    failure(ErrorKind::Unavailable, format!("processes cannot be started now: {text}"))
}

fn refused(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(EAGAIN) => {
            because(ErrorKind::ResourceExhausted, Reason::NoProcesses, "the process limit is reached")
        }
        Some(ENOMEM) => failure(ErrorKind::ResourceExhausted, "not enough memory to start a process"),
        _ => crate::failure::doing("start a process", error),
    }
}

impl Recipe {
    fn start(&self) -> io::Result<Spawner> {
        let (Some(binary), Some(cgroups)) = (&self.binary, &self.work_cgroups) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let (ours, theirs) = UnixStream::pair()?;
        let number = CString::new(cgroups.len().to_string())?;
        let arguments = [c"cofferdam-agent", c"--spawner", c"--work-cgroups", number.as_c_str()];
        let descriptors: Vec<_> =
            [theirs.as_fd()].into_iter().chain(cgroups.iter().map(AsFd::as_fd)).collect();
        start_binary(binary.as_fd(), &arguments, &descriptors)?;
        drop(theirs);
        Spawner::greet(ours)
    }
}

impl Spawner {
    /// Waits for its hello.
    fn greet(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let mut pid = [0; 4];
        (&stream).read_exact(&mut pid)?;
        let pid = u32::from_le_bytes(pid);
        Ok(Self { stream, pid, handle: PidFd::open(pid).ok(), turn: Mutex::new(()) })
    }

    /// Sends an order and gives our end of its report pipe, of which nobody but the spawner and the child has the other.
    fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<OwnedFd> {
        let (report, theirs) = pipe::pipe()?;
        let descriptors: Vec<_> = [theirs.as_fd()].iter().chain(descriptors).copied().collect();
        let turn = lock(&self.turn);
        let sent = scm::send(self.stream.as_fd(), message, &descriptors)?;
        (&self.stream).write_all(&message[sent..])?;
        drop(turn);
        Ok(report)
    }

    /// `None` when there is certainly no child: the spawner is gone, and with it everything that could have made one.
    fn first_report(&self, report: &OwnedFd, order: &Order) -> io::Result<Option<Report>> {
        let is_there = |events, span| {
            let mut fds = [PollFd::from_borrowed_fd(report.as_fd(), events)];
            poll::wait(&mut fds, Some(Instant::now() + span)).map(|ready| ready > 0)
        };
        // A program has executed, or failed to, when nobody has the other end any more; then one waking is enough.
        let awaited = match order {
            Order::Program(_) => PollFlags::empty(),
            Order::Job(_) => PollFlags::IN,
        };
        if !is_there(awaited, ANSWER_MAX)? && !is_there(awaited, ANSWER_MAX)? {
            // Either the child was stopped on its way, or the spawner.
            if !is_there(PollFlags::IN, Duration::ZERO)? {
                self.end();
                if !is_there(PollFlags::IN, ANSWER_MAX)? {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
        read_report(report)
    }

    /// It is gone already, or it hangs and must not do later what is then done twice.
    fn end(&self) {
        if let Some(handle) = &self.handle {
            handle.signal(SIGKILL).ok();
        }
    }
}

/// Reads the next report; `None` when there will be none.
pub(crate) fn read_report(report: &OwnedFd) -> io::Result<Option<Report>> {
    let mut bytes = Vec::with_capacity(REPORT_BYTES);
    pipe::read_spare(report.as_fd(), &mut bytes)?;
    Ok(Report::parse(&bytes))
}
