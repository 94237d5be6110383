//! Owns what an envd request carries through its handlers: the way into the sandbox, the user it acts as, and how a
//! failure becomes a Connect error.

use super::user;
use crate::app::{Agent, AppError};
use crate::gateway::lifeline::await_news;
use crate::guest::GuestError;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{Path, Reason, User};
use connectrpc::{ConnectError, ErrorCode, RequestContext};
use http::{HeaderMap, header};
use std::time::Duration;

/// Silence after which a stream sends a keepalive when the request names none.
const KEEPALIVE_SECONDS_DEFAULT: u64 = 90;
const KEEPALIVE_SECONDS: std::ops::RangeInclusive<u64> = 1..=3600;

/// One request to one sandbox.
#[derive(Clone)]
pub(crate) struct Session {
    /// The way in.
    pub(crate) agent: Agent,
    /// Whom to act as.
    pub(crate) user: User,
}

impl Session {
    /// A session of a request with these headers.
    pub(crate) fn new(agent: Agent, headers: &HeaderMap) -> Self {
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        Self { agent, user: user::from_basic(header) }
    }

    /// The session that was put into the request before its service was called.
    pub(crate) fn of(ctx: &RequestContext) -> Result<Self, ConnectError> {
        let session = ctx.extensions().get::<Self>().cloned();
        session.ok_or_else(|| ConnectError::internal("request without a session"))
    }

    /// `text` as a path of the user of this session.
    pub(crate) fn path(&self, text: &str) -> Path {
        Path { path: text.to_owned(), user: self.user.clone() }
    }

    /// The Connect error of a failure.
    pub(crate) async fn refuse(&self, error: AppError) -> ConnectError {
        self.settle(&error).await;
        if error.kind() == ErrorKind::Internal {
            tracing::error!(error = error.log(), sandbox = %self.agent.sandbox().id, "envd call failed");
        }
        rpc_error(&error, &self.user)
    }

    /// When a failure may come from the end of the sandbox, waits for the news of it, which cuts the request.
    pub(crate) async fn settle(&self, error: &AppError) {
        if is_lost(error) {
            await_news(self.agent.sandbox().ended()).await;
        }
    }
}

fn is_lost(error: &AppError) -> bool {
    match error {
        AppError::AgentLost(GuestError::TooLarge { .. }) => false,
        AppError::AgentLost(_) | AppError::SandboxEnded(_) | AppError::NodeUnavailable(_) => true,
        other => matches!(other, AppError::SandboxNotFound(_)),
    }
}

/// The text for a user that does not exist.
pub(crate) fn unknown_user(user: &User) -> String {
    match user {
        User::Named(name) => format!("invalid username: '{name}'"),
        User::Default => "invalid username: the default user does not exist".to_owned(),
    }
}

fn rpc_error(error: &AppError, user: &User) -> ConnectError {
    if let AppError::AgentLost(GuestError::TooLarge { bytes }) = error {
        return ConnectError::invalid_argument(format!("request of {bytes} bytes is too large"));
    }
    match error.reason() {
        Reason::UnknownUser => ConnectError::unauthenticated(unknown_user(user)),
        reason => ConnectError::new(code_of(error.kind(), reason), error.public()),
    }
}

/// A disk or process limit is not `resource_exhausted`: clients take that for a rate limit and say so.
fn code_of(kind: ErrorKind, reason: Reason) -> ErrorCode {
    match reason {
        Reason::UnknownUser => ErrorCode::Unauthenticated,
        Reason::UnknownCwd | Reason::IsDirectory | Reason::NotDirectory => ErrorCode::InvalidArgument,
        Reason::LinkLoop | Reason::NoSpace | Reason::NoProcesses => ErrorCode::FailedPrecondition,
        Reason::StdinClosed | Reason::NotPty => ErrorCode::Internal,
        Reason::PortClosed => ErrorCode::Unavailable,
        Reason::None => code_of_kind(kind),
    }
}

fn code_of_kind(kind: ErrorKind) -> ErrorCode {
    match kind {
        ErrorKind::InvalidArgument => ErrorCode::InvalidArgument,
        ErrorKind::Unauthenticated => ErrorCode::Unauthenticated,
        ErrorKind::PermissionDenied => ErrorCode::PermissionDenied,
        ErrorKind::NotFound => ErrorCode::NotFound,
        ErrorKind::AlreadyExists => ErrorCode::AlreadyExists,
        ErrorKind::Conflict => ErrorCode::FailedPrecondition,
        ErrorKind::ResourceExhausted => ErrorCode::ResourceExhausted,
        ErrorKind::DeadlineExceeded => ErrorCode::DeadlineExceeded,
        ErrorKind::Unavailable => ErrorCode::Unavailable,
        ErrorKind::Unsupported => ErrorCode::Unimplemented,
        ErrorKind::Internal => ErrorCode::Internal,
    }
}

/// How long a stream may be silent before it sends a keepalive.
pub(crate) fn keepalive(ctx: &RequestContext) -> Duration {
    let asked = ctx
        .header("keepalive-ping-interval")
        .and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    let seconds = asked.filter(|seconds| *seconds > 0).unwrap_or(KEEPALIVE_SECONDS_DEFAULT);
    Duration::from_secs(seconds.clamp(*KEEPALIVE_SECONDS.start(), *KEEPALIVE_SECONDS.end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_proto::guest::Failure;
    use http::HeaderValue;

    #[track_caller]
    fn check(kind: ErrorKind, reason: Reason, expected: ErrorCode) {
        let failure = Failure { kind, message: "why".into(), reason };
        let error = rpc_error(&AppError::Agent(failure), &User::Named("x".into()));
        assert_eq!(error.code, expected);
    }

    #[test]
    fn failures_get_the_code_that_clients_expect() {
        check(ErrorKind::NotFound, Reason::None, ErrorCode::NotFound);
        check(ErrorKind::AlreadyExists, Reason::None, ErrorCode::AlreadyExists);
        check(ErrorKind::InvalidArgument, Reason::IsDirectory, ErrorCode::InvalidArgument);
        check(ErrorKind::InvalidArgument, Reason::UnknownUser, ErrorCode::Unauthenticated);
        check(ErrorKind::Conflict, Reason::StdinClosed, ErrorCode::Internal);
        check(ErrorKind::ResourceExhausted, Reason::NoSpace, ErrorCode::FailedPrecondition);
    }

    #[test]
    fn the_keepalive_interval_is_bounded() {
        for (text, seconds) in [("50", 50), ("0", 90), ("x", 90), ("99999999", 3600)] {
            let mut headers = HeaderMap::new();
            headers.insert("keepalive-ping-interval", HeaderValue::from_static(text));
            assert_eq!(keepalive(&RequestContext::new(headers)).as_secs(), seconds, "{text}");
        }
    }
}
