//! Owns turning requests into values: who asks, JSON bodies, queries, ids in paths. Whatever is wrong is named.

use super::answer::Problem;
use crate::app::{Actor, App, AppError, REQUEST};
use axum::body::{Bytes, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cofferdam_core::limits::API_BODY_BYTES_MAX;
use cofferdam_core::{RequestId, SandboxId};
use serde::de::DeserializeOwned;

/// Header with the key.
const KEY_HEADER: &str = "x-api-key";
/// Header of every answer, to find the request in the log.
const REQUEST_HEADER: &str = "x-request-id";

/// Gives each request an id; the record, the log and the answer name it.
pub(super) async fn with_id(request: Request, next: Next) -> Response {
    let id = RequestId::from_entropy(rand::random());
    let mut response = REQUEST.scope(id.clone(), next.run(request)).await;
    if let Ok(value) = HeaderValue::from_str(id.as_str()) {
        response.headers_mut().insert(REQUEST_HEADER, value);
    }
    response
}

/// Lets only known callers through; handlers find them as [`Actor`] among the extensions.
pub(super) async fn authenticate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let key = key_of(request.headers()).unwrap_or_default();
    match app.authenticate(key).await {
        Ok(actor) => {
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
        Err(error) => Problem::from(error).into_response(),
    }
}

fn key_of(headers: &HeaderMap) -> Option<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = || text(header::AUTHORIZATION.as_str())?.strip_prefix("Bearer ");
    text(KEY_HEADER).or_else(bearer).map(str::trim)
}

/// Who asks.
pub(super) struct Who(pub(super) Actor);

impl FromRequestParts<App> for Who {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        parts.extensions.get().cloned().map(Self).ok_or_else(|| AppError::Unauthenticated.into())
    }
}

/// A JSON body within its bound, and its bytes.
pub(super) struct Body<T> {
    pub(super) value: T,
    pub(super) bytes: Bytes,
}

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &App) -> Result<Self, Problem> {
        let bytes = to_bytes(request.into_body(), API_BODY_BYTES_MAX).await.map_err(|_| {
            let message = format!("the body did not arrive whole or exceeds {API_BODY_BYTES_MAX} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        })?;
        let value = parse(&bytes)?;
        Ok(Self { value, bytes })
    }
}

/// A value out of JSON; what is wrong is told with its place.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::bad_request(format!("malformed JSON body: {error}")))
}

/// The query of a request; unknown names are refused.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let query = axum::extract::Query::try_from_uri(&parts.uri);
        query.map(|query| Self(query.0)).map_err(|error| Problem::bad_request(error.body_text()))
    }
}

/// The one id or name in the path.
pub(super) struct Named(pub(super) String);

impl FromRequestParts<App> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let path: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, app).await;
        path.map(|path| Self(path.0)).map_err(|error| Problem::bad_request(error.body_text()))
    }
}

/// The id of a sandbox in the path.
pub(super) struct Id(pub(super) SandboxId);

impl FromRequestParts<App> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let Named(text) = Named::from_request_parts(parts, app).await?;
        text.parse().map(Self).map_err(|_| Problem::bad_request("invalid sandbox id"))
    }
}
