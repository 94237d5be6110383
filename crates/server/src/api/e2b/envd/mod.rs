//! Owns the envd surface: what E2B's daemon inside a sandbox would answer on its port is answered here, by operations of
//! our own agent. Checks the access token of the sandbox before anything else happens.
//!
//! ```text
//!  Gateway ─ LiveSandbox ─▶ Envd::answer ─ token ─▶ /process.Process/*, /filesystem.Filesystem/*   (Connect)
//!                                                   /files, /files/compose, /health, /metrics, /envs
//! ```

mod disposition;
mod download;
mod encoding;
mod entry;
mod feed;
mod files;
mod filesystem;
mod metadata;
mod mime;
mod process;
mod range;
mod session;
mod signature;
mod stats;
mod upload;
mod user;
mod watch;

use super::cors;
use super::error::Error;
use super::wire;
use crate::app::{App, Caller, LiveSandbox};
use crate::http::{Body, Outcome};
use axum::response::IntoResponse;
use cofferdam_core::secret::Secret;
use connectrpc::{ConnectError, ConnectRpcService, Limits};
use files::FileQuery;
use filesystem::FilesystemService;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use process::ProcessService;
use session::Session;
use signature::{Operation, Unauthorized};
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceExt;

/// The port that clients expect the daemon on.
pub(crate) const PORT: u16 = 49983;
/// The version of the daemon whose behaviour this is; clients switch features by it.
pub(crate) const VERSION: &str = "0.6.13";

/// What only the host may ask of the original daemon; from outside it does not exist, with a token or without.
const INTERNAL: [&str; 7] =
    ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"];
const TOKEN_HEADER: &str = "x-access-token";
const TIMEOUT_HEADER: &str = "connect-timeout-ms";
/// Largest message of a Connect call, in bytes: input for a process comes in one message.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long one message may take to arrive.
const MESSAGE_TIME: Duration = Duration::from_secs(60);

/// The surface. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Envd {
    app: App,
    rpc: ConnectRpcService,
}

impl Envd {
    /// The surface over these use cases.
    pub(crate) fn new(app: App) -> Self {
        let filesystem = FilesystemService { watchers: watch::Watchers::default() };
        let router = connectrpc::Router::new()
            .add_service::<_, wire::process::ProcessRegisterMarker>(Arc::new(ProcessService))
            .add_service::<_, wire::filesystem::FilesystemRegisterMarker>(Arc::new(filesystem));
        let limits = Limits::default()
            .with_max_message_size(MESSAGE_BYTES_MAX)
            .with_max_request_body_size(MESSAGE_BYTES_MAX);
        Self { app, rpc: ConnectRpcService::new(router).with_limits(limits) }
    }

