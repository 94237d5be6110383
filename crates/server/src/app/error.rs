//! Owns the errors of the use cases: their kind, what the caller may be told, and the chain for the log.
//!
//! The type has no `Display` on purpose: `public` is for the caller, `log` for the operator, and nobody mixes them up.

use cofferdam_core::{ErrorKind, LimitHit, LimitKind, Resources, SandboxId};
use cofferdam_proto::guest::{Failure, Reason};
use std::error::Error as StdError;

/// Why a use case did not happen.
#[derive(Debug)]
pub enum AppError {
    /// No key, or one that is not ours.
    Unauthenticated,
    /// The key lacks a scope.
    Denied(cofferdam_policy::Denied),
    /// A field of the request is not legal.
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// What is wrong with it, in words that follow the name.
        why: String,
    },
    /// No such sandbox for this tenant.
    SandboxNotFound(String),
    /// The sandbox is in a state in which this is not legal.
    SandboxState {
        /// The sandbox.
        id: SandboxId,
        /// Its state.
        state: cofferdam_core::State,
    },
    /// No such template for this tenant.
    TemplateNotFound(String),
    /// The template exists and has no such tag.
    TagNotFound {
        /// The tag.
        tag: String,
        /// The template as the caller named it.
        template: String,
    },
    /// Sandboxes still use the template.
    TemplateInUse(String),
    /// The name is taken by a template that the caller may not replace.
    TemplateTaken(String),
    /// No such key for this tenant.
    KeyNotFound(String),
    /// The name of the tenant is taken.
    TenantTaken(String),
    /// No such tenant.
    TenantNotFound(String),
    /// The page token is not one of ours.
    PageToken,
    /// The quota of the tenant stands in the way.
    Quota(cofferdam_policy::QuotaExceeded),
    /// The idempotency key was used with another request.
    IdempotencyMismatch,
    /// The first request with this idempotency key still runs.
    IdempotencyInFlight,
    /// The agent refused, with a reason the caller may know.
    Agent(Failure),
    /// A limit of the sandbox stands in the way.
    Limit(Failure, LimitHit),
    /// The connection to the agent broke or said nonsense.
    AgentLost(crate::guest::GuestError),
    /// The sandbox ended while the operation ran.
    SandboxEnded(SandboxId),
    /// The node refused, with a reason the caller may know.
    Node(Failure),
    /// The node has no room for another sandbox.
    NoCapacity(Failure),
    /// The node cannot be reached, or did not answer in time.
    NodeUnavailable(crate::cluster::LinkError),
    /// The content of a template did not come through whole.
    Pipe(std::io::Error),
    /// The record could not be written, so nothing was done.
    Audit(cofferdam_audit::AppendError),
    /// The record could not be read.
    AuditRead(cofferdam_audit::ReadError),
    /// The store failed.
    Store(crate::store::StoreError),
}

