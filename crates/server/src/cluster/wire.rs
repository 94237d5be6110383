//! Owns one connection to the node: packets out, packets in, and who waits for which answer.

use super::link::LinkError;
use cofferdam_core::SandboxId;
use cofferdam_core::limits::{NODE_CALLS_MAX, NODE_MESSAGE_BYTES_MAX};
use cofferdam_proto::node::{Answer, Call, EndReason, Message, Request};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};
use tokio_seqpacket::UnixSeqpacket;
use tokio_seqpacket::ancillary::{AncillaryMessageWriter, OwnedAncillaryMessage};

/// Room for the ancillary data of one packet.
const ANCILLARY_BYTES: usize = 128;

/// Progress of a long call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, for people.
    pub step: String,
    /// Bytes or items done.
    pub done: u64,
    /// Of how many, when known.
    pub total: Option<u64>,
}

/// An answer, and the descriptor that came with it.
pub(super) type Answered = (Answer, Option<OwnedFd>);

struct Waiting {
    answer: oneshot::Sender<Answered>,
    progress: Option<mpsc::Sender<Progress>>,
}

/// One connection.
pub(super) struct Connection {
    socket: UnixSeqpacket,
    next_id: AtomicU64,
    /// `None` once the connection is lost: nobody may begin to wait then.
    waiting: Mutex<Option<HashMap<u64, Waiting>>>,
}

/// Takes a waiter away when its caller goes away.
struct Registration<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.connection.waiting().as_mut() {
            waiting.remove(&self.id);
        }
    }
}

impl Connection {
    pub(super) async fn open(path: &Path) -> io::Result<Self> {
        let socket = UnixSeqpacket::connect(path).await?;
        let waiting = Mutex::new(Some(HashMap::new()));
        Ok(Self { socket, next_id: AtomicU64::new(1), waiting })
    }

    /// Sends a call and waits for its answer.
    pub(super) async fn call(
        &self,
        request: Request,
        descriptor: Option<BorrowedFd<'_>>,
        progress: Option<mpsc::Sender<Progress>>,
    ) -> Result<Answered, LinkError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let packet = serde_json::to_vec(&Call { id, request }).map_err(LinkError::Encode)?;
        if packet.len() > NODE_MESSAGE_BYTES_MAX {
            return Err(LinkError::TooLarge { bytes: packet.len() });
        }
        let (answer, answered) = oneshot::channel();
        let registration = self.register(id, Waiting { answer, progress })?;
        self.send(&packet, descriptor).await.map_err(|_| LinkError::Lost)?;
        let answer = answered.await.map_err(|_| LinkError::Lost);
        drop(registration);
        answer
    }

    /// True when no answer will come any more.
    pub(super) fn is_lost(&self) -> bool {
        self.waiting().is_none()
    }

    fn register(&self, id: u64, waiter: Waiting) -> Result<Registration<'_>, LinkError> {
        let mut waiting = self.waiting();
        let waiting = waiting.as_mut().ok_or(LinkError::Lost)?;
        if waiting.len() >= NODE_CALLS_MAX {
            return Err(LinkError::Busy);
        }
        waiting.insert(id, waiter);
        Ok(Registration { connection: self, id })
    }

    async fn send(&self, packet: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let sent = match descriptor {
            None => self.socket.send(packet).await?,
            Some(descriptor) => {
                let mut room = [0; ANCILLARY_BYTES];
                let mut ancillary = AncillaryMessageWriter::new(&mut room);
                ancillary.add_fds([descriptor]).map_err(|_| io::ErrorKind::InvalidInput)?;
                self.socket.send_with_ancillary(packet, &mut ancillary).await?
            }
        };
        if sent == packet.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Hands out what the node sends until the connection is lost; then everybody who waits learns it.
    pub(super) async fn receive(&self, ended: &mpsc::Sender<(SandboxId, EndReason)>) -> io::Error {
        let mut packet = vec![0; NODE_MESSAGE_BYTES_MAX];
        let lost = loop {
            match self.receive_one(&mut packet).await {
                Ok((Message::Ended { sandbox, reason }, _)) => {
                    if ended.send((sandbox, reason)).await.is_err() {
                        break io::ErrorKind::BrokenPipe.into();
                    }
                }
                Ok((message, descriptor)) => self.hand_out(message, descriptor),
                Err(error) => break error,
            }
        };
        *self.waiting() = None;
        lost
    }

    async fn receive_one(&self, packet: &mut [u8]) -> io::Result<(Message, Option<OwnedFd>)> {
        let mut room = [0; ANCILLARY_BYTES];
        let (info, ancillary) = self.socket.recv_with_ancillary(packet, &mut room).await?;
        let mut descriptors = Vec::new();
        for message in ancillary.into_messages() {
            if let OwnedAncillaryMessage::FileDescriptors(all) = message {
                descriptors.extend(all);
            }
        }
        if info.bytes_read() == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if info.truncated() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let message = serde_json::from_slice(&packet[..info.bytes_read()])?;
        Ok((message, descriptors.into_iter().next()))
    }

    fn hand_out(&self, message: Message, descriptor: Option<OwnedFd>) {
        let mut waiting = self.waiting();
        let Some(waiting) = waiting.as_mut() else { return };
        match message {
            Message::Answer { id, answer } => {
                if let Some(waiter) = waiting.remove(&id) {
                    // The caller may have gone away meanwhile; then nobody wants the answer.
                    drop(waiter.answer.send((*answer, descriptor)));
                }
            }
            Message::Progress { id, step, done, total } => {
                let progress = waiting.get(&id).and_then(|waiter| waiter.progress.as_ref());
                if let Some(progress) = progress {
                    // A slow reader misses steps; the answer is what counts.
                    drop(progress.try_send(Progress { step, done, total }));
                }
            }
            Message::Ended { .. } => {}
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Option<HashMap<u64, Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Borrows the descriptor of a call, if it has one.
pub(super) fn borrow(descriptor: Option<&OwnedFd>) -> Option<BorrowedFd<'_>> {
    descriptor.map(AsFd::as_fd)
}
