//! Owns one persistent connection to the node with many calls in flight.

use cofferdam_proto::guest::Failure;

/// Why a call to the node brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The node refused, and says why.
    #[error("node refused")]
    Failed(#[source] Failure),
    /// There is no connection now, or it was lost before the answer.
    #[error("no connection to the node")]
    Lost,
    /// The node did not answer in time.
    #[error("node did not answer in time")]
    Timeout,
    /// The answer is none to this call.
    #[error("node answered something else than {expected}")]
    Unexpected {
        /// What would have been right.
        expected: &'static str,
    },
    /// The call is too large for the protocol.
    #[error("call of {bytes} bytes is too large for the node")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Too many calls wait for an answer.
    #[error("too many calls to the node wait for an answer")]
    Busy,
}

/// The connection.
#[derive(Debug, Clone)]
pub struct NodeLink;
