//! Owns the socket on which the server talks to the node: accepts the uids it was told, reads calls, runs each as a task of
//! its own, and writes answers and events. A connection that breaks the protocol or does not read is closed; what it asked
//! for goes on all the same.

use crate::events::Ended;
use crate::host::failure;
use crate::service::{Response, Service};
use crate::templates::{Progress, Step};
use cofferdam_core::{ErrorKind, limits::NODE_MESSAGE_BYTES_MAX};
use cofferdam_proto::node::{Answer, Call, Message, Request};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_seqpacket::ancillary::{AncillaryMessageWriter, OwnedAncillaryMessage};
use tokio_seqpacket::{UnixSeqpacket, UnixSeqpacketListener};

/// Connections at a time: the server's own, and old ones that are dying.
const CONNECTIONS_MAX: usize = 16;
/// Calls of one connection that are in flight; more are refused.
const CALLS_MAX: usize = 4096;
/// Messages that wait to be written to one connection.
const OUTGOING_MAX: usize = 1024;
/// How long the peer may take to read one message.
const WRITE_DEADLINE: Duration = Duration::from_secs(30);
/// How long a new connection may take to say hello.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Room for the ancillary data of one message: a few descriptors.
const ANCILLARY_BYTES: usize = 128;

/// Where the node listens, and for whom.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    pub(crate) socket: PathBuf,
    pub(crate) uids: Vec<u32>,
    /// Group that may connect; the owner is root.
    pub(crate) gid: Option<u32>,
}

struct Outgoing {
    bytes: Vec<u8>,
    fd: Option<OwnedFd>,
}

/// Makes the socket. A file that an earlier node left there is replaced.
pub(crate) fn bind(door: &Door) -> io::Result<UnixSeqpacketListener> {
    match std::fs::remove_file(&door.socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixSeqpacketListener::bind(&door.socket)?;
    if let Some(gid) = door.gid {
        std::os::unix::fs::chown(&door.socket, None, Some(gid))?;
    }
    std::fs::set_permissions(&door.socket, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Serves until it is dropped.
pub(crate) async fn serve(mut listener: UnixSeqpacketListener, door: Door, service: Arc<Service>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let socket = match listener.accept().await {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        if !is_welcome(&socket, &door) {
            continue;
        }
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            tracing::warn!("too many connections to the node; one was refused");
            continue;
        };
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            let end = converse(Arc::new(socket), service).await;
            tracing::info!(reason = end, "a server disconnected");
            drop(permit);
        });
    }
}

fn is_welcome(socket: &UnixSeqpacket, door: &Door) -> bool {
    match socket.peer_cred() {
        Ok(peer) if door.uids.contains(&peer.uid()) => true,
        Ok(peer) => {
            tracing::warn!(uid = peer.uid(), "a process of a uid that may not talk to the node was refused");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "a process whose uid is not known was refused");
            false
        }
    }
}

/// One connection, from hello to its end. Says why it ended.
async fn converse(socket: Arc<UnixSeqpacket>, service: Arc<Service>) -> &'static str {
    let (outgoing, queue) = mpsc::channel(OUTGOING_MAX);
    let mut buffer = vec![0; 1024];
    match timeout(HELLO_DEADLINE, receive(&socket, &mut buffer)).await {
        Ok(Ok(Some((Call { id, request: hello @ Request::Hello { .. } }, _)))) => {
            let response = service.handle(hello, None, Arc::new(|_| ())).await;
            let refused = matches!(response.answer, Answer::Failed(_));
            let first = encode_answer(id, response);
            if write(&socket, &first).await.is_err() || refused {
                return "the hello was refused";
            }
        }
        Ok(Ok(Some(_))) => return "it did not say hello",
        Ok(Ok(None)) => return "closed",
        Ok(Err(problem)) => return problem,
        Err(_) => return "it did not say hello in time",
    }
    // What was called goes on by itself when this ends; the answers have nowhere to go.
    tokio::select! {
        end = read_calls(&socket, &service, &outgoing) => end,
        end = write_queue(&socket, queue) => end,
        end = write_events(&service, &outgoing) => end,
    }
}

