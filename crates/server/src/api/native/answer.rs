//! Owns answers that are errors: one body, its status out of the kind, and the log line of those that are our fault.

use crate::api::error::status;
use crate::app::{AppError, REQUEST};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use cofferdam_core::{ErrorKind, LimitHit};
use cofferdam_proto::api::ApiError;

/// An error on its way to the client.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    kind: ErrorKind,
    message: String,
    limit: Option<LimitHit>,
    /// Everything that is known, when the client is told less.
    log: Option<String>,
}

pub(super) type Answer<T> = Result<T, Problem>;

impl Problem {
    /// The request is wrong in itself.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The request is wrong in a way that has a status of its own.
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let kind = ErrorKind::InvalidArgument;
        Self { status, kind, message: message.into(), limit: None, log: None }
    }

    /// The body, for surfaces inside the surface. Logs what has to be logged.
    pub(super) fn into_body(self) -> ApiError {
        let request_id = REQUEST.try_with(ToString::to_string).ok();
        if let Some(error) = &self.log {
            tracing::error!(error, request_id, "request failed");
        }
        let message = match (&request_id, self.kind) {
            (Some(id), ErrorKind::Internal) => format!("internal error, request {id}"),
            _ => self.message,
        };
        ApiError { code: self.status.as_u16(), kind: self.kind, message, limit: self.limit, request_id }
    }
}

impl From<AppError> for Problem {
    fn from(error: AppError) -> Self {
        let kind = error.kind();
        let ours = matches!(kind, ErrorKind::Internal | ErrorKind::Unavailable);
        Self {
            status: match error {
                AppError::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
                _ => status(kind),
            },
            kind,
            message: error.public(),
            limit: error.limit(),
            log: ours.then(|| error.log()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status;
        (status, Json(self.into_body())).into_response()
    }
}
