//! Owns the way of a request to a port of a sandbox and of the answer back: unbuffered, unchanged, upgrades included.
//! The connection comes from the agent, so a service that listens only on the sandbox's loopback is reached too.

use super::lifeline::await_news;
use super::page::{Audience, Refusal};
use crate::app::{Agent, AppError};
use crate::http::{Body, Breaker, Outcome};
use cofferdam_proto::guest::Reason;
use http::header::{CONNECTION, COOKIE, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

/// Waits between tries to reach a port: servers inside are often just starting.
const DIAL_WAITS_MS: [u64; 4] = [100, 200, 300, 400];
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// Passes a request on to `port` and the answer back.
pub(crate) async fn forward(
    agent: &Agent,
    port: u16,
    mut request: Request<Body>,
    breaker: Breaker,
) -> Outcome {
    let audience = Audience::of(request.headers());
    let inbound = request.version();
    let client = hyper::upgrade::on(&mut request);
    let sent = match dial(agent, port).await {
        Ok(stream) => send(stream, outbound(request)).await.map_err(|error| {
            tracing::debug!(%error, sandbox = %agent.sandbox().id, port, "no answer from a port");
            Refusal::NoAnswer(agent.sandbox().id.clone(), port)
        }),
        Err(refusal) => Err(refusal),
    };
    match sent {
        Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            Ok(switch(response, client, agent.sandbox().ended().clone(), breaker))
        }
        Ok(response) => Ok(returned(response, inbound)),
        Err(refusal) => Ok(refusal.respond(audience)),
    }
}

async fn dial(agent: &Agent, port: u16) -> Result<UnixStream, Refusal> {
    let id = || agent.sandbox().id.clone();
    let mut waits = DIAL_WAITS_MS.into_iter();
    loop {
        match agent.dial(port).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.reason() == Reason::PortClosed => match waits.next() {
                Some(wait) => tokio::time::sleep(Duration::from_millis(wait)).await,
                None => return Err(Refusal::PortClosed(id(), port)),
            },
            Err(AppError::SandboxEnded(_) | AppError::SandboxNotFound(_) | AppError::SandboxState { .. }) => {
                return Err(Refusal::NotFound(id()));
            }
            Err(error) => {
                tracing::warn!(error = error.log(), sandbox = %agent.sandbox().id, port, "dial into a sandbox");
                await_news(agent.sandbox().ended()).await;
                return Err(Refusal::Unreachable(id()));
            }
        }
    }
}

async fn send(stream: UnixStream, request: Request<Body>) -> hyper::Result<Response<hyper::body::Incoming>> {
    let (mut sender, connection) =
        http1::Builder::new().preserve_header_case(true).handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection to a port of a sandbox ended");
        }
    });
    sender.send_request(request).await
}

/// The request as an HTTP/1.1 server expects it.
fn outbound(request: Request<Body>) -> Request<Body> {
    let (mut parts, body) = request.into_parts();
    if !parts.headers.contains_key(HOST)
        && let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert(HOST, host);
    }
    if parts.version == Version::HTTP_2 {
        join_cookies(&mut parts.headers);
        parts.headers.remove(TE);
    }
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    parts.uri = Uri::from(path);
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    Request::from_parts(parts, body)
}

/// HTTP/2 may split cookies over several headers; HTTP/1.1 has one.
fn join_cookies(headers: &mut HeaderMap) {
    let all: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if all.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

/// The answer, without what was only between us and the service.
fn returned(response: Response<hyper::body::Incoming>, inbound: Version) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    for name in [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    if inbound == Version::HTTP_2 {
        parts.headers.remove(UPGRADE);
    }
    parts.version = inbound;
    Response::from_parts(parts, Body::new(body))
}

/// Joins both ends of an upgraded connection; the end of the sandbox resets the client's.
fn switch(
    mut response: Response<hyper::body::Incoming>,
    client: OnUpgrade,
    ended: CancellationToken,
    breaker: Breaker,
) -> Response<Body> {
    let service = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let joined = async {
            let (client, service) = tokio::try_join!(client, service).map_err(std::io::Error::other)?;
            tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(service)).await
        };
        // The branch itself breaks the connection: what is joined is dropped before any handler would run.
        let broken = async {
            ended.cancelled().await;
            breaker.break_now();
        };
        tokio::select! {
            biased;
            () = broken => {}
            copied = joined => if let Err(error) = copied {
                tracing::debug!(%error, "upgraded connection ended");
            },
        }
    });
    let (parts, _) = response.into_parts();
    Response::from_parts(parts, Body::empty())
}

/// True for a request that asks for a tunnel rather than for an object.
pub(crate) fn is_tunnel(request: &Request<Body>) -> bool {
    request.method() == Method::CONNECT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_keeps_its_path_and_query_and_gains_a_host() {
        let request = Request::builder()
            .version(Version::HTTP_2)
            .uri("http://80-iabc.x.test/a%2Fb?c=d")
            .header(COOKIE, "a=1")
            .header(COOKIE, "b=2")
            .body(Body::empty())
            .unwrap();
        let sent = outbound(request);
        assert_eq!(sent.uri(), "/a%2Fb?c=d");
        assert_eq!(sent.headers()[HOST], "80-iabc.x.test");
        assert_eq!(sent.headers()[COOKIE], "a=1; b=2");
        assert_eq!(sent.version(), Version::HTTP_11);
    }

    #[test]
    fn a_host_that_came_is_kept() {
        let request = Request::builder().uri("/").header(HOST, "localhost:3000").body(Body::empty()).unwrap();
        assert_eq!(outbound(request).headers()[HOST], "localhost:3000");
    }
}
