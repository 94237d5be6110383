//! Owns the few questions that the node itself asks an agent. Every answer is bounded, has a deadline and is treated as
//! hostile: it comes from inside the sandbox.

use crate::isolation::{BoxFuture, Live};
use cofferdam_proto::frame::{self, Channel, HEADER_BYTES};
use cofferdam_proto::guest::{self, Call, Configure, Failure, Reply, Request, VERSION};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout, timeout_at};

/// Longest answer that the node reads from an agent.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// How long an agent may take for one of these questions.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How long a connection may wait for its place in the queue of the agent.
const DIAL_DEADLINE: Duration = Duration::from_secs(2);
const DIAL_RETRY: Duration = Duration::from_millis(2);

/// An agent did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestError {
    /// No connection.
    #[error("connect to the agent")]
    Connect(#[source] io::Error),
    /// The connection broke.
    #[error("talk to the agent")]
    Talk(#[source] io::Error),
    /// No answer in time.
    #[error("the agent did not answer in time")]
    Deadline,
    /// An answer that breaks the protocol.
    #[error("the agent answered nonsense")]
    Nonsense,
    /// The agent refused.
    #[error("the agent refused")]
    Refused(#[source] Failure),
}

/// The node's side of an agent; a seam, because tests run without agents.
pub(crate) trait Guest: Send + Sync + 'static {
    /// Tells the agent who it is.
    fn configure<'a>(&'a self, live: &'a Live, configure: Configure)
    -> BoxFuture<'a, Result<(), GuestError>>;

    /// Asks for a sign of life.
    fn ping<'a>(&'a self, live: &'a Live) -> BoxFuture<'a, Result<(), GuestError>>;
}

/// Agents behind their sockets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agents;

impl Guest for Agents {
    fn configure<'a>(
        &'a self,
        live: &'a Live,
        configure: Configure,
    ) -> BoxFuture<'a, Result<(), GuestError>> {
        Box::pin(async { expect_ok(call(live.agent_socket(), Request::Configure(configure)).await?) })
    }

    fn ping<'a>(&'a self, live: &'a Live) -> BoxFuture<'a, Result<(), GuestError>> {
        Box::pin(async { expect_ok(call(live.agent_socket(), Request::Ping).await?) })
    }
}

/// Opens a connection to an agent. A full queue of the agent is waited for, a missing agent is not.
pub(crate) async fn dial(socket: &Path) -> Result<UnixStream, GuestError> {
    let deadline = Instant::now() + DIAL_DEADLINE;
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(GuestError::Connect(error)),
        }
        if timeout_at(deadline, tokio::time::sleep(DIAL_RETRY)).await.is_err() {
            return Err(GuestError::Deadline);
        }
    }
}

async fn call(socket: &Path, request: Request) -> Result<Reply, GuestError> {
    timeout(CALL_DEADLINE, async {
        let mut stream = dial(socket).await?;
        let message = guest::encode(&Call { version: VERSION, request });
        let bytes = frame::encode(Channel::Control, &message).map_err(|_| GuestError::Nonsense)?;
        stream.write_all(&bytes).await.map_err(GuestError::Talk)?;
        read_reply(&mut stream).await
    })
    .await
    .unwrap_or(Err(GuestError::Deadline))
}

async fn read_reply(stream: &mut (impl AsyncReadExt + Unpin)) -> Result<Reply, GuestError> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await.map_err(GuestError::Talk)?;
    let (channel, length) = frame::parse_header(header).map_err(|_| GuestError::Nonsense)?;
    if channel != Channel::Control || length > REPLY_BYTES_MAX {
        return Err(GuestError::Nonsense);
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.map_err(GuestError::Talk)?;
    guest::decode("reply", &payload).map_err(|_| GuestError::Nonsense)
}

fn expect_ok(reply: Reply) -> Result<(), GuestError> {
    match reply {
        Reply::Ok => Ok(()),
        Reply::Error(failure) => Err(GuestError::Refused(failure)),
        Reply::Started { .. }
        | Reply::Exited(_)
        | Reply::Processes { .. }
        | Reply::Entry { .. }
        | Reply::Entries { .. }
        | Reply::File { .. }
        | Reply::Event { .. }
        | Reply::Stats(_) => Err(GuestError::Nonsense),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::ErrorKind;
    use tokio::net::UnixListener;

    async fn answer_with(bytes: Vec<u8>) -> Result<Reply, GuestError> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let agent = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            let mut asked = [0; 64];
            let _got = stream.read(&mut asked).await;
        });
        let reply = call(&socket, Request::Ping).await;
        agent.await.unwrap();
        reply
    }

    #[tokio::test]
    async fn a_sound_answer_is_understood_and_a_refusal_keeps_its_words() {
        let ok = frame::encode(Channel::Control, &guest::encode(&Reply::Ok)).unwrap();
        assert_eq!(answer_with(ok).await.unwrap(), Reply::Ok);
        let failure =
            Failure { kind: ErrorKind::NotFound, message: "no".into(), reason: guest::Reason::UnknownUser };
        assert!(
            matches!(expect_ok(Reply::Error(failure.clone())), Err(GuestError::Refused(f)) if f == failure)
        );
    }

    #[tokio::test]
    async fn hostile_answers_are_errors() {
        let giant = vec![0xff, 0xff, 0xff, 0xff, 0];
        let long = frame::header(Channel::Control, REPLY_BYTES_MAX + 1).unwrap().to_vec();
        let wrong_channel = frame::encode(Channel::Stdout, b"{}").unwrap();
        let rubbish = frame::encode(Channel::Control, b"\xff\xfe").unwrap();
        for bytes in [giant, long, wrong_channel, rubbish] {
            assert!(matches!(answer_with(bytes).await, Err(GuestError::Nonsense)));
        }
        assert!(matches!(answer_with(vec![0, 0]).await, Err(GuestError::Talk(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_agent_costs_no_more_than_its_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(matches!(call(&socket, Request::Ping).await, Err(GuestError::Deadline)));
    }
}
