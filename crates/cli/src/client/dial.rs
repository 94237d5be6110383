//! Owns addresses of servers and connections to them: TCP, or TLS over TCP when the address says `https`. What TLS
//! needs (a crypto provider, the roots of this machine) is loaded only then, so that plain starts stay cheap.

use crate::error::Error;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    url: String,
    host: String,
    port: u16,
    tls: bool,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Usage(format!(
                "`{url}` is no address of a server: expected http://HOST[:PORT] or https://HOST[:PORT]"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Ok(Self { url: url.trim_end_matches('/').to_owned(), host, port, tls })
    }

    /// The address as it was given, without a slash at its end.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The address of `path`.
    pub(crate) fn uri(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// The address of `path` for a WebSocket.
    pub(crate) fn websocket_uri(&self, path: &str) -> String {
        format!("ws{}{path}", self.url.trim_start_matches("http"))
    }
}

/// Opens connections to one server.
#[derive(Clone)]
pub(crate) struct Dialer {
    host: Arc<str>,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Dialer {
    pub(crate) fn new(target: &Target) -> Result<Self, Error> {
        let tls = if target.tls { Some(tls(&target.host)?) } else { None };
        Ok(Self { host: target.host.as_str().into(), port: target.port, tls })
    }

    pub(crate) async fn dial(&self) -> io::Result<Wire> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.dial_slowly()).await {
            Ok(result) => result,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within 10 s")),
        }
    }

    async fn dial_slowly(&self) -> io::Result<Wire> {
        let stream = TcpStream::connect((&*self.host, self.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Wire(Box::pin(stream))),
            Some((connector, name)) => Ok(Wire(Box::pin(connector.connect(name.clone(), stream).await?))),
        }
    }
}

fn tls(host: &str) -> Result<(TlsConnector, ServerName<'static>), Error> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| Error::Usage(format!("`{host}` is no name that a certificate can have")))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Usage(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), name))
}

impl tower::Service<Uri> for Dialer {
    type Response = TokioIo<Wire>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Wire>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialer = self.clone();
        Box::pin(async move { dialer.dial().await.map(TokioIo::new) })
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// A connection, whatever it is made of.
pub(crate) struct Wire(Pin<Box<dyn Duplex>>);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.as_mut().poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Option<(&str, u16, bool)>) {
        let found = Target::parse(url).ok();
        let found = found.as_ref().map(|target| (target.host.as_str(), target.port, target.tls));
        assert_eq!(found, expected, "{url}");
    }

    #[test]
    fn addresses() {
        check("http://127.0.0.1:3000", Some(("127.0.0.1", 3000, false)));
        check("http://[::1]:3000/", Some(("::1", 3000, false)));
        check("https://box.example", Some(("box.example", 443, true)));
        for url in ["", "127.0.0.1:3000", "ftp://x", "http://", "unix:/x"] {
            check(url, None);
        }
    }

    #[test]
    fn websocket_addresses_follow_the_scheme() {
        let target = Target::parse("https://h/base/").unwrap();
        assert_eq!(target.websocket_uri("/v1/x"), "wss://h/base/v1/x");
    }
}
