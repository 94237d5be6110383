//! Owns a node without a host: it speaks the protocol of the node on a socket, keeps sandboxes in memory, and plays
//! the agent of each.

mod agent;

use agent::Sandbox;
use cofferdam_core::{Digest, ErrorKind, SandboxId, SandboxSpec, State, TemplateId, TemplateInfo, Timestamp};
use cofferdam_proto::guest::{Failure, Reason};
use cofferdam_proto::node::{
    self, Answer, Call, Capacity, Check, EndReason, ImportTemplate, Message, Request, SandboxRecord, Usage,
    Verdict,
};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio_seqpacket::ancillary::{AncillaryMessageWriter, OwnedAncillaryMessage};
use tokio_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};
use tokio_util::sync::CancellationToken;

const MESSAGE_BYTES: usize = 256 * 1024;
const PAGE: usize = 3;

/// The fake. Clones are the same node.
#[derive(Clone)]
pub struct FakeNode(Arc<Inner>);

struct Inner {
    path: PathBuf,
    state: Mutex<Held>,
    /// Cancelled and replaced to cut every connection.
    cut: Mutex<CancellationToken>,
    open: Mutex<bool>,
    opened: Notify,
}

#[derive(Default)]
struct Held {
    sandboxes: BTreeMap<SandboxId, Arc<Sandbox>>,
    templates: BTreeMap<TemplateId, TemplateInfo>,
    connections: Vec<Arc<UnixSeqpacket>>,
    refuse_create: Option<Failure>,
    hold_create: Option<Arc<Notify>>,
    create_calls: u64,
}

impl FakeNode {
    /// Listens on `node.sock` in `dir`, and holds the template `base`.
    pub fn start(dir: &Path) -> io::Result<Self> {
        let node = Self(Arc::new(Inner {
            path: dir.join("node.sock"),
            state: Mutex::default(),
            cut: Mutex::default(),
            open: Mutex::new(true),
            opened: Notify::new(),
        }));
        node.add_template("base");
        let listener = UnixSeqpacketListener::bind(node.path())?;
        tokio::spawn(node.clone().accept(listener));
        Ok(node)
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// A template that the node made by itself.
    pub fn add_template(&self, name: &str) -> TemplateInfo {
        let mut held = self.held();
        let number = u8::try_from(held.templates.len()).unwrap_or(u8::MAX);
        let info = template(TemplateId::from_entropy([number; 20]), name, [number; 32], 0);
        held.templates.insert(info.id.clone(), info.clone());
        info
    }

    /// The sandboxes that exist.
    pub fn sandboxes(&self) -> Vec<SandboxId> {
        self.held().sandboxes.keys().cloned().collect()
    }

    /// The specification of one of them.
    pub fn spec(&self, id: &SandboxId) -> Option<SandboxSpec> {
        self.held().sandboxes.get(id).map(|sandbox| sandbox.spec().clone())
    }

    /// When one of them is planned to end.
    pub fn expires_at(&self, id: &SandboxId) -> Option<Timestamp> {
        self.held().sandboxes.get(id).map(|sandbox| sandbox.expires_at())
    }

    /// How often a sandbox was asked for.
    pub fn create_calls(&self) -> u64 {
        self.held().create_calls
    }

    /// A sandbox that nobody asked for.
    pub fn plant(&self, spec: SandboxSpec) {
        self.held().sandboxes.insert(spec.id.clone(), Arc::new(Sandbox::new(spec)));
    }

    /// Ends a sandbox from inside and says so.
    pub async fn end(&self, id: &SandboxId, reason: EndReason) {
        self.lose(id);
        let message = Message::Ended { sandbox: id.clone(), reason };
        let connections = self.held().connections.clone();
        for connection in connections {
            // A connection may have gone away meanwhile.
            drop(send(&connection, &message, None).await);
        }
    }

    /// Ends a sandbox and says nothing.
    pub fn lose(&self, id: &SandboxId) {
        if let Some(sandbox) = self.held().sandboxes.remove(id) {
            sandbox.end();
        }
    }

    /// Refuses the creates that follow.
    pub fn refuse_creates(&self, kind: Option<ErrorKind>) {
        let failure =
            |kind| Failure { kind, message: "refused by the fake".to_owned(), reason: Reason::None };
        self.held().refuse_create = kind.map(failure);
    }

    /// Answers the creates that follow only after the notification.
    pub fn hold_creates(&self) -> Arc<Notify> {
        let notify = Arc::new(Notify::new());
        self.held().hold_create = Some(Arc::clone(&notify));
        notify
    }

    /// Cuts every connection; new ones are welcome.
    pub fn cut(&self) {
        let mut cut = self.0.cut.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *cut).cancel();
        for connection in std::mem::take(&mut self.held().connections) {
            // Answers that are still on their way keep it open otherwise.
            drop(connection.shutdown(std::net::Shutdown::Both));
        }
    }

