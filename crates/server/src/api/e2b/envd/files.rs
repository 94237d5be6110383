//! Owns what the file endpoints share: their query, their errors, and composing a file out of parts.

use super::session::{Session, unknown_user};
use crate::api::e2b::body;
use crate::api::e2b::error::Error;
use crate::api::error::status as status_of;
use crate::app::AppError;
use crate::guest::GuestError;
use crate::http::Body;
use axum::response::IntoResponse;
use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{Path, Reason, User};
use http::{Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::entry;
use super::signature::{Operation, Signed};

/// The query of a file request. A value that is no UTF-8 is kept with replacement characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileQuery {
    pub(crate) path: Option<String>,
    pub(crate) username: Option<String>,
    pub(crate) signature: Option<String>,
    pub(crate) expiration: Option<String>,
}

impl FileQuery {
    /// Reads the query; of a name that comes twice the first counts.
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let mut parsed = Self::default();
        for pair in query.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let slot = match name {
                "path" => &mut parsed.path,
                "username" => &mut parsed.username,
                "signature" => &mut parsed.signature,
                "signature_expiration" => &mut parsed.expiration,
                _ => continue,
            };
            if slot.is_none() {
                *slot = Some(percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned());
            }
        }
        parsed
    }

    /// What a signature of this request covers.
    pub(crate) fn signed(&self, operation: Operation) -> Signed<'_> {
        Signed {
            path: self.path.as_deref().unwrap_or_default(),
            operation,
            user: self.username.as_deref().unwrap_or_default(),
            signature: self.signature.as_deref(),
            expiration: self.expiration.as_deref(),
        }
    }

    /// The session as the user that the query names, when it names one.
    pub(crate) fn act(&self, session: Session) -> Session {
        match &self.username {
            Some(name) if !name.is_empty() => Session { user: User::Named(name.clone()), ..session },
            Some(_) | None => session,
        }
    }
}

/// The error of a file operation on `path`.
pub(crate) async fn refuse(session: &Session, error: AppError, path: &str) -> Error {
    session.settle(&error).await;
    file_error(error, path, &session.user)
}

fn file_error(error: AppError, path: &str, user: &User) -> Error {
    match (error.reason(), error.kind()) {
        (Reason::UnknownUser, _) => Error::new(StatusCode::UNAUTHORIZED, unknown_user(user)),
        (Reason::NoSpace, _) => Error::new(StatusCode::INSUFFICIENT_STORAGE, "not enough disk space"),
        (Reason::IsDirectory, _) => Error::bad_request(format!("path '{path}' is a directory")),
        (Reason::NotDirectory | Reason::LinkLoop, _) => Error::bad_request(error.public()),
        (_, ErrorKind::NotFound) => {
            Error::new(StatusCode::NOT_FOUND, format!("path '{path}' does not exist"))
        }
        (_, ErrorKind::Internal) => error.into(),
        (_, kind) => match error {
            AppError::AgentLost(GuestError::TooLarge { .. }) => Error::bad_request("request is too large"),
            error => Error::new(status_of(kind), error.public()),
        },
    }
}

#[derive(Deserialize)]
struct Compose {
    #[serde(default)]
    source_paths: Vec<String>,
    #[serde(default)]
    destination: String,
    #[serde(default)]
    username: Option<String>,
}

/// `POST /files/compose`.
pub(crate) async fn compose(session: Session, request: Request<Body>) -> Result<Response<Body>, Error> {
    let compose: Compose = body::json(request.into_body()).await?;
    if compose.source_paths.is_empty() || compose.destination.is_empty() {
        return Err(Error::bad_request("source_paths and destination are required"));
    }
    if compose.source_paths.contains(&compose.destination) {
        return Err(Error::bad_request("destination must not be one of the sources"));
    }
    let query = FileQuery { username: compose.username, ..FileQuery::default() };
    let session = query.act(session);
    let destination = Path { path: compose.destination.clone(), user: session.user.clone() };
    match session.agent.compose(compose.source_paths, destination).await {
        Ok(made) => Ok(axum::Json(entry::written(&made)).into_response()),
        Err(error) => Err(refuse(&session, error, &compose.destination).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_proto::guest::Failure;
    use proptest::prelude::*;

    #[test]
    fn the_query_is_decoded_once() {
        let query =
            FileQuery::parse(Some("path=%2Fa%20b+c&username=root&signature=v1_x%2By&path=second&other"));
        assert_eq!(query.path.as_deref(), Some("/a b c"));
        assert_eq!(query.username.as_deref(), Some("root"));
        assert_eq!(query.signature.as_deref(), Some("v1_x+y"));
        assert_eq!(FileQuery::parse(None), FileQuery::default());
    }

    #[track_caller]
    fn check(kind: ErrorKind, reason: Reason, status: u16) {
        let error = AppError::Agent(Failure { kind, message: "why".into(), reason });
        assert_eq!(file_error(error, "/x", &User::Default).status().as_u16(), status);
    }

    #[test]
    fn failures_get_their_status() {
        check(ErrorKind::NotFound, Reason::None, 404);
        check(ErrorKind::InvalidArgument, Reason::IsDirectory, 400);
        check(ErrorKind::ResourceExhausted, Reason::NoSpace, 507);
        check(ErrorKind::Unauthenticated, Reason::UnknownUser, 401);
        check(ErrorKind::Internal, Reason::None, 500);
    }

    proptest! {
        #[test]
        fn any_query_has_an_answer(text in ".{0,120}") {
            FileQuery::parse(Some(&text));
        }
    }
}
