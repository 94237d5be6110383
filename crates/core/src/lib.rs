//! Owns the nouns of Cofferdam and the rules about them that need no outside world: ids, times, resources, specs,
//! limits, error kinds and the lifecycle table.
//!
//! Never does I/O, reads a clock, draws randomness or spawns anything: time and randomness arrive as parameters.

#![warn(missing_docs)]

pub mod error;
pub mod ids;
pub mod lifecycle;
pub mod limits;
pub mod secret;
pub mod spec;
pub mod time;

pub use error::{ErrorKind, LimitHit, LimitKind};
pub use ids::{Digest, KeyId, RequestId, SandboxId, TemplateId, TenantId};
pub use lifecycle::State;
pub use spec::{Resources, SandboxSpec, TemplateInfo};
pub use time::Timestamp;
