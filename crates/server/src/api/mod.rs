//! Owns the surfaces: each translates its own words to use cases and back, and decides nothing.

pub(crate) mod e2b;
pub mod error;
pub(crate) mod native;
