//! Owns the versioned wire types between our processes: server and agent (`guest`), server and node (`node`), client
//! and native API (`api`), and the framing they share. Turning bytes into values is where validation happens.
//!
//! Never behaves: no sockets, no clocks, no tasks. Everything that decodes has a bound and a fuzz target.

#![warn(missing_docs)]

pub mod api;
pub mod frame;
pub mod guest;
pub mod node;
