//! Owns the persistent link to the node: it connects again by itself, and its calls know which of them may be repeated.

use super::wire::{Answered, Connection, Progress, borrow};
use cofferdam_core::limits::{NODE_REPLY_MS_MAX, NODE_RETRY_MS_MAX};
use cofferdam_core::{SandboxId, SandboxSpec, TemplateId, TemplateInfo, Timestamp};
use cofferdam_proto::guest::Failure;
use cofferdam_proto::node::{
    self, Answer, Capacity, Check, EndReason, ImportTemplate, Request, SandboxRecord, Usage,
};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// First and longest pause between two attempts to connect.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// How long a call waits for a connection when there is none.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// Unasked messages that may wait to be handled.
const EVENTS_MAX: usize = 1024;
/// How long an import may take.
const IMPORT_TIME_MAX: Duration = Duration::from_secs(3600);
/// Pages of a listing that are read at most.
const PAGES_MAX: usize = 10_000;

/// Why a call to the node brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The node refused, and says why.
    #[error("node refused")]
    Failed(#[source] Failure),
    /// There is no connection now, or it was lost before the answer.
    #[error("no connection to the node")]
    Lost,
    /// The node did not answer in time.
    #[error("node did not answer in time")]
    Timeout,
    /// The answer is none to this call.
    #[error("node answered something else than {expected}")]
    Unexpected {
        /// What would have been right.
        expected: &'static str,
    },
    /// The call is too large for the protocol.
    #[error("call of {bytes} bytes is too large for the node")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The call has no JSON form.
    #[error("encode a call to the node")]
    Encode(#[source] serde_json::Error),
    /// The descriptor that came is no stream.
    #[error("descriptor from the node")]
    Descriptor(#[source] std::io::Error),
    /// Too many calls wait for an answer.
    #[error("too many calls to the node wait for an answer")]
    Busy,
}

/// What the node says unasked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeEvent {
    /// There is a new connection: whatever was said on the one before may be lost.
    Connected,
    /// A sandbox ended.
    Ended(SandboxId, EndReason),
}

/// The link. Cheap to clone; it lasts until its token is cancelled.
#[derive(Clone)]
pub struct NodeLink {
    current: watch::Receiver<Option<Arc<Connection>>>,
}

impl NodeLink {
    /// Starts to connect to the socket at `path`, again and again until `stop` fires.
    pub fn start(path: PathBuf, stop: CancellationToken) -> (Self, mpsc::Receiver<NodeEvent>) {
        let (publish, current) = watch::channel(None);
        let (events, received) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = keep_connected(path, publish, events) => {}
            }
        });
        (Self { current }, received)
    }

    /// True when there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.current.borrow().is_some()
    }

    /// Waits until there is a connection.
    pub async fn connected(&self) {
        let mut current = self.current.clone();
        if current.wait_for(Option::is_some).await.is_err() {
            // The link has ended with its token, and so has whoever waits.
            std::future::pending::<()>().await;
        }
    }

    /// Makes a sandbox. Repeated over losses of the connection: the id makes it one.
    pub async fn create(&self, spec: SandboxSpec) -> Result<SandboxRecord, LinkError> {
        match self.repeat(Request::Create(Box::new(spec))).await?.0 {
            Answer::Sandbox(record) => Ok(record),
            other => unexpected(other, "a sandbox"),
        }
    }

    /// Ends a sandbox. Repeated over losses of the connection.
    pub async fn kill(&self, sandbox: SandboxId) -> Result<(), LinkError> {
        done(self.repeat(Request::Kill { sandbox }).await?.0)
    }

    /// Moves the deadline. Repeated over losses of the connection.
    pub async fn set_deadline(&self, sandbox: SandboxId, expires_at: Timestamp) -> Result<(), LinkError> {
        match self.repeat(Request::SetDeadline { sandbox, expires_at }).await?.0 {
            Answer::Sandbox(_) => Ok(()),
            other => unexpected(other, "a sandbox"),
        }
    }

    /// A connection to the agent of a sandbox.
    pub async fn dial(&self, sandbox: SandboxId) -> Result<UnixStream, LinkError> {
        match self.once(Request::Dial { sandbox }).await? {
            (Answer::Done, Some(descriptor)) => {
                let stream = std::os::unix::net::UnixStream::from(descriptor);
                stream.set_nonblocking(true).map_err(LinkError::Descriptor)?;
                UnixStream::from_std(stream).map_err(LinkError::Descriptor)
            }
            (other, _) => unexpected(other, "a connection"),
        }
    }

    /// Measured use.
    pub async fn usage(&self, sandbox: SandboxId) -> Result<Usage, LinkError> {
        match self.once(Request::Usage { sandbox }).await?.0 {
            Answer::Usage(usage) => Ok(usage),
            other => unexpected(other, "usage"),
        }
    }

    /// Every sandbox that the node holds.
    pub async fn sandboxes(&self) -> Result<Vec<SandboxRecord>, LinkError> {
        let mut all: Vec<SandboxRecord> = Vec::new();
        for _ in 0..PAGES_MAX {
            let after = all.last().map(|record| record.id.clone());
            match self.once(Request::List { after: after.clone() }).await?.0 {
                Answer::Sandboxes { sandboxes } if sandboxes.is_empty() => return Ok(all),
                Answer::Sandboxes { sandboxes } if sandboxes.first().map(|r| &r.id) > after.as_ref() => {
                    all.extend(sandboxes);
                }
                other => return unexpected(other, "a page of sandboxes"),
            }
        }
        Err(LinkError::Unexpected { expected: "an end of the sandboxes" })
    }

    /// Every template that the node holds.
    pub async fn templates(&self) -> Result<Vec<TemplateInfo>, LinkError> {
        let mut all: Vec<TemplateInfo> = Vec::new();
        for _ in 0..PAGES_MAX {
            let after = all.last().map(|info| info.id.clone());
            match self.once(Request::Templates { after: after.clone() }).await?.0 {
                Answer::Templates { templates } if templates.is_empty() => return Ok(all),
                Answer::Templates { templates } if templates.first().map(|t| &t.id) > after.as_ref() => {
                    all.extend(templates);
                }
                other => return unexpected(other, "a page of templates"),
            }
        }
        Err(LinkError::Unexpected { expected: "an end of the templates" })
    }

    /// Imports a template; the node reads its bytes from `content`.
    pub async fn import_template(
        &self,
        import: ImportTemplate,
        content: OwnedFd,
        progress: mpsc::Sender<Progress>,
    ) -> Result<TemplateInfo, LinkError> {
        let connection = self.connection(Instant::now() + CONNECT_WAIT).await?;
        let call = connection.call(Request::ImportTemplate(import), borrow(Some(&content)), Some(progress));
        match accept(timeout(IMPORT_TIME_MAX, call).await.map_err(|_| LinkError::Timeout)??)?.0 {
            Answer::Template(info) => Ok(*info),
            other => unexpected(other, "a template"),
        }
    }

    /// Forgets a template.
    pub async fn remove_template(&self, template: TemplateId) -> Result<(), LinkError> {
        done(self.repeat(Request::RemoveTemplate { template }).await?.0)
    }

    /// What the host can do.
    pub async fn doctor(&self) -> Result<Vec<Check>, LinkError> {
        match self.once(Request::Doctor).await?.0 {
            Answer::Report { checks } => Ok(checks),
            other => unexpected(other, "a report"),
        }
    }

    /// What the node can take.
    pub async fn capacity(&self) -> Result<Capacity, LinkError> {
        match self.once(Request::Capacity).await?.0 {
            Answer::Capacity(capacity) => Ok(capacity),
            other => unexpected(other, "capacity"),
        }
    }

    /// One attempt, on the connection there is or will be in a moment.
    async fn once(&self, request: Request) -> Result<Answered, LinkError> {
        let connection = self.connection(Instant::now() + CONNECT_WAIT).await?;
        let call = connection.call(request, None, None);
        let answered = timeout(Duration::from_millis(NODE_REPLY_MS_MAX), call).await;
        accept(answered.map_err(|_| LinkError::Timeout)??)
    }

    /// As many attempts as the time for repeating allows: only for calls that do no more when done twice.
    async fn repeat(&self, request: Request) -> Result<Answered, LinkError> {
        let deadline = Instant::now() + Duration::from_millis(NODE_RETRY_MS_MAX);
        loop {
            match self.once(request.clone()).await {
                Err(LinkError::Lost) if Instant::now() < deadline => {}
                other => return other,
            }
        }
    }

    /// The connection there is, or the next one before the deadline.
    async fn connection(&self, deadline: Instant) -> Result<Arc<Connection>, LinkError> {
        let usable = |current: &Option<Arc<Connection>>| current.as_ref().is_some_and(|c| !c.is_lost());
        let mut current = self.current.clone();
        let next = timeout_at(deadline, current.wait_for(usable)).await;
        let next = next.map_err(|_| LinkError::Lost)?.map_err(|_| LinkError::Lost)?;
        next.as_ref().map(Arc::clone).ok_or(LinkError::Lost)
    }
}

