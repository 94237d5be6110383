//! Owns PID 1's side of the spawner: one at a time, started again when it died or does not answer. No order is ever
//! carried out in the cgroup of the agent instead.

use crate::failure::{because, failure};
use crate::order::{self, Order};
use crate::sync::lock;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{Failure, Reason};
use cofferdam_sys::scm;
use cofferdam_sys::spawn::start_binary;
use cofferdam_sys::wait::PidFd;
use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::time::Duration;

/// How long the spawner may take, twice: it competes with user processes for the CPU, and a sandbox that was frozen
/// meanwhile must not look like one that hangs.
const ANSWER_MAX: Duration = Duration::from_secs(8);
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const SIGKILL: u8 = 9;

/// What starting a spawner takes.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// Our own binary.
    pub(crate) binary: OwnedFd,
    /// What it joins before it does anything else; `None` forbids starting one.
    pub(crate) work_cgroups: Option<Vec<OwnedFd>>,
}

/// The way to the spawner.
#[derive(Debug)]
pub(crate) struct Link {
    recipe: Recipe,
    current: Mutex<Option<Spawner>>,
}

#[derive(Debug)]
struct Spawner {
    stream: UnixStream,
    /// It said hello.
    greeted: bool,
    pid: Option<u32>,
    /// For ending exactly this one, whatever became of its number.
    handle: Option<PidFd>,
}

/// Why an order was not carried out.
#[derive(Debug)]
enum Trouble {
    /// The spawner is gone or hangs.
    Broken(io::Error),
    /// The kernel refused.
    Refused(i32),
}

impl Link {
    /// Uses `given`, the end of a socketpair with a spawner that runs already, or starts one when it is needed.
    pub(crate) fn new(recipe: Recipe, given: Option<UnixStream>) -> Self {
        let current = given.map(Spawner::given);
        Self { recipe, current: Mutex::new(current) }
    }

    /// Starts the spawner now if there is none, so that the first order does not have to.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        let mut current = lock(&self.current);
        if current.is_none() {
            *current = Some(self.recipe.start()?);
        }
        Ok(())
    }

    /// The spawner's pid, once it is known.
    pub(crate) fn pid(&self) -> Option<u32> {
        // A thread that waits for the spawner holds the lock; nobody needs the number that badly.
        self.current.try_lock().ok()?.as_ref()?.pid
    }

    /// Has an order carried out and gives the pid of the new child. A spawner that died is replaced once.
    pub(crate) fn send(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> Result<u32, Failure> {
        let message = order::encode(order);
        if message.len() > order::ORDER_BYTES_MAX {
            return Err(failure(ErrorKind::InvalidArgument, "arguments and environment are too large"));
        }
        let mut current = lock(&self.current);
        match self.try_send(&mut current, &message, descriptors) {
            Err(Trouble::Broken(_)) => self.try_send(&mut current, &message, descriptors),
            done => done,
        }
        .map_err(|trouble| match trouble {
            Trouble::Refused(error) => refused(error),
            Trouble::Broken(error) => unavailable(&error),
        })
    }

    fn try_send(
        &self,
        current: &mut Option<Spawner>,
        message: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<u32, Trouble> {
        let mut spawner = match current.take() {
            Some(spawner) => spawner,
            None => self.recipe.start().map_err(Trouble::Broken)?,
        };
        let result = spawner.carry_out(message, descriptors);
        match &result {
            Err(Trouble::Broken(_)) => spawner.end(),
            Ok(_) | Err(Trouble::Refused(_)) => *current = Some(spawner),
        }
        result
    }
}

fn unavailable(error: &io::Error) -> Failure {
    let text = crate::failure::text(error);
    failure(ErrorKind::Unavailable, format!("processes cannot be started now: {text}"))
}

fn refused(error: i32) -> Failure {
    match error {
        EAGAIN => because(ErrorKind::ResourceExhausted, Reason::NoProcesses, "the process limit is reached"),
        ENOMEM => failure(ErrorKind::ResourceExhausted, "not enough memory to start a process"),
        _ => crate::failure::doing("start a process", &io::Error::from_raw_os_error(error)),
    }
}

impl Recipe {
    fn start(&self) -> io::Result<Spawner> {
        let Some(cgroups) = &self.work_cgroups else { return Err(io::ErrorKind::NotConnected.into()) };
        let (ours, theirs) = UnixStream::pair()?;
        let number = CString::new(cgroups.len().to_string())?;
        let arguments = [c"cofferdam-agent", c"--spawner", c"--work-cgroups", number.as_c_str()];
        let descriptors: Vec<_> =
            [theirs.as_fd()].into_iter().chain(cgroups.iter().map(AsFd::as_fd)).collect();
        let pid = start_binary(self.binary.as_fd(), &arguments, &descriptors)?;
        Ok(Spawner { stream: ours, greeted: false, pid: Some(pid), handle: PidFd::open(pid).ok() })
    }
}

impl Spawner {
    fn given(stream: UnixStream) -> Self {
        Self { stream, greeted: false, pid: None, handle: None }
    }

    fn carry_out(&mut self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<u32, Trouble> {
        if !self.greeted {
            self.stream.set_read_timeout(Some(ANSWER_MAX)).map_err(Trouble::Broken)?;
            let pid = self.answer()?;
            if self.pid.is_none() {
                self.handle = PidFd::open(pid).ok();
                self.pid = Some(pid);
            }
            self.greeted = true;
        }
        let sent = scm::send(self.stream.as_fd(), message, descriptors).map_err(Trouble::Broken)?;
        (&self.stream).write_all(&message[sent..]).map_err(Trouble::Broken)?;
        self.answer()
    }

    fn answer(&self) -> Result<u32, Trouble> {
        let mut bytes = [0; order::ANSWER_BYTES];
        let read = match (&self.stream).read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (&self.stream).read(&mut bytes),
            other => other,
        };
        match read {
            Ok(order::ANSWER_BYTES) => order::decode_answer(bytes).map_err(Trouble::Refused),
            Ok(_) => Err(Trouble::Broken(io::ErrorKind::UnexpectedEof.into())),
            Err(error) => Err(Trouble::Broken(error)),
        }
    }

    /// It is gone already, or it hangs and must not do later what is then done twice.
    fn end(self) {
        if let Some(handle) = &self.handle {
            handle.signal(SIGKILL).ok();
        }
    }
}