async fn read_calls(
    socket: &UnixSeqpacket,
    service: &Arc<Service>,
    outgoing: &mpsc::Sender<Outgoing>,
) -> &'static str {
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    let mut buffer = vec![0; NODE_MESSAGE_BYTES_MAX];
    loop {
        let (Call { id, request }, fd) = match receive(socket, &mut buffer).await {
            Ok(Some(call)) => call,
            Ok(None) => return "closed",
            Err(problem) => return problem,
        };
        let Ok(permit) = Arc::clone(&calls).try_acquire_owned() else {
            let refusal = failure(ErrorKind::ResourceExhausted, "too many calls are in flight");
            let response = Response { answer: Answer::Failed(refusal), fd: None };
            if outgoing.send(encode_answer(id, response)).await.is_err() {
                return "closed";
            }
            continue;
        };
        let (service, outgoing) = (Arc::clone(service), outgoing.clone());
        tokio::spawn(async move {
            let response = service.handle(request, fd, reporter(id, outgoing.clone())).await;
            if outgoing.send(encode_answer(id, response)).await.is_err() {
                tracing::debug!(id, "an answer came after the connection ended");
            }
            drop(permit);
        });
    }
}

/// Progress is news of the moment: when the queue is full, it is left out.
fn reporter(id: u64, outgoing: mpsc::Sender<Outgoing>) -> Progress {
    Arc::new(move |Step { step, done, total }| {
        let bytes = encode(&Message::Progress { id, step, done, total });
        if outgoing.try_send(Outgoing { bytes, fd: None }).is_err() {
            tracing::debug!(id, "a report of progress was left out");
        }
    })
}

async fn write_events(service: &Service, outgoing: &mpsc::Sender<Outgoing>) -> &'static str {
    let mut events = service.host.events.listen();
    while let Some(Ended { sandbox, reason }) = events.recv().await {
        let bytes = encode(&Message::Ended { sandbox, reason });
        if outgoing.send(Outgoing { bytes, fd: None }).await.is_err() {
            return "closed";
        }
    }
    "it read its events too slowly"
}

async fn write_queue(socket: &UnixSeqpacket, mut queue: mpsc::Receiver<Outgoing>) -> &'static str {
    while let Some(message) = queue.recv().await {
        if let Err(error) = write(socket, &message).await {
            tracing::debug!(%error, "cannot write to a server");
            return "it does not read";
        }
    }
    "closed"
}

async fn write(socket: &UnixSeqpacket, message: &Outgoing) -> io::Result<()> {
    let mut room = [0; ANCILLARY_BYTES];
    let mut ancillary = AncillaryMessageWriter::new(&mut room);
    if let Some(fd) = &message.fd {
        ancillary.add_fds([fd.as_fd()]).map_err(|_| io::Error::other("no room for a descriptor"))?;
    }
    let parts = [io::IoSlice::new(&message.bytes)];
    let send = socket.send_vectored_with_ancillary(&parts, &mut ancillary);
    match timeout(WRITE_DEADLINE, send).await {
        Ok(sent) => sent.map(drop),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

type Received = Option<(Call, Option<OwnedFd>)>;

/// The next call and the descriptor that came with it; `None` at the end of the connection.
async fn receive(socket: &UnixSeqpacket, buffer: &mut [u8]) -> Result<Received, &'static str> {
    let mut room = [0; ANCILLARY_BYTES];
    let received = {
        let mut parts = [io::IoSliceMut::new(buffer)];
        socket.recv_vectored_with_ancillary(&mut parts, &mut room).await
    };
    let (info, ancillary) = received.map_err(|error| {
        tracing::debug!(%error, "cannot read from a server");
        "the connection broke"
    })?;
    // Taken out first, so that they are closed whatever comes of the message.
    let mut fds: Vec<OwnedFd> = Vec::new();
    for message in ancillary.into_messages() {
        if let OwnedAncillaryMessage::FileDescriptors(found) = message {
            fds.extend(found);
        }
    }
    if info.bytes_read() == 0 {
        return Ok(None);
    }
    if info.truncated() || info.ancillary_truncated() || fds.len() > 1 {
        return Err("it sent a message that is too large, or too many descriptors");
    }
    let call = serde_json::from_slice(&buffer[..info.bytes_read()]).map_err(|error| {
        tracing::warn!(%error, "a malformed call");
        "it sent a malformed call"
    })?;
    Ok(Some((call, fds.pop())))
}

fn encode_answer(id: u64, response: Response) -> Outgoing {
    let Response { answer, fd } = response;
    let bytes = encode(&Message::Answer { id, answer: Box::new(answer) });
    if bytes.len() <= NODE_MESSAGE_BYTES_MAX {
        return Outgoing { bytes, fd };
    }
    tracing::error!(id, bytes = bytes.len(), "an answer exceeds the longest message");
    let answer = Answer::Failed(failure(ErrorKind::Internal, "the answer of the node is too long"));
    Outgoing { bytes: encode(&Message::Answer { id, answer: Box::new(answer) }), fd: None }
}

fn encode(message: &Message) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages have string keys and no failing serializer")
}

/// Removes the socket file, so that nobody waits in front of a closed door.
pub(crate) fn close(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(%error, "the socket of the node was gone already");
    }
}
