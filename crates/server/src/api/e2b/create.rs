//! Owns the two create endpoints.

use super::body;
use super::error::Error;
use super::options::{NewSandbox, Version};
use super::shapes::Sandbox;
use crate::app::{Actor, App, Idempotency};
use crate::http::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};

/// `POST /sandboxes`.
pub(crate) async fn v1(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse, Error> {
    create(&app, &actor, Version::V1, (headers, body)).await
}

/// `POST /v2/sandboxes`.
pub(crate) async fn v2(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse, Error> {
    create(&app, &actor, Version::V2, (headers, body)).await
}

async fn create(
    app: &App,
    actor: &Actor,
    version: Version,
    (headers, body): (HeaderMap, Body),
) -> Result<(StatusCode, Json<Sandbox>), Error> {
    let bytes = body::bytes(body).await?;
    let idempotency = idempotency(&headers, version, &bytes)?;
    let asked: NewSandbox = body::parse(&bytes)?;
    let view = app.create_sandbox(actor, asked.into_request(version, idempotency)?).await?;
    Ok((StatusCode::CREATED, Json(Sandbox::new(&view, app.domain()))))
}

/// The key of the request; only the second version has one.
fn idempotency(headers: &HeaderMap, version: Version, body: &Bytes) -> Result<Option<Idempotency>, Error> {
    let Some(value) = headers.get("idempotency-key").filter(|_| version == Version::V2) else {
        return Ok(None);
    };
    let key = value.to_str().unwrap_or_default();
    let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if key.is_empty() || key.len() > 255 || !key.bytes().all(legal) {
        return Err(Error::bad_request(
            "Idempotency-Key must be 1 to 255 letters, digits, hyphens or underscores",
        ));
    }
    Ok(Some(Idempotency { key: key.to_owned(), body_hash: Sha256::digest(body).into() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn an_idempotency_key_has_a_form() {
        let mut headers = HeaderMap::new();
        let body = Bytes::from_static(b"{}");
        assert_eq!(idempotency(&headers, Version::V2, &body).unwrap(), None);
        headers.insert("Idempotency-Key", HeaderValue::from_static("abc-1"));
        assert_eq!(idempotency(&headers, Version::V2, &body).unwrap().unwrap().key, "abc-1");
        assert_eq!(idempotency(&headers, Version::V1, &body).unwrap(), None);
        headers.insert("Idempotency-Key", HeaderValue::from_static("a b"));
        assert!(idempotency(&headers, Version::V2, &body).is_err());
    }
}
