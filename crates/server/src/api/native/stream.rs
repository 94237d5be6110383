//! Owns running a command over a WebSocket: the first message says what to run, then bytes go both ways until it ends.
//! When the client goes away, the command and all it started is killed.

use super::answer::{Answer, Problem};
use super::ask::{Id, Who, parse};
use super::exec::{to_exec, to_exit};
use crate::app::{Agent, App, AppError, Command, REQUEST};
use crate::guest::{GuestError, Output, SessionInput};
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use cofferdam_core::limits::API_BODY_BYTES_MAX;
use cofferdam_proto::api::{ExecMessage, ExecRequest};
use cofferdam_proto::guest::{PtySize, SignalScope, Stdio};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use std::time::Duration;

/// How long the first message may take.
const FIRST_MESSAGE_TIME: Duration = Duration::from_secs(30);
/// How often a silent client is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);

type Sink = SplitSink<WebSocket, Message>;
type Source = SplitStream<WebSocket>;

pub(super) async fn open(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let agent = app.agent(&actor, &id).await?;
    agent.may_exec()?;
    let upgrade = upgrade.map_err(|error| Problem::bad_request(error.body_text()))?;
    let upgrade = upgrade.max_message_size(API_BODY_BYTES_MAX).max_frame_size(API_BODY_BYTES_MAX);
    let request = REQUEST.try_with(Clone::clone).ok();
    Ok(upgrade.on_upgrade(async move |socket| match request {
        Some(request) => REQUEST.scope(request, serve(agent, socket)).await,
        None => serve(agent, socket).await,
    }))
}

async fn serve(agent: Agent, socket: WebSocket) {
    let (mut sink, mut source) = socket.split();
    let last = match start(&agent, &mut source).await {
        Ok(None) => return,
        Ok(Some(command)) => follow(command, &mut sink, source).await,
        Err(problem) => Some(ExecMessage::Error(problem.into_body())),
    };
    if let Some(last) = last {
        end(&mut sink, &last).await;
    }
}

/// Says the last word and closes. A client that does not hear it any more needs nothing.
async fn end(sink: &mut Sink, last: &ExecMessage) {
    let close = CloseFrame { code: close_code::NORMAL, reason: "".into() };
    let said = async {
        sink.send(text(last)).await?;
        sink.send(Message::Close(Some(close))).await
    };
    if let Err(error) = said.await {
        tracing::debug!(%error, "client of a command went away at its end");
    }
}

/// Runs what the first message says; `None` when there is no first message.
async fn start(agent: &Agent, source: &mut Source) -> Answer<Option<Command>> {
    let first = tokio::time::timeout(FIRST_MESSAGE_TIME, source.next()).await;
    let text = match first {
        Ok(Some(Ok(Message::Text(text)))) => text,
        Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => return Ok(None),
        Ok(Some(Ok(_))) | Err(_) => {
            return Err(Problem::bad_request("the first message must be text that says what to run"));
        }
    };
    let request: ExecRequest = parse(text.as_bytes())?;
    if request.stdin.is_some() {
        return Err(Problem::bad_request("`stdin` is for `/exec`; send binary messages here"));
    }
    let stdio = match request.pty {
        None => Stdio::Pipes,
        Some(size) => Stdio::Pty(PtySize { cols: size.cols, rows: size.rows }),
    };
    Ok(Some(agent.exec(to_exec(request, stdio)?).await?))
}

/// Carries bytes both ways until the command ends; `None` when the client goes first.
async fn follow(mut command: Command, sink: &mut Sink, source: Source) -> Option<ExecMessage> {
    let input = command.input();
    tokio::select! {
        last = give(&mut command, sink) => last,
        () = take(&input, source) => None,
    }
}

async fn give(command: &mut Command, sink: &mut Sink) -> Option<ExecMessage> {
    let mut ping = tokio::time::interval(PING_EVERY);
    ping.reset();
    sink.send(text(&ExecMessage::Started { pid: command.pid() })).await.ok()?;
    loop {
        let message = tokio::select! {
            next = command.next() => match next {
                Ok(Some(Output::Stdout(bytes))) => marked(1, &bytes),
                Ok(Some(Output::Stderr(bytes))) => marked(2, &bytes),
                Ok(Some(Output::Pty(bytes))) => marked(4, &bytes),
                Ok(Some(Output::Exited(exit))) => return Some(ExecMessage::Exited(to_exit(&exit))),
                Ok(None) => return Some(failed(GuestError::Closed.into())),
                Err(error) => return Some(failed(error)),
            },
            _ = ping.tick() => Message::Ping(Bytes::new()),
        };
        sink.send(message).await.ok()?;
    }
}

fn failed(error: AppError) -> ExecMessage {
    ExecMessage::Error(Problem::from(error).into_body())
}

/// Carries what the client sends until it goes away. A command that does not want it gets no more of it.
async fn take(input: &SessionInput, mut source: Source) {
    while let Some(Ok(message)) = source.next().await {
        let taken = match message {
            Message::Binary(bytes) if bytes.is_empty() => input.close().await,
            Message::Binary(bytes) => input.write(&bytes).await,
            Message::Text(text) => control(input, text.as_bytes()).await,
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if let Err(error) = taken {
            tracing::debug!(%error, "input for a command");
        }
    }
}

async fn control(input: &SessionInput, text: &[u8]) -> Result<(), GuestError> {
    match serde_json::from_slice(text) {
        Ok(ExecMessage::Resize(size)) => input.resize(PtySize { cols: size.cols, rows: size.rows }).await,
        Ok(ExecMessage::Signal { signal }) => input.signal(signal, SignalScope::Process).await,
        Ok(ExecMessage::Started { .. } | ExecMessage::Exited(_) | ExecMessage::Error(_)) | Err(_) => {
            Err(GuestError::Unexpected { expected: "`resize` or `signal`" })
        }
    }
}

fn marked(mark: u8, bytes: &[u8]) -> Message {
    let mut message = BytesMut::with_capacity(1 + bytes.len());
    message.put_u8(mark);
    message.put_slice(bytes);
    Message::Binary(message.freeze())
}

fn text(message: &ExecMessage) -> Message {
    Message::text(serde_json::to_string(message).expect("API types have text keys"))
}