fn accept(answered: Answered) -> Result<Answered, LinkError> {
    match answered {
        (Answer::Failed(failure), _) => Err(LinkError::Failed(failure)),
        answered => Ok(answered),
    }
}

fn done(answer: Answer) -> Result<(), LinkError> {
    match answer {
        Answer::Done => Ok(()),
        other => unexpected(other, "done"),
    }
}

fn unexpected<T>(answer: Answer, expected: &'static str) -> Result<T, LinkError> {
    tracing::warn!(?answer, expected, "unexpected answer of the node");
    Err(LinkError::Unexpected { expected })
}

async fn keep_connected(
    path: PathBuf,
    publish: watch::Sender<Option<Arc<Connection>>>,
    events: mpsc::Sender<NodeEvent>,
) {
    let mut pause = BACK_OFF.0;
    while !publish.is_closed() {
        match hold_one(&path, &publish, &events).await {
            Ok(lost) => {
                pause = BACK_OFF.0;
                tracing::warn!(error = %lost, "connection to the node lost");
            }
            Err(error) => {
                tracing::debug!(%error, "connect to the node");
                pause = (pause * 2).min(BACK_OFF.1);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Connects, greets, offers the connection, and holds it until it is lost.
async fn hold_one(
    path: &std::path::Path,
    publish: &watch::Sender<Option<Arc<Connection>>>,
    events: &mpsc::Sender<NodeEvent>,
) -> std::io::Result<std::io::Error> {
    let connection = Arc::new(Connection::open(path).await?);
    let (ended, mut endings) = mpsc::channel(EVENTS_MAX);
    let mut receive = std::pin::pin!(connection.receive(&ended));
    let hello = connection.call(Request::Hello { version: node::VERSION }, None, None);
    let greeted = tokio::select! {
        lost = &mut receive => return Ok(lost),
        greeted = timeout(Duration::from_millis(NODE_REPLY_MS_MAX), hello) => greeted,
    };
    match greeted {
        Ok(Ok((Answer::Welcome { version, incarnation }, _))) if version == node::VERSION => {
            tracing::info!(%incarnation, "connected to the node");
        }
        other => return Err(std::io::Error::other(format!("unexpected greeting: {other:?}"))),
    }
    publish.send_replace(Some(Arc::clone(&connection)));
    let forward = async {
        if events.send(NodeEvent::Connected).await.is_ok() {
            while let Some((sandbox, reason)) = endings.recv().await {
                if events.send(NodeEvent::Ended(sandbox, reason)).await.is_err() {
                    break;
                }
            }
        }
        std::io::ErrorKind::BrokenPipe.into()
    };
    let lost = tokio::select! {
        lost = &mut receive => lost,
        lost = forward => lost,
    };
    publish.send_replace(None);
    Ok(lost)
}
