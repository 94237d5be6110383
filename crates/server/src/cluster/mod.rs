//! Owns the link to the node: calls, their answers, and what the node says unasked.
//!
//! Whatever comes from the node is bounded and parsed here. What to do about it is decided in `app`.

mod link;
mod wire;

pub use link::{LinkError, NodeEvent, NodeLink};
pub use wire::Progress;