    /// Cuts every connection, and does not greet new ones until [`FakeNode::open`].
    pub fn close(&self) {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.cut();
    }

    /// Greets connections again.
    pub fn open(&self) {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.opened.notify_waiters();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_open(&self) -> bool {
        *self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn accept(self, mut listener: UnixSeqpacketListener) {
        while let Ok(connection) = listener.accept().await {
            let cut = self.0.cut.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let node = self.clone();
            tokio::spawn(async move { cut.run_until_cancelled(node.serve(Arc::new(connection))).await });
        }
    }

    async fn serve(self, connection: Arc<UnixSeqpacket>) -> io::Result<()> {
        loop {
            let opened = self.0.opened.notified();
            if self.is_open() {
                break;
            }
            opened.await;
        }
        self.held().connections.push(Arc::clone(&connection));
        while let Some((call, descriptor)) = receive(&connection).await? {
            let (node, connection) = (self.clone(), Arc::clone(&connection));
            tokio::spawn(async move {
                let (answer, descriptor) = node.answer(&connection, &call, descriptor).await;
                let message = Message::Answer { id: call.id, answer: Box::new(answer) };
                send(&connection, &message, descriptor).await
            });
        }
        Ok(())
    }

    async fn answer(
        &self,
        connection: &UnixSeqpacket,
        call: &Call,
        descriptor: Option<OwnedFd>,
    ) -> (Answer, Option<OwnedFd>) {
        let answer = match &call.request {
            Request::Hello { .. } => {
                Answer::Welcome { version: node::VERSION, incarnation: "fake".to_owned() }
            }
            Request::Create(spec) => self.create(spec).await,
            Request::Dial { sandbox } => return self.dial(sandbox),
            Request::ImportTemplate(import) => self.import(connection, call.id, import, descriptor).await,
            other => self.look_up(other),
        };
        (answer, None)
    }

    async fn create(&self, spec: &SandboxSpec) -> Answer {
        let hold = self.held().hold_create.clone();
        if let Some(hold) = hold {
            hold.notified().await;
        }
        let mut held = self.held();
        held.create_calls += 1;
        if let Some(failure) = &held.refuse_create {
            return Answer::Failed(failure.clone());
        }
        let make = || Arc::new(Sandbox::new(spec.clone()));
        let sandbox = held.sandboxes.entry(spec.id.clone()).or_insert_with(make);
        Answer::Sandbox(sandbox.record())
    }

    fn dial(&self, id: &SandboxId) -> (Answer, Option<OwnedFd>) {
        let Some(sandbox) = self.held().sandboxes.get(id).cloned() else { return (unknown(), None) };
        let stream = UnixStream::pair().and_then(|(ours, theirs)| Ok((ours, theirs.into_std()?)));
        match stream {
            Ok((ours, theirs)) => {
                tokio::spawn(async move { sandbox.serve(ours).await });
                (Answer::Done, Some(theirs.into()))
            }
            Err(error) => (failed(ErrorKind::Internal, &error.to_string()), None),
        }
    }

    async fn import(
        &self,
        connection: &UnixSeqpacket,
        id: u64,
        import: &ImportTemplate,
        descriptor: Option<OwnedFd>,
    ) -> Answer {
        let Some(descriptor) = descriptor else { return failed(ErrorKind::InvalidArgument, "no descriptor") };
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            std::fs::File::from(descriptor).read_to_end(&mut bytes).map(|_| bytes)
        });
        let Ok(Ok(bytes)) = read.await else { return failed(ErrorKind::Internal, "read") };
        let done = bytes.len() as u64;
        let progress = Message::Progress { id, step: "read".to_owned(), done, total: None };
        if send(connection, &progress, None).await.is_err() || bytes == b"broken" {
            return failed(ErrorKind::InvalidArgument, "this is no root file system");
        }
        let mut digest = [0; 32];
        digest.iter_mut().zip(&bytes).for_each(|(to, from)| *to = *from);
        let info = template(import.template.clone(), &import.name, digest, done);
        self.held().templates.insert(info.id.clone(), info.clone());
        Answer::Template(Box::new(info))
    }

