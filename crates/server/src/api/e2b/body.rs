//! Owns reading a JSON body: its bounds in size and time, and the errors about them.

use super::error::Error;
use crate::http::Body;
use bytes::Bytes;
use cofferdam_core::limits::API_BODY_BYTES_MAX;
use http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// How long a small body may take.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The whole body.
pub(crate) async fn bytes(body: Body) -> Result<Bytes, Error> {
    let read = tokio::time::timeout(BODY_TIME, Limited::new(body, API_BODY_BYTES_MAX).collect()).await;
    let read =
        read.map_err(|_| Error::new(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time"))?;
    match read {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let text = format!("the request body is larger than {API_BODY_BYTES_MAX} bytes");
            Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, text))
        }
        Err(_) => Err(Error::bad_request("the request body broke off")),
    }
}

/// The body as JSON.
pub(crate) async fn json<T: DeserializeOwned>(body: Body) -> Result<T, Error> {
    parse(&bytes(body).await?)
}

/// Bytes as JSON; no bytes are an empty object.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let bytes = if bytes.trim_ascii().is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes)
        .map_err(|error| Error::bad_request(format!("invalid request body: {error}")))
}
