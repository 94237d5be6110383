//! Owns the one error body of the E2B surface: JSON `{code, message, error_code?}`, with the status repeated in `code`.

use crate::api::error::status as status_of;
use crate::app::{AppError, REQUEST};
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

/// An error as this surface shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error {
    status: StatusCode,
    message: String,
    error_code: Option<&'static str>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: u16,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<&'static str>,
}

impl Error {
    /// An error with this status and text.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), error_code: None }
    }

    /// The request is not legal.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The object is in a state in which this is not legal.
    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// This version cannot do it; `what` says what is missing.
    pub(crate) fn not_implemented(what: &str) -> Self {
        let message = format!("{what} not available in this version of Cofferdam");
        Self { error_code: Some("not_implemented"), ..Self::new(StatusCode::NOT_IMPLEMENTED, message) }
    }

    /// The status.
    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// The text for the client.
    #[cfg(test)]
    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

impl From<AppError> for Error {
    fn from(error: AppError) -> Self {
        let (status, error_code) = match &error {
            AppError::IdempotencyMismatch => {
                (StatusCode::UNPROCESSABLE_ENTITY, Some("idempotency_key_mismatch"))
            }
            AppError::IdempotencyInFlight => (StatusCode::CONFLICT, Some("idempotency_key_in_flight")),
            other => (status_of(other.kind()), None),
        };
        let mut message = error.public();
        if status.is_server_error() {
            let request = REQUEST.try_with(ToString::to_string).unwrap_or_default();
            tracing::error!(request_id = request, error = error.log(), "request failed");
            message = format!("{message} (request {request})");
        }
        Self { error_code, ..Self::new(status, message) }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let body =
            ErrorBody { code: self.status.as_u16(), message: &self.message, error_code: self.error_code };
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
