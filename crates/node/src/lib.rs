//! Owns the privileged half of a host: isolation drivers, storage, templates, the pool and the life of each sandbox.
//! Hands out connected sockets into sandboxes; never parses what a client sent, never sees policy or a secret.

pub mod isolation;
pub mod launcher;
pub mod storage;
