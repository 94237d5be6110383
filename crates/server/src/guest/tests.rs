//! The client against agents that say what no agent should.

use super::*;
use cofferdam_core::ErrorKind;
use cofferdam_proto::frame::{Channel, encode};
use cofferdam_proto::guest::{self as proto, Path, Reason, Reply, User};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// An agent that reads the request, says `bytes` in pieces, and closes the connection.
fn agent(bytes: Vec<u8>, piece: usize) -> UnixStream {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    tokio::spawn(async move {
        let mut request = [0; 4096];
        let _read = theirs.read(&mut request).await?;
        for part in bytes.chunks(piece) {
            theirs.write_all(part).await?;
            tokio::task::yield_now().await;
        }
        theirs.shutdown().await
    });
    ours
}

fn says(replies: &[(Channel, Vec<u8>)]) -> Vec<u8> {
    replies.iter().flat_map(|(channel, payload)| encode(*channel, payload).unwrap()).collect()
}

fn reply(reply: &Reply) -> (Channel, Vec<u8>) {
    (Channel::Control, proto::encode(reply))
}

fn path() -> Path {
    Path { path: "/x".to_owned(), user: User::Default }
}

fn entry() -> proto::Entry {
    let json = serde_json::json!({ "name": "x", "path": "/x", "file_type": "file", "target_type": null,
        "target": null, "size": 3, "mode": 420, "uid": 0, "gid": 0, "owner": "root", "group": "root",
        "modified_us": 0 });
    serde_json::from_value(json).unwrap()
}

#[tokio::test]
async fn frames_arrive_whole_whatever_the_pieces() {
    for piece in [1, 2, 7, 1000] {
        let bytes = says(&[
            reply(&Reply::File { entry: entry(), length: 7 }),
            (Channel::File, b"abc".to_vec()),
            (Channel::File, b"defg".to_vec()),
            (Channel::File, Vec::new()),
        ]);
        let mut file = read(agent(bytes, piece), path(), 0, None).await.unwrap();
        let mut content = Vec::new();
        while let Some(bytes) = file.next().await.unwrap() {
            content.extend_from_slice(&bytes);
        }
        assert_eq!(content, b"abcdefg");
    }
}

#[tokio::test]
async fn more_than_was_announced_is_refused() {
    let bytes = says(&[reply(&Reply::File { entry: entry(), length: 2 }), (Channel::File, b"abc".to_vec())]);
    let mut file = read(agent(bytes, 100), path(), 0, None).await.unwrap();
    assert!(matches!(file.next().await, Err(GuestError::Unexpected { .. })));
}

#[tokio::test]
async fn an_end_in_the_middle_is_no_end() {
    let bytes = says(&[reply(&Reply::File { entry: entry(), length: 3 }), (Channel::File, b"a".to_vec())]);
    let mut file = read(agent(bytes, 100), path(), 0, None).await.unwrap();
    assert_eq!(file.next().await.unwrap().unwrap(), "a");
    assert!(matches!(file.next().await, Err(GuestError::Closed)));
    let mut cut = says(&[reply(&Reply::Ok)]);
    cut.pop();
    assert!(matches!(remove(agent(cut, 100), path()).await, Err(GuestError::Closed)));
    assert!(matches!(remove(agent(Vec::new(), 100), path()).await, Err(GuestError::Closed)));
}

#[tokio::test]
async fn an_announced_length_beyond_the_bound_is_refused_at_once() {
    let bytes = vec![0xff, 0xff, 0xff, 0xff, Channel::Control as u8];
    assert!(matches!(stat(agent(bytes, 100), path()).await, Err(GuestError::Frame(_))));
}

#[tokio::test]
async fn the_words_of_a_failure_are_cut_and_cleaned() {
    let message = format!("no\n\u{1b}[31m{}", "x".repeat(5000));
    let failure = proto::Failure { kind: ErrorKind::NotFound, message, reason: Reason::None };
    let bytes = says(&[reply(&Reply::Error(failure))]);
    let Err(GuestError::Failed(failure)) = stat(agent(bytes, 100), path()).await else {
        panic!("no failure")
    };
    assert_eq!(failure.message.chars().count(), 1024);
    assert!(failure.message.starts_with("no\u{fffd}\u{fffd}[31mx"));
}

#[tokio::test]
async fn a_listing_without_an_end_is_bounded() {
    let part = reply(&Reply::Entries { entries: vec![entry(); 3000] });
    let bytes = says(&vec![part; 40]);
    assert!(matches!(list_dir(agent(bytes, 65_536), path(), 1).await, Err(GuestError::Unexpected { .. })));
}

#[tokio::test]
async fn the_wrong_kind_of_answer_is_an_error() {
    let bytes = || says(&[reply(&Reply::Started { pid: 1 })]);
    assert!(matches!(stat(agent(bytes(), 100), path()).await, Err(GuestError::Unexpected { .. })));
    assert!(matches!(list(agent(bytes(), 100)).await, Err(GuestError::Unexpected { .. })));
    assert!(matches!(dial(agent(bytes(), 100), 80).await, Err(GuestError::Unexpected { .. })));
    let data = says(&[(Channel::Stdout, b"x".to_vec())]);
    assert!(matches!(ping(agent(data, 100)).await, Err(GuestError::Unexpected { .. })));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_of_an_agent_bring_the_client_down(bytes in prop::collection::vec(any::<u8>(), 0..400), lead in 0_usize..3) {
        let mut said = match lead {
            0 => Vec::new(),
            1 => says(&[reply(&Reply::Started { pid: 1 })]),
            _ => says(&[reply(&Reply::File { entry: entry(), length: 100 })]),
        };
        said.extend(bytes);
        runtime().block_on(async {
            if let Ok(mut session) = attach(agent(said.clone(), 50), proto::Selector::Pid(1)).await {
                while let Ok(Some(_)) = session.output.next().await {}
            }
            if let Ok(mut file) = read(agent(said.clone(), 50), path(), 0, None).await {
                while let Ok(Some(_)) = file.next().await {}
            }
            drop(list_dir(agent(said, 50), path(), 1).await);
        });
    }
}
