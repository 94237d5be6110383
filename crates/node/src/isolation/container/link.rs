//! Owns the node's end of the launcher: starts it, passes calls to it and their replies back, and starts another when it
//! dies. Calls that were under way then fail; what they left behind is destroyed with their slot.

use super::StepFailure;
use crate::isolation::watch;
use crate::launcher::protocol::{Call, MESSAGE_BYTES_MAX, Outcome, Reply, Request, ShellReport};
use cofferdam_sys::{helper, seqpacket};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, oneshot};

/// Calls that wait to be sent.
const QUEUE: usize = 1024;
/// Time for a launcher to say that it is ready.
const START_WAIT: Duration = Duration::from_secs(10);
/// Time for a shell to prepare itself or to become the agent.
const SHELL_WAIT: Duration = Duration::from_secs(30);
/// Between two tries to start a launcher.
const RESTART_INTERVAL: Duration = Duration::from_millis(200);

/// A command that ends in `launcher::launcher_main`.
#[derive(Debug, Clone)]
pub struct LauncherCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments, without the program's name.
    pub arguments: Vec<OsString>,
}

type Answer = io::Result<(Outcome, Vec<OwnedFd>)>;

#[derive(Debug)]
struct Order {
    request: Request,
    descriptors: Vec<OwnedFd>,
    answer: oneshot::Sender<Answer>,
}

/// A launcher that is always there, or nearly.
#[derive(Debug)]
pub(super) struct Link {
    orders: mpsc::Sender<Order>,
    pid: Arc<AtomicU32>,
}

impl Link {
    /// Starts the first launcher, so that a host on which it cannot work is told at once.
    pub(super) async fn start(command: LauncherCommand, agent: OwnedFd) -> io::Result<Self> {
        let (orders, queue) = mpsc::channel(QUEUE);
        let pid = Arc::new(AtomicU32::new(0));
        let mut keeper = Keeper { command, agent, queue, pid: Arc::clone(&pid), next_id: 1 };
        let first = keeper.launch().await?;
        tokio::spawn(keeper.run(first));
        Ok(Self { orders, pid })
    }

    /// Passes a call on and waits for its reply.
    pub(super) async fn call(&self, request: Request, descriptors: Vec<OwnedFd>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the launcher is gone");
        self.orders.send(Order { request, descriptors, answer }).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    pub(super) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }
}

/// The task that owns the launcher.
struct Keeper {
    command: LauncherCommand,
    agent: OwnedFd,
    queue: mpsc::Receiver<Order>,
    pid: Arc<AtomicU32>,
    next_id: u64,
}

struct Running {
    child: Child,
    socket: AsyncFd<OwnedFd>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It ends by itself when the socket closes; one that hangs must not stay.
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait().map(drop)) {
            tracing::warn!(%error, "launcher could not be ended");
        }
    }
}

impl Keeper {
    async fn run(mut self, first: Running) {
        let mut running = Some(first);
        loop {
            let launcher = match running.take() {
                Some(launcher) => launcher,
                None => match self.launch().await {
                    Ok(launcher) => launcher,
                    Err(error) => {
                        tracing::error!(%error, "launcher does not start");
                        if self.queue.is_closed() {
                            return;
                        }
                        tokio::time::sleep(RESTART_INTERVAL).await;
                        continue;
                    }
                },
            };
            match self.serve(launcher).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "launcher ended, starting another"),
            }
        }
    }

    async fn launch(&mut self) -> io::Result<Running> {
        let (ours, theirs) = seqpacket::pair()?;
        let arguments: Vec<&OsStr> = self.command.arguments.iter().map(OsString::as_os_str).collect();
        let child = helper::spawn_with_socket(&self.command.program, &arguments, theirs)?;
        seqpacket::send(&ours, b"agent", &[self.agent.as_fd()])?;
        seqpacket::set_nonblocking(&ours)?;
        let running = Running { child, socket: watch(ours, Interest::READABLE | Interest::WRITABLE)? };
        let reply = tokio::time::timeout(START_WAIT, receive(&running.socket)).await??;
        match reply {
            Some((Reply { outcome: Outcome::Ready, .. }, _)) => {}
            Some(_) | None => {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "it ended before it was ready"));
            }
        }
        self.pid.store(running.child.id(), Ordering::Relaxed);
        Ok(running)
    }

    /// Passes calls and replies until nobody can call any more (`Ok`) or the launcher is gone.
    async fn serve(&mut self, running: Running) -> io::Result<()> {
        let mut pending: HashMap<u64, oneshot::Sender<Answer>> = HashMap::new();
        loop {
            tokio::select! {
                reply = receive(&running.socket) => {
                    let Some((reply, descriptors)) = reply? else { return Err(io::ErrorKind::BrokenPipe.into()) };
                    if let Some(answer) = pending.remove(&reply.id) {
                        // Whoever asked may have given up; the descriptors close and the shell ends.
                        answer.send(Ok((reply.outcome, descriptors))).ok();
                    }
                }
                order = self.queue.recv() => {
                    let Some(order) = order else { return Ok(()) };
                    let id = self.next_id;
                    self.next_id += 1;
                    pending.insert(id, order.answer);
                    send(&running.socket, &Call { id, request: order.request }, &order.descriptors).await?;
                }
            }
        }
    }
}

async fn receive(socket: &AsyncFd<OwnedFd>) -> io::Result<Option<(Reply, Vec<OwnedFd>)>> {
    let message = socket.async_io(Interest::READABLE, |fd| seqpacket::receive(fd, MESSAGE_BYTES_MAX)).await?;
    let Some(message) = message else { return Ok(None) };
    Ok(Some((serde_json::from_slice(&message.bytes)?, message.descriptors)))
}

async fn send(socket: &AsyncFd<OwnedFd>, call: &Call, descriptors: &[OwnedFd]) -> io::Result<()> {
    let bytes = serde_json::to_vec(call)?;
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    socket.async_io(Interest::WRITABLE, |fd| seqpacket::send(fd, &bytes, &borrowed)).await
}

/// What a shell says next; `None` when its control socket closed. The socket comes back.
pub(super) async fn wait_report(control: OwnedFd) -> io::Result<(OwnedFd, Option<ShellReport>)> {
    let control = watch(control, Interest::READABLE)?;
    let receive = control.async_io(Interest::READABLE, |fd| seqpacket::receive(fd, MESSAGE_BYTES_MAX));
    let message = tokio::time::timeout(SHELL_WAIT, receive).await??;
    let report = message.map(|message| ShellReport::parse(&message.bytes)).transpose()?;
    Ok((control.into_inner(), report))
}

/// The failure of a step that a shell took.
pub(super) fn reported(step: String, errno: i32) -> StepFailure {
    let source = if errno == 0 { io::ErrorKind::Other.into() } else { io::Error::from_raw_os_error(errno) };
    StepFailure { step, source }
}

/// The failure of a call that was not answered as it should.
pub(super) fn unexpected(outcome: Outcome) -> StepFailure {
    match outcome {
        Outcome::Failed { step, errno } => reported(step, errno),
        Outcome::Ready | Outcome::Parked { .. } | Outcome::Filled => {
            reported("understand the launcher".to_owned(), 0)
        }
    }
}
