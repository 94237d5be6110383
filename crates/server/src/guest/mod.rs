//! Owns the client of the agent protocol: one operation on one connection that the node handed out.
//!
//! Every byte from the agent is hostile: frames are bounded before they are read, first answers have a deadline, texts
//! are cut. Never decides who may do what and records nothing; `app::agent` does, and is the only caller.

mod calls;
mod session;
mod transfer;
mod wire;

pub use calls::*;
pub use session::{Output, Session, SessionInput, SessionOutput};
pub use transfer::{FileReader, FileWriter, InputWriter, WatchEvent, Watcher};

use cofferdam_proto::frame::FrameError;
use cofferdam_proto::guest::{Failure, Malformed};

/// Why an operation of the agent did not happen or broke off.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The agent refused, and says why.
    #[error("agent refused")]
    Failed(#[source] Failure),
    /// The agent closed the connection before the operation was over.
    #[error("agent closed the connection")]
    Closed,
    /// The connection broke.
    #[error("connection to the agent")]
    Io(#[source] std::io::Error),
    /// A frame that cannot be.
    #[error("frame from the agent")]
    Frame(#[source] FrameError),
    /// A message that cannot be.
    #[error("message from the agent")]
    Malformed(#[source] Malformed),
    /// A legal message at the wrong time.
    #[error("agent said something else than {expected}")]
    Unexpected {
        /// What would have been right.
        expected: &'static str,
    },
    /// The request is too large for the protocol.
    #[error("request of {bytes} bytes is too large for the agent")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The agent did not answer in time.
    #[error("agent did not answer in time")]
    Timeout,
}

#[cfg(test)]
mod tests;