    fn look_up(&self, request: &Request) -> Answer {
        let mut held = self.held();
        match request {
            Request::Kill { sandbox } => {
                if let Some(sandbox) = held.sandboxes.remove(sandbox) {
                    sandbox.end();
                }
                Answer::Done
            }
            Request::SetDeadline { sandbox, expires_at } => match held.sandboxes.get(sandbox) {
                Some(sandbox) => Answer::Sandbox(sandbox.set_expires_at(*expires_at)),
                None => unknown(),
            },
            Request::Usage { sandbox } => match held.sandboxes.get(sandbox) {
                Some(_) => Answer::Usage(usage()),
                None => unknown(),
            },
            Request::List { after } => {
                let later = held.sandboxes.values().filter(|s| Some(&s.spec().id) > after.as_ref());
                Answer::Sandboxes { sandboxes: later.take(PAGE).map(|s| s.record()).collect() }
            }
            Request::Templates { after } => {
                let later = held.templates.values().filter(|info| Some(&info.id) > after.as_ref());
                Answer::Templates { templates: later.take(PAGE).cloned().collect() }
            }
            Request::RemoveTemplate { template } => {
                held.templates.remove(template);
                Answer::Done
            }
            Request::Doctor => Answer::Report { checks: vec![check()] },
            Request::Capacity => Answer::Capacity(Capacity {
                sandboxes: u32::try_from(held.sandboxes.len()).unwrap_or(u32::MAX),
                sandboxes_max: 100,
                parked: 0,
                warm: 0,
            }),
            Request::Hello { .. }
            | Request::Create(_)
            | Request::Dial { .. }
            | Request::ImportTemplate(_) => failed(ErrorKind::Internal, "answered elsewhere"),
        }
    }
}

fn template(id: TemplateId, name: &str, digest: [u8; 32], size_bytes: u64) -> TemplateInfo {
    TemplateInfo {
        id,
        name: name.to_owned(),
        digest: Digest::from_sha256(digest),
        created_at: Timestamp::from_micros(0),
        size_bytes,
        default_user: "user".to_owned(),
        default_workdir: String::new(),
        env: BTreeMap::from([("FROM_TEMPLATE".to_owned(), name.to_owned())]),
    }
}

fn usage() -> Usage {
    Usage {
        at: Timestamp::from_micros(1),
        cpu_us: 1000,
        memory_used: 2000,
        memory_cache: 3000,
        memory_peak: 4000,
        processes: 5,
        disk_used: 6000,
        oom_kills: 0,
        process_refusals: 0,
    }
}

fn check() -> Check {
    Check { name: "fake".to_owned(), verdict: Verdict::Pass, detail: "always".to_owned(), remedy: None }
}

fn failed(kind: ErrorKind, message: &str) -> Answer {
    Answer::Failed(Failure { kind, message: message.to_owned(), reason: Reason::None })
}

fn unknown() -> Answer {
    failed(ErrorKind::NotFound, "no such sandbox")
}

impl Sandbox {
    fn record(&self) -> SandboxRecord {
        SandboxRecord {
            id: self.spec().id.clone(),
            state: State::Running,
            resources: self.spec().resources,
            started_at: Timestamp::from_micros(0),
            expires_at: self.expires_at(),
        }
    }
}

async fn receive(connection: &UnixSeqpacket) -> io::Result<Option<(Call, Option<OwnedFd>)>> {
    let (mut packet, mut room) = (vec![0; MESSAGE_BYTES], [0; 128]);
    let (info, ancillary) = connection.recv_with_ancillary(&mut packet, &mut room).await?;
    let mut descriptor = None;
    for message in ancillary.into_messages() {
        if let OwnedAncillaryMessage::FileDescriptors(mut all) = message {
            descriptor = all.next();
        }
    }
    match info.bytes_read() {
        0 => Ok(None),
        bytes => Ok(Some((serde_json::from_slice(&packet[..bytes])?, descriptor))),
    }
}

async fn send(connection: &UnixSeqpacket, message: &Message, descriptor: Option<OwnedFd>) -> io::Result<()> {
    let packet = serde_json::to_vec(message)?;
    let mut room = [0; 128];
    let mut ancillary = AncillaryMessageWriter::new(&mut room);
    if let Some(descriptor) = &descriptor {
        ancillary.add_fds([descriptor.as_fd()]).map_err(|_| io::ErrorKind::InvalidInput)?;
    }
    connection.send_with_ancillary(&packet, &mut ancillary).await.map(|_| ())
}
