//! Owns the connection to the node: calls, their answers, what the node says unasked, and convergence after a loss.

mod link;

pub use link::{LinkError, NodeLink};
