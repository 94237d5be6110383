//! Owns how a failed system call is told: errno(3) with the name of the call in front.

use rustix::io::Errno;
use std::fmt;
use std::io;

#[derive(Debug)]
struct CallError {
    call: &'static str,
    errno: Errno,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.errno)
    }
}

impl std::error::Error for CallError {}

/// An error that says which call failed.
pub(crate) fn failed(call: &'static str) -> impl FnOnce(Errno) -> io::Error {
    move |errno| io::Error::new(errno.kind(), CallError { call, errno })
}

/// The error of the last libc call of this thread, with the call's name.
pub(crate) fn last_failed(call: &'static str) -> io::Error {
    let raw = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
    failed(call)(Errno::from_raw_os_error(raw))
}

/// The error number behind an error of this crate or of the standard library.
pub fn errno_of(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        error.get_ref().and_then(|inner| inner.downcast_ref::<CallError>()).map(|e| e.errno.raw_os_error())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_call_and_keeps_its_number() {
        let error = failed("mount")(Errno::PERM);
        assert_eq!(errno_of(&error), Some(libc::EPERM));
        assert!(error.to_string().starts_with("mount: "));
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
