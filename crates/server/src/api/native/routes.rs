//! Owns the list of native endpoints. A row says everything about one: where it is, what permission it takes, what the
//! record says of it, who handles it. Adding one is a row and a handler; tests walk the list.

use super::answer::Problem;
use super::{ask, exec, files, keys, misc, openapi, sandboxes, stream, templates};
use crate::app::App;
use axum::Router;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, delete, get, post, put};
use cofferdam_policy::Action;

/// One endpoint.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// What the caller must be allowed to do; `None` is for everybody, without a key.
    pub(super) action: Option<Action>,
    /// The event that the record begins with; `None` where nothing is changed and nothing inside is read.
    pub(super) audit: Option<&'static str>,
    /// For the document.
    pub(super) summary: &'static str,
    /// Type of the request body and of the answer, by their names in the document.
    pub(super) shapes: (Option<&'static str>, Option<&'static str>),
    handler: fn() -> MethodRouter<App>,
}

macro_rules! route {
    ($method:literal $path:literal, $action:expr, $audit:expr, $shapes:expr, $handler:expr, $summary:literal) => {
        Route {
            method: $method,
            path: $path,
            action: $action,
            audit: $audit,
            summary: $summary,
            shapes: $shapes,
            handler: || $handler,
        }
    };
}

/// Every endpoint.
#[rustfmt::skip]
pub(super) const ROUTES: &[Route] = &[
    route!("POST" "/v1/sandboxes", Some(Action::CreateSandbox), Some("sandbox_create_requested"),
        (Some("CreateSandbox"), Some("Sandbox")), post(sandboxes::create), "Make a sandbox"),
    route!("GET" "/v1/sandboxes", Some(Action::ReadSandboxes), None,
        (None, Some("SandboxList")), get(sandboxes::list), "List sandboxes"),
    route!("GET" "/v1/sandboxes/{id}", Some(Action::ReadSandboxes), None,
        (None, Some("Sandbox")), get(sandboxes::look), "Look at a sandbox"),
    route!("DELETE" "/v1/sandboxes/{id}", Some(Action::KillSandbox), Some("sandbox_kill_requested"),
        (None, None), delete(sandboxes::kill), "End a sandbox"),
    route!("POST" "/v1/sandboxes/{id}/timeout", Some(Action::ChangeDeadline), Some("deadline_change_requested"),
        (Some("SetTimeout"), Some("Sandbox")), post(sandboxes::set_timeout), "Move the end of a sandbox"),
    route!("GET" "/v1/sandboxes/{id}/metrics", Some(Action::ReadSandboxes), None,
        (None, Some("Usage")), get(misc::usage), "What a sandbox uses"),
    route!("GET" "/v1/sandboxes/{id}/logs", Some(Action::ReadLogs), None,
        (None, Some("LogList")), get(misc::logs), "What happened to and in a sandbox"),
    route!("POST" "/v1/sandboxes/{id}/exec", Some(Action::Exec), Some("command_requested"),
        (Some("ExecRequest"), Some("ExecResult")), post(exec::run), "Run a command to its end"),
    route!("GET" "/v1/sandboxes/{id}/exec/stream", Some(Action::Exec), Some("command_requested"),
        (None, None), get(stream::open), "Run a command over a WebSocket"),
    route!("GET" "/v1/sandboxes/{id}/files", Some(Action::ReadFiles), Some("file_read_requested"),
        (None, None), get(files::read), "Read a file"),
    route!("PUT" "/v1/sandboxes/{id}/files", Some(Action::WriteFiles), Some("file_change_requested"),
        (None, Some("FileList")), put(files::write), "Write a file"),
    route!("GET" "/v1/sandboxes/{id}/files/stat", Some(Action::ReadFiles), None,
        (None, Some("FileList")), get(files::stat), "Look at a path"),
    route!("GET" "/v1/sandboxes/{id}/files/list", Some(Action::ReadFiles), None,
        (None, Some("FileList")), get(files::list), "List a directory"),
    route!("POST" "/v1/sandboxes/{id}/files/mkdir", Some(Action::WriteFiles), Some("file_change_requested"),
        (Some("FilePath"), Some("FileList")), post(files::make_dir), "Make a directory and its parents"),
    route!("POST" "/v1/sandboxes/{id}/files/move", Some(Action::WriteFiles), Some("file_change_requested"),
        (Some("MoveFile"), Some("FileList")), post(files::rename), "Move a path"),
    route!("POST" "/v1/sandboxes/{id}/files/remove", Some(Action::WriteFiles), Some("file_change_requested"),
        (Some("FilePath"), None), post(files::remove), "Remove a path and all below it"),
    route!("GET" "/v1/templates", Some(Action::ReadTemplates), None,
        (None, Some("TemplateList")), get(templates::list), "List templates"),
    route!("GET" "/v1/templates/{name}", Some(Action::ReadTemplates), None,
        (None, Some("TemplateInfo")), get(templates::look), "Look at a template"),
    route!("PUT" "/v1/templates/{name}", Some(Action::ImportTemplate), Some("template_import_requested"),
        (None, None), put(templates::import), "Import a template; the answer is a stream of ImportEvent lines"),
    route!("DELETE" "/v1/templates/{name}", Some(Action::RemoveTemplate), Some("template_remove_requested"),
        (None, None), delete(templates::remove), "Remove a template"),
    route!("POST" "/v1/keys", Some(Action::CreateKey), Some("key_create_requested"),
        (Some("CreateKey"), Some("NewKey")), post(keys::create), "Make a key"),
    route!("GET" "/v1/keys", Some(Action::ReadKeys), None,
        (None, Some("KeyList")), get(keys::list), "List keys"),
    route!("DELETE" "/v1/keys/{id}", Some(Action::RevokeKey), Some("key_revoke_requested"),
        (None, None), delete(keys::revoke), "Revoke a key"),
    route!("POST" "/v1/tenants", Some(Action::ManageTenants), Some("tenant_create_requested"),
        (Some("CreateTenant"), Some("NewTenant")), post(keys::create_tenant), "Make a tenant"),
    route!("GET" "/v1/tenants", Some(Action::ManageTenants), None,
        (None, Some("TenantList")), get(keys::tenants), "List tenants"),
    route!("PUT" "/v1/tenants/{id}/quota", Some(Action::ManageTenants), Some("quota_change_requested"),
        (Some("TenantQuota"), None), put(keys::set_quota), "Set what a tenant may have"),
    route!("GET" "/v1/doctor", Some(Action::ReadHost), None,
        (None, Some("DoctorReport")), get(misc::doctor), "Check what the host can do"),
    route!("GET" "/v1/capacity", Some(Action::ReadHost), None,
        (None, Some("Capacity")), get(misc::capacity), "What the node can take"),
    route!("GET" "/v1/openapi.json", None, None,
        (None, None), get(openapi::document), "This document"),
];

/// The surface. What it does not know is left to the caller's fallback.
pub(crate) fn router(app: App) -> Router {
    let (mut open, mut closed) = (Router::new(), Router::new());
    for route in ROUTES {
        match route.action {
            None => open = open.route(route.path, (route.handler)()),
            Some(_) => closed = closed.route(route.path, (route.handler)()),
        }
    }
    let closed = closed.route_layer(from_fn_with_state(app.clone(), ask::authenticate));
    let wrong_method = async || Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
    let all = open.merge(closed).method_not_allowed_fallback(wrong_method);
    all.layer(from_fn(ask::with_id)).with_state(app)
}
