//! Owns how a step of the launcher or of a shell fails: what was attempted, and the error.

use crate::launcher::protocol::Outcome;
use cofferdam_sys::errno_of;
use std::io;

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub(super) struct Failure {
    pub(super) step: &'static str,
    #[source]
    pub(super) source: io::Error,
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        let errno = errno_of(&failure.source).unwrap_or(0);
        Self::Failed { step: failure.to_string(), errno }
    }
}

/// Names the step that an I/O error belongs to.
pub(super) trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, Failure>;
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, step: &'static str) -> Result<T, Failure> {
        self.map_err(|source| Failure { step, source })
    }
}
