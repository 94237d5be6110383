//! Owns the E2B surface: the control plane, and `envd` for what happens inside a sandbox. It translates E2B's words to
//! use cases and back and decides nothing; foreign names (`clientID`, `envd`) live only here.

mod body;
mod cors;
mod create;
pub(crate) mod envd;
mod error;
mod lifecycle;
mod list;
mod meter;
mod options;
mod pairs;
mod query;
pub(crate) mod routes;
mod shapes;
mod telemetry;
mod templates;
mod wire;

pub(crate) use routes::{router, unknown};