impl AppError {
    /// What kind of failure it is; statuses derive from it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unauthenticated => ErrorKind::Unauthenticated,
            Self::Denied(_) => ErrorKind::PermissionDenied,
            Self::Invalid { .. } | Self::PageToken | Self::IdempotencyMismatch | Self::Pipe(_) => {
                ErrorKind::InvalidArgument
            }
            Self::SandboxNotFound(_)
            | Self::TemplateNotFound(_)
            | Self::TagNotFound { .. }
            | Self::KeyNotFound(_)
            | Self::TenantNotFound(_) => ErrorKind::NotFound,
            Self::SandboxState { .. } | Self::IdempotencyInFlight | Self::TemplateInUse(_) => {
                ErrorKind::Conflict
            }
            Self::TemplateTaken(_) | Self::TenantTaken(_) => ErrorKind::AlreadyExists,
            Self::Quota(_) => ErrorKind::ResourceExhausted,
            Self::Agent(failure) | Self::Limit(failure, _) | Self::Node(failure) => failure.kind,
            Self::AgentLost(_) | Self::SandboxEnded(_) | Self::NodeUnavailable(_) | Self::NoCapacity(_) => {
                ErrorKind::Unavailable
            }
            Self::Audit(_) | Self::AuditRead(_) | Self::Store(_) => ErrorKind::Internal,
        }
    }

    /// What the caller may be told. An internal failure tells nothing.
    pub fn public(&self) -> String {
        match self {
            Self::Unauthenticated => "the API key is missing or unknown".to_owned(),
            Self::Denied(denied) => denied.to_string(),
            Self::Invalid { field, why } => format!("`{field}` {why}"),
            Self::SandboxNotFound(id) => {
                format!("Sandbox \"{id}\" doesn't exist or you don't have access to it")
            }
            Self::SandboxState { id, state } => format!("sandbox {id} is {}", state.as_str()),
            Self::TemplateNotFound(reference) => format!("template '{reference}' not found"),
            Self::TagNotFound { tag, template } => {
                format!("tag '{tag}' does not exist for template '{template}'")
            }
            Self::TemplateInUse(name) => format!("template '{name}' is in use by a sandbox"),
            Self::TemplateTaken(name) => format!("template '{name}' exists and is not yours"),
            Self::KeyNotFound(id) => format!("key '{id}' not found"),
            Self::TenantTaken(name) => format!("tenant '{name}' exists"),
            Self::TenantNotFound(id) => format!("tenant '{id}' not found"),
            Self::PageToken => "Invalid next token".to_owned(),
            Self::Quota(exceeded) => exceeded.to_string(),
            Self::IdempotencyMismatch => "idempotency key was used with a different request".to_owned(),
            Self::IdempotencyInFlight => "a request with this idempotency key is still running".to_owned(),
            Self::Agent(failure) | Self::Node(failure) if failure.kind != ErrorKind::Internal => {
                failure.message.clone()
            }
            Self::Limit(failure, hit) => format!("{}: {hit}", failure.message),
            Self::AgentLost(_) => "the connection to the sandbox was lost".to_owned(),
            Self::SandboxEnded(id) => format!("sandbox {id} ended"),
            Self::Pipe(_) => "the content did not come through whole".to_owned(),
            Self::NoCapacity(_) => "there is no capacity for another sandbox now, try again".to_owned(),
            Self::NodeUnavailable(_) => "the node is not reachable, try again".to_owned(),
            Self::Agent(_) | Self::Node(_) | Self::Audit(_) | Self::AuditRead(_) | Self::Store(_) => {
                "internal error".to_owned()
            }
        }
    }

    /// Finer than the kind, when the agent said so.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Agent(failure) | Self::Limit(failure, _) => failure.reason,
            _ => Reason::None,
        }
    }

    /// The limit that stands in the way, when one does.
    pub fn limit(&self) -> Option<LimitHit> {
        match self {
            Self::Limit(_, hit) => Some(*hit),
            _ => None,
        }
    }

    /// A refusal of an agent for want of something limited says which limit, once it is known whose it is.
    pub(super) fn within(self, resources: &Resources) -> Self {
        let Self::Agent(failure) = self else { return self };
        let (limit, configured) = match failure.reason {
            Reason::NoSpace => (LimitKind::Disk, u64::from(resources.disk_mib) * 1024 * 1024),
            Reason::NoProcesses => (LimitKind::Processes, u64::from(resources.processes)),
            _ => return Self::Agent(failure),
        };
        // Whoever is refused has used all of it.
        Self::Limit(failure, LimitHit { limit, configured, observed: configured })
    }

    /// Everything that is known, for the log.
    pub fn log(&self) -> String {
        let cause: Option<&dyn StdError> = match self {
            Self::Denied(e) => Some(e),
            Self::Quota(e) => Some(e),
            Self::Agent(e) | Self::Limit(e, _) | Self::Node(e) | Self::NoCapacity(e) => Some(e),
            Self::AgentLost(e) => Some(e),
            Self::NodeUnavailable(e) => Some(e),
            Self::Pipe(e) => Some(e),
            Self::Audit(e) => Some(e),
            Self::AuditRead(e) => Some(e),
            Self::Store(e) => Some(e),
            _ => None,
        };
        cause.map_or_else(|| self.public(), chain)
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

macro_rules! from {
    ($source:ty, $variant:ident) => {
        impl From<$source> for AppError {
            fn from(source: $source) -> Self {
                Self::$variant(source)
            }
        }
    };
}
from!(cofferdam_policy::Denied, Denied);
from!(cofferdam_policy::QuotaExceeded, Quota);
from!(cofferdam_audit::AppendError, Audit);
from!(cofferdam_audit::ReadError, AuditRead);
from!(crate::store::StoreError, Store);

impl From<crate::guest::GuestError> for AppError {
    fn from(error: crate::guest::GuestError) -> Self {
        match error {
            crate::guest::GuestError::Failed(failure) => Self::Agent(failure),
            other => Self::AgentLost(other),
        }
    }
}

impl From<crate::cluster::LinkError> for AppError {
    fn from(error: crate::cluster::LinkError) -> Self {
        match error {
            crate::cluster::LinkError::Failed(failure) => Self::Node(failure),
            other => Self::NodeUnavailable(other),
        }
    }
}
