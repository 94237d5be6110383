//! Owns the one entrance: every request arrives here and goes to the control plane, to the envd surface of a sandbox,
//! or to a port of a sandbox. Tokens of sandboxes are checked here and in `api::e2b::envd`, nowhere else.

pub(crate) mod lifeline;
mod page;
mod proxy;
pub(crate) mod target;

use crate::api::e2b;
use crate::api::e2b::envd::{self, Envd};
use crate::app::{App, Caller, LiveSandbox, REQUEST};
use crate::http::{self as connections, Body, Breaker, Outcome, Service};
use axum::response::IntoResponse;
use cofferdam_core::{RequestId, SandboxId};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use page::{Audience, Refusal};
use target::{Address, Target};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// Serves both surfaces and the sandboxes on `listener` until `stop`; `native` is the router of the native API.
pub async fn serve(app: App, native: axum::Router, listener: TcpListener, stop: CancellationToken) {
    connections::serve(listener, Gateway::new(app, native), stop).await;
}

/// Header with the traffic token of a sandbox whose ports are private.
const TRAFFIC_TOKEN_HEADER: &str = "e2b-traffic-access-token";

/// Header of every answer, to find the request in the log.
const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The entrance. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Gateway {
    app: App,
    control: axum::Router,
    envd: Envd,
}

impl Gateway {
    /// An entrance to both control planes and to the sandboxes of `app`.
    fn new(app: App, native: axum::Router) -> Self {
        let control = native.merge(e2b::router(app.clone())).fallback(async || e2b::unknown());
        let envd = Envd::new(app.clone());
        Self { app, control, envd }
    }

    async fn route(&self, request: Request<Body>, breaker: Breaker) -> Outcome {
        if proxy::is_tunnel(&request) {
            return Ok(page::plain(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is not supported"));
        }
        match address(&request, self.app.domain()).target() {
            Err(error) => Ok(page::plain(StatusCode::BAD_REQUEST, &error.to_string())),
            Ok(Target::Control) => self.to_control(request, breaker).await,
            Ok(Target::Sandbox { id, port }) => match self.app.live(&id) {
                Some(sandbox) => self.to_sandbox(sandbox, port, request, breaker).await,
                None => Ok(gone(id, port, request.headers())),
            },
        }
    }

    async fn to_control(&self, request: Request<Body>, breaker: Breaker) -> Outcome {
        match self.envd.signed_for(&request) {
            Ok(None) => Ok(self.control.clone().oneshot(request).await?),
            Ok(Some(sandbox)) => self.to_sandbox(sandbox, envd::PORT, request, breaker).await,
            Err(refused) => Ok(envd::open_to_browsers(request.headers(), refused.into_response())),
        }
    }

    async fn to_sandbox(
        &self,
        sandbox: LiveSandbox,
        port: u16,
        request: Request<Body>,
        breaker: Breaker,
    ) -> Outcome {
        let ended = sandbox.ended().clone();
        let version = request.version();
        if port == envd::PORT {
            return lifeline::bind(ended, breaker, version, self.envd.answer(sandbox, request)).await;
        }
        let Some(caller) = admit(&sandbox, request.headers()) else {
            return Ok(Refusal::Forbidden(sandbox.id.clone()).respond(Audience::of(request.headers())));
        };
        let agent = self.app.agent_for(sandbox, caller);
        let work = proxy::forward(&agent, port, request, breaker.clone());
        lifeline::bind(ended, breaker, version, work).await
    }
}

impl Service for Gateway {
    async fn call(&self, request: Request<Body>, breaker: Breaker) -> Outcome {
        let id = RequestId::from_entropy(rand::random());
        let mut response = REQUEST.scope(id.clone(), self.route(request, breaker)).await?;
        if let Ok(value) = HeaderValue::from_str(id.as_str()) {
            response.headers_mut().entry(REQUEST_ID_HEADER).or_insert(value);
        }
        Ok(response)
    }
}

fn gone(id: SandboxId, port: u16, headers: &HeaderMap) -> Response<Body> {
    let response = Refusal::NotFound(id).respond(Audience::of(headers));
    if port == envd::PORT { envd::open_to_browsers(headers, response) } else { response }
}

fn address<'a>(request: &'a Request<Body>, domain: Option<&'a str>) -> Address<'a> {
    let text = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    let host = request.uri().authority().map(http::uri::Authority::as_str);
    let host = host.or_else(|| text(header::HOST.as_str())).unwrap_or_default();
    Address { host, domain, sandbox: text(target::SANDBOX_HEADER), port: text(target::PORT_HEADER) }
}

/// Who may use the ports of the sandbox: anybody, or only holders of its traffic token.
fn admit(sandbox: &LiveSandbox, headers: &HeaderMap) -> Option<Caller> {
    let Some(token) = &sandbox.traffic_token else { return Some(Caller::Anyone) };
    let came = headers.get(TRAFFIC_TOKEN_HEADER)?.to_str().ok()?;
    token.matches(came).then_some(Caller::Token)
}

#[cfg(test)]
mod tests;
