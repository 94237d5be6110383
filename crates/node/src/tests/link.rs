//! The socket between server and node, as a server sees it.

use crate::link::Door;
use crate::pool::PoolSize;
use crate::testbed::{Bed, archive, id};
use cofferdam_core::{ErrorKind, State};
use cofferdam_proto::node::{
    Answer, Call, EndReason, ImportFormat, ImportTemplate, Message, Request, VERSION,
};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;
use tokio_seqpacket::UnixSeqpacket;
use tokio_seqpacket::ancillary::AncillaryMessageWriter;

struct Server {
    socket: UnixSeqpacket,
}

impl Server {
    async fn connect(bed: &Bed) -> Self {
        Self { socket: UnixSeqpacket::connect(path(bed)).await.unwrap() }
    }

    async fn welcome(bed: &Bed) -> Self {
        let server = Self::connect(bed).await;
        server.send(0, Request::Hello { version: VERSION }).await;
        assert!(matches!(server.answer().await, (0, Answer::Welcome { version: VERSION, .. })));
        server
    }

    async fn send(&self, id: u64, request: Request) {
        let bytes = serde_json::to_vec(&Call { id, request }).unwrap();
        self.socket.send(&bytes).await.unwrap();
    }

    async fn send_with(&self, id: u64, request: Request, fd: impl AsFd) {
        let bytes = serde_json::to_vec(&Call { id, request }).unwrap();
        let mut room = [0; 64];
        let mut ancillary = AncillaryMessageWriter::new(&mut room);
        ancillary.add_fds([fd.as_fd()]).unwrap();
        let parts = [std::io::IoSlice::new(&bytes)];
        self.socket.send_vectored_with_ancillary(&parts, &mut ancillary).await.unwrap();
    }

    async fn message(&self) -> Option<Message> {
        let mut bytes = vec![0; 256 * 1024];
        let got = tokio::time::timeout(Duration::from_secs(20), self.socket.recv(&mut bytes)).await.unwrap();
        let length = got.map_or(0, |info| info.bytes_read());
        (length > 0).then(|| serde_json::from_slice(&bytes[..length]).unwrap())
    }

    async fn answer(&self) -> (u64, Answer) {
        loop {
            match self.message().await.expect("an answer") {
                Message::Answer { id, answer } => return (id, *answer),
                Message::Progress { .. } | Message::Ended { .. } => {}
            }
        }
    }
}

fn path(bed: &Bed) -> PathBuf {
    bed.dir.path().join("node.sock")
}

fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").unwrap().uid()
}

async fn open(uids: &[u32]) -> Bed {
    let mut bed = Bed::new(PoolSize { parked: 0, warm: 0 }).await;
    let door = Door { socket: path(&bed), uids: uids.to_vec(), gid: None };
    bed.node.as_mut().unwrap().open(door).unwrap();
    bed
}

#[tokio::test]
async fn calls_are_answered_out_of_order_and_ends_are_pushed_to_everyone() {
    let bed = open(&[own_uid()]).await;
    let (first, second) = (Server::welcome(&bed).await, Server::welcome(&bed).await);
    first.send(1, Request::Create(Box::new(bed.spec(1)))).await;
    first.send(2, Request::Capacity).await;
    let (quick, Answer::Capacity(_)) = first.answer().await else { panic!() };
    let (slow, Answer::Sandbox(record)) = first.answer().await else { panic!() };
    assert_eq!((quick, slow, record.state), (2, 1, State::Running));
    bed.driver.die(crate::isolation::Slot::new(0).unwrap(), 0);
    for server in [&first, &second] {
        let ended = Message::Ended { sandbox: id(1), reason: EndReason::AgentDied };
        assert_eq!(server.message().await, Some(ended));
    }
}

#[tokio::test]
async fn ends_that_nobody_heard_wait_for_the_next_server() {
    let bed = open(&[own_uid()]).await;
    bed.create(bed.spec(1)).await.unwrap();
    bed.driver.die(crate::isolation::Slot::new(0).unwrap(), 0);
    bed.eventually("cleaned up", |bed| bed.left() == (0, 0)).await;
    let server = Server::welcome(&bed).await;
    let ended = Message::Ended { sandbox: id(1), reason: EndReason::AgentDied };
    assert_eq!(server.message().await, Some(ended));
}

#[tokio::test]
async fn a_server_that_goes_away_cancels_nothing() {
    let bed = open(&[own_uid()]).await;
    let server = Server::welcome(&bed).await;
    server.send(1, Request::Create(Box::new(bed.spec(1)))).await;
    drop(server);
    let other = Server::welcome(&bed).await;
    bed.eventually("made all the same", |bed| !bed.guest.configured.lock().unwrap().is_empty()).await;
    other.send(1, Request::Create(Box::new(bed.spec(1)))).await;
    assert!(matches!(other.answer().await.1, Answer::Sandbox(record) if record.state == State::Running));
    assert_eq!(bed.driver.made(), 1);
}

#[tokio::test]
async fn strangers_are_refused() {
    let bed = open(&[own_uid() + 1]).await;
    let server = Server::connect(&bed).await;
    let bytes = serde_json::to_vec(&Call { id: 0, request: Request::Capacity }).unwrap();
    // The refusal may come before or after the bytes.
    let _sent = server.socket.send(&bytes).await;
    assert_eq!(server.message().await, None);
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_the_connection_and_only_that() {
    let bed = open(&[own_uid()]).await;
    let no_hello = Server::connect(&bed).await;
    no_hello.send(1, Request::Capacity).await;
    assert_eq!(no_hello.message().await, None);
    for bytes in [vec![b'{'; 10], vec![b' '; 200 * 1024], b"{\"id\":1,\"op\":\"nonsense\"}".to_vec()] {
        let server = Server::welcome(&bed).await;
        server.socket.send(&bytes).await.unwrap();
        assert_eq!(server.message().await, None);
    }
    let other_version = Server::connect(&bed).await;
    other_version.send(1, Request::Hello { version: 99 }).await;
    assert!(
        matches!(other_version.answer().await, (1, Answer::Failed(f)) if f.kind == ErrorKind::Unsupported)
    );
    assert_eq!(other_version.message().await, None);
    Server::welcome(&bed).await;
}

#[tokio::test]
async fn the_socket_is_closed_to_others_and_a_stale_one_is_replaced() {
    let mut bed = open(&[own_uid()]).await;
    assert_eq!(std::fs::metadata(path(&bed)).unwrap().permissions().mode() & 0o777, 0o660);
    bed.crash().await;
    bed.start();
    let door = Door { socket: path(&bed), uids: vec![own_uid()], gid: None };
    bed.node.as_mut().unwrap().open(door).unwrap();
    Server::welcome(&bed).await;
}

#[tokio::test]
async fn a_template_comes_through_a_pipe() {
    let bed = open(&[own_uid()]).await;
    let server = Server::welcome(&bed).await;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let import = ImportTemplate {
        template: "other".parse().unwrap(),
        name: "other".into(),
        format: ImportFormat::Rootfs,
    };
    server.send_with(1, Request::ImportTemplate(import.clone()), reader).await;
    let bytes = archive("through a pipe");
    tokio::task::spawn_blocking(move || writer.write_all(&bytes).unwrap()).await.unwrap();
    let (1, Answer::Template(info)) = server.answer().await else { panic!() };
    assert_eq!(info.name, "other");
    server.send(2, Request::ImportTemplate(import)).await;
    assert!(matches!(server.answer().await, (2, Answer::Failed(f)) if f.kind == ErrorKind::InvalidArgument));
}
