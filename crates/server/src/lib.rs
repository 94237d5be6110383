//! Owns the unprivileged half that faces the internet: API surfaces, the gateway into sandboxes, use cases, the store,
//! the link to the node, the record of what happened.
//!
//! `{api, gateway} -> app -> {store, cluster, guest}`. Never privileged; knows the node only as a socket.

pub mod api;
pub mod app;
pub mod cluster;
pub mod gateway;
pub mod guest;
mod http;
mod run;
pub mod store;
mod unread;

pub use cofferdam_policy::Quota;
pub use run::{ServeError, ServerConfig, run};
pub use store::InitialKey;

#[cfg(test)]
mod testing;
