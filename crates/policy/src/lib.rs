//! Owns the pure decisions: which key may do what, and whether a tenant may have more.
//!
//! Never does I/O, reads a clock or logs. A positive answer is a value ([`Permit`], [`Admitted`]) that the next step
//! demands, so that leaving a check out does not compile.

#![warn(missing_docs)]

mod quota;
mod scopes;

pub use quota::{Admitted, InUse, Quota, QuotaExceeded, QuotaKind, admit};
pub use scopes::{Action, Denied, Permit, Scope, Scopes, UnknownScope, authorize};
