//! A server's side of the node's socket, and a caller's side of an agent; both blocking.

use cofferdam_core::SandboxId;
use cofferdam_proto::frame::{self, Channel};
use cofferdam_proto::guest::{self, Exec, Reply, Stdio, User};
use cofferdam_proto::node::{Answer, Call, EndReason, Message, Request, SandboxRecord, VERSION};
use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_seqpacket::UnixSeqpacket;
use tokio_seqpacket::ancillary::{AncillaryMessageWriter, OwnedAncillaryMessage};

pub(crate) struct Client {
    runtime: Runtime,
    socket: UnixSeqpacket,
    next: Cell<u64>,
}

/// What came of a command inside.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) output: String,
    pub(crate) code: Option<i32>,
}

impl Client {
    pub(crate) fn try_connect() -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let socket = runtime.block_on(UnixSeqpacket::connect("run/node.sock")).ok()?;
        let client = Self { runtime, socket, next: Cell::new(0) };
        client.send_only(Request::Hello { version: VERSION });
        // One connection too many is closed without a word.
        let (Message::Answer { answer, .. }, _) = client.try_message()? else { panic!("no answer") };
        assert!(matches!(*answer, Answer::Welcome { .. }), "{answer:?}");
        Some(client)
    }

    pub(crate) fn connect() -> Self {
        Self::try_connect().expect("a node that answers")
    }

    /// Waits for a node that has room for one more.
    pub(crate) fn wait() -> Self {
        let mut found = None;
        crate::bed::eventually("a node answers", || {
            found = Self::try_connect();
            found.is_some()
        });
        found.expect("found")
    }

    /// Asks and does not wait for the answer.
    pub(crate) fn send_only(&self, request: Request) {
        let id = self.next.replace(self.next.get() + 1);
        let bytes = serde_json::to_vec(&Call { id, request }).unwrap();
        // What the node makes of it shows in its answer.
        self.runtime.block_on(self.socket.send(&bytes)).ok();
    }

    pub(crate) fn ask(&self, request: Request) -> Answer {
        self.call(request, &[]).0
    }

    pub(crate) fn ask_with(&self, request: Request, fd: OwnedFd) -> Answer {
        self.call(request, &[fd.as_fd()]).0
    }

    fn call(&self, request: Request, fds: &[std::os::fd::BorrowedFd<'_>]) -> (Answer, Vec<OwnedFd>) {
        let id = self.next.replace(self.next.get() + 1);
        let bytes = serde_json::to_vec(&Call { id, request }).unwrap();
        let mut room = [0; 64];
        let mut ancillary = AncillaryMessageWriter::new(&mut room);
        ancillary.add_fds(fds.iter().copied()).unwrap();
        let parts = [IoSlice::new(&bytes)];
        let sent = self.socket.send_vectored_with_ancillary(&parts, &mut ancillary);
        self.runtime.block_on(sent).unwrap();
        loop {
            let (message, fds) = self.message();
            match message {
                Message::Answer { id: of, answer } => {
                    assert_eq!(of, id);
                    return (*answer, fds);
                }
                Message::Progress { .. } | Message::Ended { .. } => {}
            }
        }
    }

    fn message(&self) -> (Message, Vec<OwnedFd>) {
        self.try_message().expect("the node is there")
    }

    fn try_message(&self) -> Option<(Message, Vec<OwnedFd>)> {
        let (mut bytes, mut room) = (vec![0; 256 * 1024], [0; 64]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let received = self.runtime.block_on(async {
            let receive = self.socket.recv_vectored_with_ancillary(&mut parts, &mut room);
            tokio::time::timeout(Duration::from_secs(60), receive).await
        });
        let (info, ancillary) = received.expect("a message in time").ok()?;
        let mut fds = Vec::new();
        for message in ancillary.into_messages() {
            if let OwnedAncillaryMessage::FileDescriptors(found) = message {
                fds.extend(found);
            }
        }
        let length = info.bytes_read();
        let message = || serde_json::from_slice(&bytes[..length]).expect("a message of the node");
        (length > 0).then(|| (message(), fds))
    }

    /// The next end that is told unasked.
    pub(crate) fn ended(&self) -> (SandboxId, EndReason) {
        match self.message().0 {
            Message::Ended { sandbox, reason } => (sandbox, reason),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn create(&self, spec: cofferdam_core::SandboxSpec) -> SandboxRecord {
        match self.ask(Request::Create(Box::new(spec))) {
            Answer::Sandbox(record) => record,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn kill(&self, id: &SandboxId) {
        assert_eq!(self.ask(Request::Kill { sandbox: id.clone() }), Answer::Done);
    }

    pub(crate) fn list(&self) -> Vec<SandboxRecord> {
        match self.ask(Request::List { after: None }) {
            Answer::Sandboxes { sandboxes } => sandboxes,
            other => panic!("{other:?}"),
        }
    }

    /// A connection into a sandbox.
    pub(crate) fn dial(&self, id: &SandboxId) -> UnixStream {
        let (answer, mut fds) = self.call(Request::Dial { sandbox: id.clone() }, &[]);
        assert_eq!(answer, Answer::Done);
        let stream = UnixStream::from(fds.pop().expect("a connection"));
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Runs the probe in a sandbox to its end.
    pub(crate) fn probe(&self, id: &SandboxId, arguments: &[&str]) -> Ran {
        let mut socket = self.dial(id);
        let exec = Exec {
            cmd: "/probe".into(),
            args: arguments.iter().map(|text| (*text).to_owned()).collect(),
            env: Default::default(),
            cwd: Some("/".into()),
            user: User::Default,
            stdio: Stdio::NoInput,
            tag: None,
            timeout_ms: Some(60_000),
            kill_on_disconnect: false,
        };
        let call = guest::Call { version: guest::VERSION, request: guest::Request::Exec(exec) };
        socket.write_all(&frame::encode(Channel::Control, &guest::encode(&call)).unwrap()).unwrap();
        read_to_exit(&mut socket)
    }
}

fn read_to_exit(socket: &mut UnixStream) -> Ran {
    let mut output = Vec::new();
    loop {
        let mut header = [0; frame::HEADER_BYTES];
        socket.read_exact(&mut header).unwrap();
        let (channel, length) = frame::parse_header(header).unwrap();
        let mut payload = vec![0; length];
        socket.read_exact(&mut payload).unwrap();
        if channel != Channel::Control {
            output.extend(payload);
            continue;
        }
        match guest::decode::<Reply>("reply", &payload).unwrap() {
            Reply::Started { .. } => {}
            Reply::Exited(exit) => {
                return Ran { output: String::from_utf8_lossy(&output).into_owned(), code: exit.code };
            }
            other => panic!("{other:?}"),
        }
    }
}