    /// Answers a request to the port of the daemon in this sandbox.
    pub(crate) async fn answer(&self, sandbox: LiveSandbox, request: Request<Body>) -> Outcome {
        if let Some(answer) = cors::preflight(&request) {
            return Ok(answer);
        }
        let asked = cors::is_asked(request.headers());
        let response = match self.route(sandbox, request).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        };
        Ok(cors::open(asked, response))
    }

    /// The sandbox whose token signed this file request, for signed URLs that name no sandbox; an error when a file
    /// request was signed with no token that there is.
    pub(crate) fn signed_for(&self, request: &Request<Body>) -> Result<Option<LiveSandbox>, Error> {
        if request.uri().path() != "/files" {
            return Ok(None);
        }
        let unsigned = |refused: Unauthorized| Error::new(StatusCode::UNAUTHORIZED, refused.to_string());
        if FileQuery::parse(request.uri().query()).signature.is_none() {
            return Err(unsigned(Unauthorized::MissingSignature));
        }
        self.signer(request).map(Some).ok_or_else(|| unsigned(Unauthorized::InvalidSignature))
    }

    fn signer(&self, request: &Request<Body>) -> Option<LiveSandbox> {
        let query = FileQuery::parse(request.uri().query());
        let signature = query.signature.as_deref()?;
        let operation = operation(request.method())?;
        let sandboxes = self.app.all_live().into_iter();
        let mut secured = sandboxes.filter_map(|sandbox| Some((sandbox.access_token.clone()?, sandbox)));
        let found =
            secured.find(|(token, _)| signature::is_signed_with(token, &query.signed(operation), signature));
        found.map(|(_, sandbox)| sandbox)
    }

    async fn route(&self, sandbox: LiveSandbox, request: Request<Body>) -> Result<Response<Body>, Error> {
        let path = request.uri().path().to_owned();
        if path == "/health" {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        if INTERNAL.contains(&path.as_str()) {
            return Err(unknown());
        }
        let caller = self.admit(&sandbox, &request)?;
        let session = Session::new(self.app.agent_for(sandbox, caller), request.headers());
        if path.starts_with("/process.Process/") || path.starts_with("/filesystem.Filesystem/") {
            return Ok(self.call(session, request).await);
        }
        match (request.method(), path.as_str()) {
            (&Method::GET | &Method::HEAD, "/files") => download::answer(session, request).await,
            (&Method::POST, "/files") => upload::answer(session, request).await,
            (&Method::POST, "/files/compose") => files::compose(session, request).await,
            (&Method::GET, "/metrics") => stats::metrics(&session).await,
            (&Method::GET, "/envs") => Ok(axum::Json(&session.agent.sandbox().env).into_response()),
            (_, "/files" | "/files/compose" | "/metrics" | "/envs") => {
                Err(Error::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"))
            }
            _ => Err(unknown()),
        }
    }

    /// Lets the request pass by the token, or a file request by its signature.
    fn admit(&self, sandbox: &LiveSandbox, request: &Request<Body>) -> Result<Caller, Error> {
        let Some(token) = &sandbox.access_token else { return Ok(Caller::Anyone) };
        let header = request.headers().get(TOKEN_HEADER).map(|value| value.to_str().unwrap_or_default());
        let checked = match operation(request.method()) {
            Some(operation) if request.uri().path() == "/files" => {
                let query = FileQuery::parse(request.uri().query());
                signature::authorize(token, header, &query.signed(operation), self.app.now())
                    .map_err(|refused| refused.to_string())
            }
            Some(_) | None => check_token(token, header),
        };
        checked.map(|()| Caller::Token).map_err(|text| Error::new(StatusCode::UNAUTHORIZED, text))
    }

    async fn call(&self, session: Session, mut request: Request<Body>) -> Response<Body> {
        if let Err(error) = check_timeout(request.headers_mut()) {
            return error.into_http_response(request.headers()).map(Body::new);
        }
        let mut request = match object_only(request).await {
            Ok(request) => request,
            Err((error, headers)) => return error.into_http_response(&headers).map(Body::new),
        };
        request.extensions_mut().insert(session);
        match self.rpc.clone().oneshot(request).await {
            Ok(response) => response.map(Body::new),
            Err(never) => match never {},
        }
    }
}

fn unknown() -> Error {
    Error::new(StatusCode::NOT_FOUND, "404 page not found")
}

fn operation(method: &Method) -> Option<Operation> {
    match *method {
        Method::GET | Method::HEAD => Some(Operation::Read),
        Method::POST => Some(Operation::Write),
        _ => None,
    }
}

fn check_token(token: &Secret, header: Option<&str>) -> Result<(), String> {
    match header {
        Some(candidate) if token.matches(candidate) => Ok(()),
        Some(_) => Err("access token present in header but does not match".to_owned()),
        None => Err("unauthenticated: missing access token (header X-Access-Token)".to_owned()),
    }
}

/// A deadline is up to ten digits of milliseconds; 0 is none.
fn check_timeout(headers: &mut HeaderMap) -> Result<(), ConnectError> {
    let Some(value) = headers.get(TIMEOUT_HEADER) else { return Ok(()) };
    let text = value.to_str().unwrap_or_default();
    if text.is_empty() || text.len() > 10 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ConnectError::invalid_argument("Connect-Timeout-Ms must be 1 to 10 digits"));
    }
    if text.bytes().all(|b| b == b'0') {
        headers.remove(TIMEOUT_HEADER);
    }
    Ok(())
}

/// Refuses a JSON message that is no object: the generated reader would take a list for one.
async fn object_only(request: Request<Body>) -> Result<Request<Body>, (ConnectError, HeaderMap)> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let json =
        kind.is_some_and(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json"));
    if !json || request.headers().contains_key(header::CONTENT_ENCODING) {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let read = tokio::time::timeout(MESSAGE_TIME, axum::body::to_bytes(body, MESSAGE_BYTES_MAX)).await;
    let Ok(read) = read else {
        return Err((ConnectError::deadline_exceeded("the message did not arrive in time"), parts.headers));
    };
    let error = match read {
        Ok(bytes) if bytes.trim_ascii_start().starts_with(b"{") => {
            return Ok(Request::from_parts(parts, Body::from(bytes)));
        }
        Ok(_) => ConnectError::invalid_argument("the message is no JSON object"),
        Err(_) => {
            ConnectError::resource_exhausted(format!("the message is larger than {MESSAGE_BYTES_MAX} bytes"))
        }
    };
    Err((error, parts.headers))
}

/// An answer of the gateway in the place of the daemon, readable for browsers too.
pub(crate) fn open_to_browsers(headers: &HeaderMap, response: Response<Body>) -> Response<Body> {
    cors::open(cors::is_asked(headers), response)
}
