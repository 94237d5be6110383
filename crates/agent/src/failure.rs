//! Owns turning what the kernel says into what a client may be told.

use cofferdam_core::ErrorKind;
use cofferdam_proto::guest::{Failure, Reason};
use std::fmt::Display;
use std::io;

/// ELOOP, which has no stable `io::ErrorKind`.
const TOO_MANY_LINKS: i32 = 40;

/// A failure without a finer reason.
pub(crate) fn failure(kind: ErrorKind, message: impl Into<String>) -> Failure {
    because(kind, Reason::None, message)
}

/// A failure with a finer reason.
pub(crate) fn because(kind: ErrorKind, reason: Reason, message: impl Into<String>) -> Failure {
    Failure { kind, reason, message: message.into() }
}

/// The request makes no sense.
pub(crate) fn invalid(message: impl Into<String>) -> Failure {
    failure(ErrorKind::InvalidArgument, message)
}

/// An operation on a path failed.
pub(crate) fn at_path(doing: &str, path: impl Display, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound {
        return failure(ErrorKind::NotFound, format!("path '{path}' does not exist"));
    }
    let (kind, reason) = classify(error);
    because(kind, reason, format!("{doing} '{path}': {}", text(error)))
}

/// An operation failed that has no path.
pub(crate) fn doing(doing: &str, error: &io::Error) -> Failure {
    let (kind, reason) = classify(error);
    because(kind, reason, format!("{doing}: {}", text(error)))
}

/// The text of an error without the number in parentheses.
pub(crate) fn text(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_lowercase()
}

fn classify(error: &io::Error) -> (ErrorKind, Reason) {
    use io::ErrorKind as Io;
    if error.raw_os_error() == Some(TOO_MANY_LINKS) {
        return (ErrorKind::Conflict, Reason::LinkLoop);
    }
    match error.kind() {
        Io::NotFound => (ErrorKind::NotFound, Reason::None),
        Io::AlreadyExists => (ErrorKind::AlreadyExists, Reason::None),
        Io::PermissionDenied | Io::ReadOnlyFilesystem => (ErrorKind::PermissionDenied, Reason::None),
        Io::NotADirectory => (ErrorKind::InvalidArgument, Reason::NotDirectory),
        Io::IsADirectory => (ErrorKind::InvalidArgument, Reason::IsDirectory),
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => {
            (ErrorKind::ResourceExhausted, Reason::NoSpace)
        }
        Io::OutOfMemory => (ErrorKind::ResourceExhausted, Reason::None),
        Io::DirectoryNotEmpty | Io::ExecutableFileBusy | Io::ResourceBusy => {
            (ErrorKind::Conflict, Reason::None)
        }
        Io::InvalidInput | Io::InvalidFilename | Io::ArgumentListTooLong => {
            (ErrorKind::InvalidArgument, Reason::None)
        }
        Io::Unsupported => (ErrorKind::Unsupported, Reason::None),
        _ if is_out_of_descriptors(error) => (ErrorKind::ResourceExhausted, Reason::None),
        _ => (ErrorKind::Internal, Reason::None),
    }
}

/// ENFILE and EMFILE.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(number: i32, kind: ErrorKind, reason: Reason) {
        let failure = at_path("open", "/x", &io::Error::from_raw_os_error(number));
        assert_eq!((failure.kind, failure.reason), (kind, reason), "{}", failure.message);
        assert!(!failure.message.contains("os error"), "{}", failure.message);
    }

    #[test]
    fn errors_of_the_kernel_have_a_kind_and_a_reason() {
        check(2, ErrorKind::NotFound, Reason::None);
        check(20, ErrorKind::InvalidArgument, Reason::NotDirectory);
        check(21, ErrorKind::InvalidArgument, Reason::IsDirectory);
        check(28, ErrorKind::ResourceExhausted, Reason::NoSpace);
        check(122, ErrorKind::ResourceExhausted, Reason::NoSpace);
        check(40, ErrorKind::Conflict, Reason::LinkLoop);
        check(24, ErrorKind::ResourceExhausted, Reason::None);
        check(5, ErrorKind::Internal, Reason::None);
    }

    #[test]
    fn a_missing_path_is_named_in_quotes() {
        let failure = at_path("stat", "/x/y", &io::ErrorKind::NotFound.into());
        assert_eq!(failure.message, "path '/x/y' does not exist");
    }
}
