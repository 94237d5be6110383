//! Owns the WebSocket of one streaming command: opening it, what goes in, what comes out.

use super::Client;
use super::dial::{Dialer, Wire};
use crate::error::Error;
use bytes::Bytes;
use cofferdam_core::SandboxId;
use cofferdam_proto::api::{ApiError, ExecExit, ExecMessage, ExecRequest};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

/// Longest message that is taken from the server.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Where output belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Standard output, or a terminal.
    Out,
    /// Standard error.
    Err,
}

/// What the server says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Started,
    Output(Channel, Bytes),
    Exited(ExecExit),
    Failed(ApiError),
}

/// What the server hears.
#[derive(Debug)]
pub(crate) enum Input {
    /// Bytes for standard input or the terminal; empty closes it.
    Bytes(Bytes),
    /// A new size of the terminal, or a signal.
    Control(ExecMessage),
}

/// The half that sends.
pub(crate) struct Sender(SplitSink<WebSocketStream<Wire>, Message>);

/// The half that receives.
pub(crate) struct Receiver {
    stream: SplitStream<WebSocketStream<Wire>>,
    what: String,
}

impl Client {
    /// Starts a command whose streams are carried live.
    pub(crate) async fn exec_stream(
        &self,
        id: &SandboxId,
        request: &ExecRequest,
    ) -> Result<(Sender, Receiver), Error> {
        let path = format!("/v1/sandboxes/{id}/exec/stream");
        let what = format!("command in sandbox {id}");
        let mut socket = self.websocket(&path, &what).await?;
        let first = serde_json::to_string(request).expect("API types have string keys");
        let sent = socket.send(Message::text(first)).await;
        sent.map_err(|source| Error::Broken { what: what.clone(), source: source.into() })?;
        let (sink, stream) = socket.split();
        Ok((Sender(sink), Receiver { stream, what }))
    }

    async fn websocket(&self, path: &str, what: &str) -> Result<WebSocketStream<Wire>, Error> {
        let unreachable = |source| Error::Unreachable { url: self.target().url().to_owned(), source };
        let usage = |error: &dyn std::fmt::Display| Error::Usage(format!("`{path}`: {error}"));
        let wire = Dialer::new(self.target())?.dial().await.map_err(|e| unreachable(e.into()))?;
        let uri = self.target().websocket_uri(path);
        let mut request = uri.into_client_request().map_err(|e| usage(&e))?;
        let key = self.key().expose().parse().map_err(|e: http::header::InvalidHeaderValue| usage(&e))?;
        request.headers_mut().insert(super::API_KEY_HEADER, key);
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        match tokio_tungstenite::client_async_with_config(request, wire, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::Error::Http(response)) => self.not_upgraded(path, *response).await,
            Err(source) => Err(Error::Broken { what: what.to_owned(), source: source.into() }),
        }
    }

    /// The refusal of a WebSocket. Its body may be cut short; then the sandbox is asked for by a plain request, which
    /// is refused for the same reason.
    async fn not_upgraded<T>(
        &self,
        path: &str,
        response: http::Response<Option<Vec<u8>>>,
    ) -> Result<T, Error> {
        let error = self.refusal(response.status(), response.body().as_deref().unwrap_or_default());
        if matches!(error, Error::Foreign { .. })
            && let Some(sandbox) = path.strip_suffix("/exec/stream")
        {
            self.get::<serde_json::Value>(sandbox).await?;
        }
        Err(error)
    }
}

impl Sender {
    pub(crate) async fn send(&mut self, input: Input) -> Result<(), tungstenite::Error> {
        let message = match input {
            Input::Bytes(bytes) => Message::Binary(bytes),
            Input::Control(message) => {
                Message::text(serde_json::to_string(&message).expect("API types have string keys"))
            }
        };
        self.0.send(message).await
    }
}

impl Receiver {
    /// The next event. The connection ending before the command is an error.
    pub(crate) async fn next(&mut self) -> Result<Event, Error> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => {
                    if let Some(event) = self.control(&text)? {
                        return Ok(event);
                    }
                }
                Some(Ok(Message::Binary(bytes))) => return self.output(bytes),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(frame))) => {
                    let why = frame.map_or_else(String::new, |frame| format!(": {}", frame.reason));
                    return Err(self.broken(format!("it was closed before the command ended{why}")));
                }
                Some(Err(error)) => return Err(self.broken(error)),
                None => return Err(self.broken("it ended before the command")),
            }
        }
    }

    fn control(&self, text: &str) -> Result<Option<Event>, Error> {
        let message: ExecMessage = super::parse(&self.what, text.as_bytes())?;
        Ok(match message {
            ExecMessage::Started { .. } => Some(Event::Started),
            ExecMessage::Exited(exit) => Some(Event::Exited(exit)),
            ExecMessage::Error(error) => Some(Event::Failed(error)),
            ExecMessage::Resize(_) | ExecMessage::Signal { .. } => None,
        })
    }

    fn output(&self, bytes: Bytes) -> Result<Event, Error> {
        let channel = match bytes.first() {
            Some(1 | 4) => Channel::Out,
            Some(2) => Channel::Err,
            _ => return Err(self.broken("output on an unknown channel")),
        };
        Ok(Event::Output(channel, bytes.slice(1..)))
    }

    fn broken(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Broken { what: self.what.clone(), source: source.into() }
    }
}
