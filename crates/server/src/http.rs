//! Owns the client connections: the accept loop, HTTP/1.1 and clear-text HTTP/2, their limits, the orderly end of all
//! of them, and the disorderly end of one (a TCP reset when the sandbox behind it dies).
//!
//! Never looks into a request; `gateway` does.

use crate::unread::Unread;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Client connections at a time; further ones wait in the listener's backlog.
const CONNECTIONS_MAX: usize = 16_384;
/// How long a connection may take for a request head, the idle time before it included. Clients keep idle connections
/// for 300 seconds and must not find them closed when they use them again.
const HEAD_TIME: Duration = Duration::from_secs(330);
/// Longest request head, in bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Streams of one HTTP/2 connection at a time.
const STREAMS_MAX: u32 = 256;
/// How long open requests may go on after the server was asked to end.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Body of every answer.
pub(crate) type Body = axum::body::Body;

/// An answer, or the decision that the client must see a broken connection.
pub(crate) type Outcome = Result<http::Response<Body>, Cut>;

/// The connection behind a request has to be broken instead of answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sandbox ended")]
pub(crate) struct Cut;

/// Answers requests. `breaker` breaks the connection that the request came on.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    /// Answers one request.
    fn call(&self, request: http::Request<Body>, breaker: Breaker) -> impl Future<Output = Outcome> + Send;
}

/// Breaks one client connection: what is left of it is dropped, and the peer sees a reset rather than an end.
#[derive(Debug, Clone)]
pub(crate) struct Breaker {
    broken: Arc<AtomicBool>,
    cut: CancellationToken,
}

impl Breaker {
    pub(crate) fn new() -> Self {
        Self { broken: Arc::new(AtomicBool::new(false)), cut: CancellationToken::new() }
    }

    /// Breaks the connection now.
    pub(crate) fn break_now(&self) {
        self.broken.store(true, Ordering::Release);
        self.cut.cancel();
    }
}

/// Accepts connections until `stop`, then lets the open ones finish for a moment.
pub(crate) async fn serve(listener: TcpListener, service: impl Service, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let Some((stream, slot)) = accepted else { continue };
        let connection = connection(stream, service.clone(), stop.clone());
        connections.spawn(async move {
            connection.await;
            drop(slot);
        });
    }
    connections.close();
    if tokio::time::timeout(DRAIN_TIME, connections.wait()).await.is_err() {
        tracing::info!(open = connections.len(), "closed connections that did not finish in time");
    }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, slot)),
        Err(error) if is_of_the_peer(&error) => None,
        Err(error) => {
            tracing::warn!(%error, "accept failed");
            tokio::time::sleep(ACCEPT_BACKOFF).await;
            None
        }
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(stream: TcpStream, service: impl Service, stop: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "set TCP_NODELAY");
    }
    let breaker = Breaker::new();
    let wire = Wire { stream, broken: Arc::clone(&breaker.broken) };
    let answer = {
        let breaker = breaker.clone();
        hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let (service, breaker) = (service.clone(), breaker.clone());
            async move { service.call(request.map(|body| Body::new(Unread::new(body))), breaker).await }
        })
    };
    let builder = protocol();
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(wire), answer);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = breaker.cut.cancelled() => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = &mut connection => ended,
                () = breaker.cut.cancelled() => return,
                () = tokio::time::sleep(DRAIN_TIME) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "client connection ended");
    }
}

fn protocol() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES_MAX)
        .half_close(false)
        .pipeline_flush(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(Duration::from_secs(60))
        .keep_alive_timeout(Duration::from_secs(60))
        .initial_stream_window_size(1024 * 1024)
        .initial_connection_window_size(4 * 1024 * 1024);
    builder
}

/// A client's stream that ends with a reset when its breaker was used.
struct Wire {
    stream: TcpStream,
    broken: Arc<AtomicBool>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.broken.load(Ordering::Acquire)
            && let Err(error) = self.stream.set_zero_linger()
        {
            tracing::warn!(%error, "reset of a client connection");
        }
    }
}

impl Wire {
    fn check(&self) -> io::Result<()> {
        if self.broken.load(Ordering::Acquire) { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// A broken connection must not say goodbye first.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.check().is_err() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A service that cannot fail is one that never breaks a connection.
impl From<Infallible> for Cut {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::lifeline;
    use bytes::Bytes;
    use futures::StreamExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Answers `/endless` with a body that goes on until `ended`, `/never` not at all, and the rest at once.
    #[derive(Clone)]
    struct Inside {
        ended: CancellationToken,
    }

    impl Service for Inside {
        async fn call(&self, request: http::Request<Body>, breaker: Breaker) -> Outcome {
            let (path, version) = (request.uri().path().to_owned(), request.version());
            let work = async {
                match path.as_str() {
                    "/endless" => {
                        let pieces =
                            futures::stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"piece"))]);
                        Ok(http::Response::new(Body::from_stream(pieces.chain(futures::stream::pending()))))
                    }
                    "/never" => std::future::pending().await,
                    _ => Ok(http::Response::new(Body::from("done"))),
                }
            };
            lifeline::bind(self.ended.clone(), breaker, version, work).await
        }
    }

    struct World {
        address: std::net::SocketAddr,
        ended: CancellationToken,
        stop: CancellationToken,
    }

    impl World {
        async fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let (ended, stop) = (CancellationToken::new(), CancellationToken::new());
            let address = listener.local_addr().unwrap();
            tokio::spawn(serve(listener, Inside { ended: ended.clone() }, stop.clone()));
            Self { address, ended, stop }
        }

        async fn send(&self, text: &str) -> TcpStream {
            let mut stream = TcpStream::connect(self.address).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream
        }
    }

    async fn rest(mut stream: TcpStream) -> io::Result<String> {
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    #[tokio::test]
    async fn the_end_of_a_sandbox_resets_a_stream() {
        let world = World::new().await;
        let mut stream = world.send("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut seen = Vec::new();
        while !seen.ends_with(b"piece\r\n") {
            assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0);
        }
        world.ended.cancel();
        assert_eq!(rest(stream).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn the_end_of_a_sandbox_resets_a_request_that_waits() {
        let world = World::new().await;
        let never = world.send("GET /never HTTP/1.1\r\nHost: x\r\n\r\n").await;
        // An answer on another connection says that the server is past accepting the first.
        let other = world.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(rest(other).await.unwrap().ends_with("done"));
        world.ended.cancel();
        assert_eq!(rest(never).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_connection_without_a_request_in_it_is_left_alone() {
        let world = World::new().await;
        let mut stream = world.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut seen = Vec::new();
        while !seen.ends_with(b"done") {
            assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0);
        }
        world.stop.cancel();
        assert_eq!(rest(stream).await.unwrap(), "", "an orderly end");
    }

    #[tokio::test]
    async fn heads_are_bounded() {
        let world = World::new().await;
        let many: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
        let answer =
            rest(world.send(&format!("GET / HTTP/1.1\r\nHost: x\r\n{many}\r\n")).await).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
        let answer = rest(world.send("GET / HTTP/9.9\r\n\r\n").await).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
}
