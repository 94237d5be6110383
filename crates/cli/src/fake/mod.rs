//! Owns the server that tests talk to: one sandbox `iabc`, whose commands follow a script and whose files are a
//! temporary directory. It checks the key and writes down what it was asked.

mod answers;

use crate::client::Client;
use crate::console::Console;
use cofferdam_core::secret::Secret;
use cofferdam_proto::api::{ApiError, ExecExit, ExecMessage, ExecRequest};
use futures::{SinkExt as _, StreamExt as _};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

pub(crate) const KEY: &str = "e2b_test";

/// What a command does.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    out: &'static str,
    err: &'static str,
    end: End,
}

#[derive(Debug, Clone)]
enum End {
    Exit(i32),
    Never,
    Break,
    Echo,
    Fail(ApiError),
}

impl Script {
    pub(crate) fn prints(out: &'static str, err: &'static str) -> Self {
        Self { out, err, end: End::Exit(0) }
    }

    pub(crate) fn exits(self, code: i32) -> Self {
        Self { end: End::Exit(code), ..self }
    }

    pub(crate) fn ignores_signals(self) -> Self {
        Self { end: End::Never, ..self }
    }

    pub(crate) fn breaks(self) -> Self {
        Self { end: End::Break, ..self }
    }

    pub(crate) fn fails(error: ApiError) -> Self {
        Self { out: "", err: "", end: End::Fail(error) }
    }

    /// Prints what it reads, and ends when its input ends.
    pub(crate) fn echoes() -> Self {
        Self { out: "", err: "", end: End::Echo }
    }
}

#[derive(Clone)]
pub(crate) struct Fake {
    inner: Arc<Inner>,
}

struct Inner {
    url: String,
    script: Script,
    seen: Mutex<Vec<String>>,
    first: Mutex<Option<ExecRequest>>,
    signal: Notify,
    files: TempDir,
}

impl Fake {
    pub(crate) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let inner = Inner {
            url: format!("http://{}", listener.local_addr().unwrap()),
            script,
            seen: Mutex::default(),
            first: Mutex::default(),
            signal: Notify::new(),
            files: tempfile::tempdir().unwrap(),
        };
        let fake = Self { inner: Arc::new(inner) };
        let server = fake.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(server.clone().serve(stream));
            }
        });
        fake
    }

    pub(crate) fn url(&self) -> &str {
        &self.inner.url
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.url(), Secret::new(KEY.into())).unwrap()
    }

    /// Methods and paths of all requests, in order.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.inner.seen.lock().unwrap().clone()
    }

    pub(crate) fn first_message(&self) -> ExecRequest {
        self.inner.first.lock().unwrap().clone().unwrap()
    }

    pub(crate) async fn wait_for_signal(&self) {
        self.inner.signal.notified().await;
    }

    /// Where the path of a sandbox is here.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.inner.files.path().join(path.trim_start_matches('/'))
    }

    fn note(&self, line: String) {
        self.inner.seen.lock().unwrap().push(line);
    }

    async fn serve(self, stream: TcpStream) {
        let mut start = [0; 256];
        let count = stream.peek(&mut start).await.unwrap_or(0);
        if String::from_utf8_lossy(&start[..count]).contains("/exec/stream ") {
            self.note("GET /v1/sandboxes/iabc/exec/stream".into());
            self.command(tokio_tungstenite::accept_async(stream).await.unwrap()).await;
        } else {
            self.answer(stream).await;
        }
    }

    async fn command(&self, mut socket: WebSocketStream<TcpStream>) {
        let first = socket.next().await.unwrap().unwrap().into_text().unwrap();
        *self.inner.first.lock().unwrap() = Some(serde_json::from_str(&first).unwrap());
        let script = &self.inner.script;
        if let End::Fail(error) = &script.end {
            return tell(&mut socket, &ExecMessage::Error(error.clone())).await;
        }
        tell(&mut socket, &ExecMessage::Started { pid: 7 }).await;
        output(&mut socket, 1, script.out.as_bytes()).await;
        output(&mut socket, 2, script.err.as_bytes()).await;
        let code = match script.end {
            End::Exit(code) => code,
            End::Break | End::Fail(_) => return,
            End::Never | End::Echo => {
                self.listen(&mut socket).await;
                0
            }
        };
        let exit = ExecExit { code: Some(code), signal: None, timed_out: false, duration_ms: 1 };
        tell(&mut socket, &ExecMessage::Exited(exit)).await;
    }

    /// Echoes input until it is closed, and counts signals.
    async fn listen(&self, socket: &mut WebSocketStream<TcpStream>) {
        while let Some(Ok(message)) = socket.next().await {
            match message {
                Message::Binary(bytes) if matches!(self.inner.script.end, End::Echo) => {
                    if bytes.is_empty() {
                        return;
                    }
                    output(socket, 1, &bytes).await;
                }
                Message::Text(_) => self.inner.signal.notify_one(),
                _ => {}
            }
        }
    }
}

async fn tell(socket: &mut WebSocketStream<TcpStream>, message: &ExecMessage) {
    socket.send(Message::text(serde_json::to_string(message).unwrap())).await.unwrap();
}

async fn output(socket: &mut WebSocketStream<TcpStream>, channel: u8, bytes: &[u8]) {
    if !bytes.is_empty() {
        let message: Vec<u8> = std::iter::once(channel).chain(bytes.iter().copied()).collect();
        socket.send(Message::binary(message)).await.unwrap();
    }
}

/// What a verb wrote.
#[derive(Clone, Default)]
pub(crate) struct Captured {
    out: Buffer,
    err: Buffer,
}

impl Captured {
    /// A console whose input is `input`.
    pub(crate) fn new(input: &'static [u8]) -> (Console, Self) {
        let captured = Self::default();
        (Console::new(input, captured.out.clone(), captured.err.clone()), captured)
    }

    pub(crate) fn out(&self) -> String {
        self.out.text()
    }

    pub(crate) fn err(&self) -> String {
        self.err.text()
    }

    pub(crate) async fn wait_for_out(&self, expected: &str) {
        while self.out() != expected {
            tokio::task::yield_now().await;
        }
    }
}

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
