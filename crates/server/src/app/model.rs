//! Owns what use cases take and give: requests and views without any surface's words.

use crate::store::{KeyRow, SandboxRow, TenantRow};
use cofferdam_core::secret::Secret;
use cofferdam_core::{KeyId, Resources, SandboxId, State, TemplateId, TenantId, Timestamp};
use cofferdam_policy::{Quota, Scopes};
use cofferdam_proto::api::ResourceOverrides;
use std::collections::BTreeMap;

/// A known caller of the control plane.
#[derive(Debug, Clone)]
pub struct Actor {
    /// Whose objects it sees.
    pub tenant: TenantId,
    /// The key it came with.
    pub key: KeyId,
    /// What the key may do.
    pub scopes: Scopes,
}

impl Actor {
    /// Who it is, for the record.
    pub fn caller(&self) -> Caller {
        Caller::Key(self.key.clone())
    }
}

/// Who does something inside a sandbox, for the record.
#[derive(Debug, Clone)]
pub enum Caller {
    /// A holder of an API key.
    Key(KeyId),
    /// A holder of the access token of the sandbox (or of a signature made with it).
    Token,
    /// Anybody, where the sandbox is not secured.
    Anyone,
}

impl Caller {
    /// As the record has it.
    pub fn recorded(&self) -> String {
        match self {
            Self::Key(id) => format!("key:{id}"),
            Self::Token => "token".to_owned(),
            Self::Anyone => "anyone".to_owned(),
        }
    }
}

/// What a sandbox is asked to be.
#[derive(Debug, Clone, Default)]
pub struct CreateSandbox {
    /// Its id, from [`crate::app::App::new_sandbox_id`], when the surface must know it beforehand.
    pub id: Option<SandboxId>,
    /// Template id, `name`, `namespace/name`, each optionally with `:tag`; `base` if absent.
    pub template: Option<String>,
    /// Life span in seconds; 300 if absent.
    pub timeout_seconds: Option<u64>,
    /// Limits that differ from the defaults.
    pub resources: ResourceOverrides,
    /// Environment of every process.
    pub env: BTreeMap<String, String>,
    /// What a surface adds once it is known which sandbox of which template it will be.
    pub identity: Option<fn(&SandboxId, &TemplateId) -> Identity>,
    /// Free pairs, filterable.
    pub metadata: BTreeMap<String, String>,
    /// Commands and files through the gateway need the access token.
    pub secure: bool,
    /// Ports through the gateway need the traffic token.
    pub private_ingress: bool,
    /// Facts a surface wants back unchanged (an object); the use cases do not read it.
    pub options: serde_json::Value,
    /// Makes a repetition answer with the same sandbox.
    pub idempotency: Option<Idempotency>,
}

/// What tells programs in a sandbox where they are.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Variables of every process; they win over those of the request.
    pub env: BTreeMap<String, String>,
    /// Small files, absolute path to content.
    pub files: BTreeMap<String, String>,
}

/// An idempotency key and what it was used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// As the client sent it.
    pub key: String,
    /// SHA-256 of the request it came with.
    pub body_hash: [u8; 32],
}

/// A sandbox as its owner sees it.
#[derive(Debug, Clone)]
pub struct SandboxView {
    /// Its id.
    pub id: SandboxId,
    /// Its owner.
    pub tenant: TenantId,
    /// Where it is in its life.
    pub state: State,
    /// Why, when it has ended.
    pub reason: Option<String>,
    /// Its template.
    pub template: TemplateRef,
    /// Limits in force.
    pub resources: Resources,
    /// Free pairs.
    pub metadata: BTreeMap<String, String>,
    /// Start of its life.
    pub started_at: Timestamp,
    /// Planned end, microsecond exact.
    pub expires_at: Timestamp,
    /// Access token; `None` when it is not secured.
    pub access_token: Option<Secret>,
    /// Traffic token; `None` when its ports are public.
    pub traffic_token: Option<Secret>,
    /// As given at creation.
    pub options: serde_json::Value,
}

/// The template a sandbox was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRef {
    /// Its id.
    pub id: TemplateId,
    /// Its short name.
    pub name: String,
    /// The exact build.
    pub digest: String,
    /// User when the caller names none.
    pub default_user: String,
    /// Working directory when the caller names none; the user's home if empty.
    pub default_workdir: String,
}

/// Which sandboxes to list.
#[derive(Debug, Clone)]
pub struct ListFilter {
    /// Only these states; empty is all that are not final.
    pub states: Vec<State>,
    /// Only those with all of these pairs.
    pub metadata: BTreeMap<String, String>,
    /// Only of this template (id or name).
    pub template: Option<String>,
    /// Only those started then or later.
    pub started_after: Option<Timestamp>,
    /// By start, oldest first; otherwise newest first.
    pub ascending: bool,
    /// Largest number in one page, 1 to 100.
    pub limit: u32,
    /// `next` of the page before.
    pub page: Option<String>,
}

impl Default for ListFilter {
    fn default() -> Self {
        Self {
            states: Vec::new(),
            metadata: BTreeMap::new(),
            template: None,
            started_after: None,
            ascending: false,
            limit: 100,
            page: None,
        }
    }
}

/// A page of sandboxes.
#[derive(Debug, Clone)]
pub struct SandboxPage {
    /// The sandboxes.
    pub sandboxes: Vec<SandboxView>,
    /// Token of the next page, when there is one.
    pub next: Option<String>,
    /// Number of running sandboxes that match the filter (its states aside), over all pages.
    pub running: u64,
}

impl From<SandboxRow> for SandboxView {
    fn from(row: SandboxRow) -> Self {
        Self {
            id: row.id,
            tenant: row.tenant,
            state: row.observed,
            reason: row.end_reason,
            template: TemplateRef {
                id: row.template_id,
                name: row.template_name,
                digest: row.template_digest,
                default_user: row.default_user,
                default_workdir: row.default_workdir,
            },
            resources: row.resources,
            metadata: row.metadata,
            started_at: row.started_at,
            expires_at: row.expires_at,
            access_token: row.access_token,
            traffic_token: row.traffic_token,
            options: row.options,
        }
    }
}

/// A key without its text.
#[derive(Debug, Clone)]
pub struct KeyView {
    /// Its id.
    pub id: KeyId,
    /// For people.
    pub name: String,
    /// First characters of its text.
    pub masked: String,
    /// What it may do.
    pub scopes: Scopes,
    /// When it was made.
    pub created_at: Timestamp,
}

impl From<KeyRow> for KeyView {
    fn from(row: KeyRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            masked: row.masked,
            scopes: row.scopes,
            created_at: row.created_at,
        }
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    /// Its id.
    pub id: TenantId,
    /// For people; unique.
    pub name: String,
    /// What it may have.
    pub quota: Quota,
    /// When it was made.
    pub created_at: Timestamp,
}

impl From<TenantRow> for TenantView {
    fn from(row: TenantRow) -> Self {
        Self { id: row.id, name: row.name, quota: row.quota, created_at: row.created_at }
    }
}

tokio::task_local! {
    /// The request of a client that the current task serves; the record names it.
    pub static REQUEST: cofferdam_core::RequestId;
}

/// The request that the current task serves, if it serves one.
pub(super) fn current_request() -> Option<cofferdam_core::RequestId> {
    REQUEST.try_with(Clone::clone).ok()
}
