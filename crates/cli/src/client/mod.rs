//! Owns talking HTTP to one server: addresses, the key header, JSON, statuses and errors. One pool of connections that
//! stay open serves all requests of a verb.
//!
//! Never retries what may have had an effect.

pub(crate) mod dial;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod query;

use crate::error::Error;
use bytes::Bytes;
use cofferdam_core::secret::Secret;
use cofferdam_core::{SandboxId, State};
use cofferdam_proto::api::{
    ApiError, CreateSandbox, ExecRequest, ExecResult, Sandbox, SandboxList, SetTimeout,
};
use dial::{Dialer, Target};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::time::Duration;

/// What requests carry.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Longest wait for the head of an answer.
const ANSWER_SECONDS: u64 = 120;
/// Longest JSON answer that is read.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Longest error answer that is read.
const ERROR_BYTES_MAX: usize = 64 * 1024;
/// Connections kept open between requests.
const IDLE_CONNECTIONS_MAX: usize = 256;

const API_KEY_HEADER: &str = "x-api-key";

/// A client of the native API of one server.
#[derive(Clone)]
pub(crate) struct Client {
    http: legacy::Client<Dialer, Body>,
    target: Target,
    key: Secret,
}

impl Client {
    pub(crate) fn new(url: &str, key: Secret) -> Result<Self, Error> {
        let target = Target::parse(url)?;
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(Dialer::new(&target)?);
        Ok(Self { http, target, key })
    }

    pub(crate) async fn create(&self, request: &CreateSandbox) -> Result<Sandbox, Error> {
        self.post("/v1/sandboxes", request).await
    }

    pub(crate) async fn sandbox(&self, id: &SandboxId) -> Result<Sandbox, Error> {
        self.get(&format!("/v1/sandboxes/{id}")).await
    }

    /// All sandboxes of the caller, page after page; those that ended too when `ended` is set.
    pub(crate) async fn sandboxes(&self, ended: bool) -> Result<Vec<Sandbox>, Error> {
        let mut all = Vec::new();
        let mut next: Option<String> = None;
        loop {
            let mut query = query::Query::default();
            if ended {
                query.push("state", &State::ALL.map(State::as_str).join(","));
            }
            if let Some(token) = &next {
                query.push("next", token);
            }
            let page: SandboxList = self.get(&query.append("/v1/sandboxes")).await?;
            all.extend(page.sandboxes);
            match page.next {
                Some(token) if next.as_ref() != Some(&token) => next = Some(token),
                _ => return Ok(all),
            }
        }
    }

    pub(crate) async fn kill(&self, id: &SandboxId) -> Result<(), Error> {
        self.delete(&format!("/v1/sandboxes/{id}")).await
    }

    pub(crate) async fn set_timeout(&self, id: &SandboxId, timeout_seconds: u64) -> Result<(), Error> {
        let path = format!("/v1/sandboxes/{id}/timeout");
        let body = json_body(&SetTimeout { timeout_seconds });
        self.call(Method::POST, &path, body).await.map(drop)
    }

    pub(crate) async fn exec(&self, id: &SandboxId, request: &ExecRequest) -> Result<ExecResult, Error> {
        self.post(&format!("/v1/sandboxes/{id}/exec"), request).await
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let answer = self.call(Method::GET, path, empty()).await?;
        parse(&format!("GET {path}"), &answer)
    }

    pub(crate) async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, Error> {
        let answer = self.call(Method::POST, path, json_body(body)).await?;
        parse(&format!("POST {path}"), &answer)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), Error> {
        self.call(Method::DELETE, path, empty()).await.map(drop)
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Body) -> Result<Bytes, Error> {
        let what = format!("{method} {path}");
        let request = self.request(method, path, body)?;
        let response = self.send(&what, request).await?;
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        body.map(|body| body.to_bytes()).map_err(|source| Error::Broken { what, source })
    }

    /// A request with the key; bodies are JSON unless the caller says otherwise.
    pub(crate) fn request(&self, method: Method, path: &str, body: Body) -> Result<Request<Body>, Error> {
        let key = HeaderValue::from_str(self.key.expose())
            .map_err(|_| Error::Usage("the API key holds characters that no key has".into()))?;
        Request::builder()
            .method(method)
            .uri(self.target.uri(path))
            .header(API_KEY_HEADER, key)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| Error::Usage(format!("`{path}` is no path of the API: {error}")))
    }

    /// Sends a request and gives the answer once its head is there; a refusal is an error.
    pub(crate) async fn send(&self, what: &str, request: Request<Body>) -> Result<Response<Incoming>, Error> {
        let wait = Duration::from_secs(ANSWER_SECONDS);
        let answer = tokio::time::timeout(wait, self.send_slowly(what, request)).await;
        answer.unwrap_or_else(|_| Err(Error::Deadline { what: what.to_owned(), seconds: ANSWER_SECONDS }))
    }

    /// Like [`Self::send`], for requests whose body takes as long as it takes.
    pub(crate) async fn send_slowly(
        &self,
        what: &str,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Error> {
        let response = self.http.request(request).await.map_err(|error| self.transport(what, error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = Limited::new(response.into_body(), ERROR_BYTES_MAX).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        Err(self.refusal(status, &body))
    }

    /// The error that a refused request stands for.
    pub(crate) fn refusal(&self, status: StatusCode, body: &[u8]) -> Error {
        match serde_json::from_slice::<ApiError>(body) {
            Ok(error) => Error::Api(Box::new(error)),
            Err(_) => Error::Foreign { url: self.target.url().to_owned(), status: status.as_u16() },
        }
    }

    fn transport(&self, what: &str, error: legacy::Error) -> Error {
        if error.is_connect() {
            Error::Unreachable { url: self.target.url().to_owned(), source: error.into() }
        } else {
            Error::Broken { what: what.to_owned(), source: error.into() }
        }
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn key(&self) -> &Secret {
        &self.key
    }
}

/// A body without content.
pub(crate) fn empty() -> Body {
    full(Bytes::new())
}

/// A body of known content.
pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A JSON body.
pub(crate) fn json_body<T: Serialize>(value: &T) -> Body {
    let bytes = serde_json::to_vec(value).expect("API types have string keys and no failing serializer");
    full(bytes.into())
}

/// A JSON answer.
pub(crate) fn parse<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|source| Error::Malformed { what: what.to_owned(), source })
}
