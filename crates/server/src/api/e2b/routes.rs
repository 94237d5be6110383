//! Owns the list of all routes of the control plane. Each says what it needs before its handler runs; tests walk the
//! list. What this version cannot do is listed too, so that it answers with what is missing.

use super::{cors, create, lifecycle, list, telemetry, templates};
use crate::api::e2b::error::Error;
use crate::app::{Actor, App};
use crate::http::Body;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, get, on};
use http::{HeaderMap, Method, StatusCode, header};

/// What a request must bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing.
    Nothing,
    /// An API key.
    Key,
}

/// One route.
#[cfg_attr(not(test), expect(dead_code, reason = "tests walk the list by all of its columns"))]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) needs: Needs,
    /// True when the path names a sandbox that must belong to the caller.
    pub(crate) of_sandbox: bool,
    handler: MethodRouter<App>,
}

fn keyed(method: Method, path: &'static str, handler: MethodRouter<App>) -> Route {
    Route { method, path, needs: Needs::Key, of_sandbox: path.starts_with("/sandboxes/{id}"), handler }
}

fn working() -> Vec<Route> {
    let v2 = |route: Route| Route { of_sandbox: true, ..route };
    vec![
        Route {
            needs: Needs::Nothing,
            ..keyed(Method::GET, "/health", get(|| async { StatusCode::NO_CONTENT }))
        },
        keyed(Method::POST, "/v2/sandboxes", axum::routing::post(create::v2)),
        keyed(Method::GET, "/v2/sandboxes", get(list::v2)),
        keyed(Method::POST, "/sandboxes", axum::routing::post(create::v1)),
        keyed(Method::GET, "/sandboxes", get(list::v1)),
        v2(keyed(Method::POST, "/v2/sandboxes/{id}/connect", axum::routing::post(lifecycle::connect_v2))),
        keyed(Method::POST, "/sandboxes/{id}/connect", axum::routing::post(lifecycle::connect_v1)),
        keyed(Method::GET, "/sandboxes/{id}", get(lifecycle::info)),
        keyed(Method::DELETE, "/sandboxes/{id}", axum::routing::delete(lifecycle::kill)),
        keyed(Method::POST, "/sandboxes/{id}/timeout", axum::routing::post(lifecycle::timeout)),
        keyed(Method::POST, "/sandboxes/{id}/refreshes", axum::routing::post(lifecycle::refresh)),
        keyed(Method::POST, "/sandboxes/{id}/resume", axum::routing::post(lifecycle::resume)),
        keyed(Method::GET, "/sandboxes/{id}/metrics", get(telemetry::of_one)),
        Route { of_sandbox: false, ..keyed(Method::GET, "/sandboxes/metrics", get(telemetry::of_many)) },
        keyed(Method::GET, "/sandboxes/{id}/logs", get(telemetry::logs_v1)),
        v2(keyed(Method::GET, "/v2/sandboxes/{id}/logs", get(telemetry::logs_v2))),
        keyed(Method::GET, "/templates", get(templates::list)),
        keyed(Method::GET, "/templates/aliases/{alias}", get(templates::alias)),
        keyed(Method::DELETE, "/templates/{id}", axum::routing::delete(templates::remove)),
    ]
}

/// Methods and paths that E2B has and this version has not, with what is missing.
const MISSING: [(&str, &str, &str); 36] = [
    ("POST", "/sandboxes/{id}/pause", "pausing a sandbox is"),
    ("POST", "/sandboxes/{id}/snapshots", "snapshots are"),
    ("GET", "/snapshots", "snapshots are"),
    ("POST", "/sandboxes/{id}/fork", "forking a sandbox is"),
    ("PUT", "/sandboxes/{id}/network", "a network for sandboxes is"),
    ("POST", "/v3/templates", "building templates over this API is"),
    ("POST", "/v2/templates", "building templates over this API is"),
    ("POST", "/templates", "building templates over this API is"),
    ("GET", "/v2/templates", "the paginated list of templates is"),
    ("GET", "/templates/{id}", "the list of template builds is"),
    ("POST", "/templates/{id}", "building templates over this API is"),
    ("PATCH", "/templates/{id}", "publishing templates is"),
    ("PATCH", "/v2/templates/{id}", "publishing templates is"),
    ("GET", "/templates/{id}/files/{hash}", "building templates over this API is"),
    ("POST", "/templates/{id}/builds/{build}", "building templates over this API is"),
    ("POST", "/v2/templates/{id}/builds/{build}", "building templates over this API is"),
    ("GET", "/templates/{id}/builds/{build}/status", "building templates over this API is"),
    ("GET", "/templates/{id}/builds/{build}/logs", "building templates over this API is"),
    ("POST", "/templates/tags", "template tags are"),
    ("DELETE", "/templates/tags", "template tags are"),
    ("GET", "/templates/{id}/tags", "template tags are"),
    ("GET", "/default-templates", "default templates are"),
    ("GET", "/volumes", "volumes are"),
    ("POST", "/volumes", "volumes are"),
    ("GET", "/volumes/{id}", "volumes are"),
    ("DELETE", "/volumes/{id}", "volumes are"),
    ("GET", "/secrets", "secrets are"),
    ("POST", "/secrets", "secrets are"),
    ("GET", "/secrets/{id}", "secrets are"),
    ("POST", "/secrets/{id}", "secrets are"),
    ("DELETE", "/secrets/{id}", "secrets are"),
    ("GET", "/teams", "teams over this API are"),
    ("GET", "/teams/{id}/metrics", "team metrics are"),
    ("GET", "/teams/{id}/metrics/max", "team metrics are"),
    ("GET", "/api-keys", "managing keys over this API (use `cofferdam key`) is"),
    ("POST", "/api-keys", "managing keys over this API (use `cofferdam key`) is"),
];

fn missing() -> impl Iterator<Item = Route> {
    MISSING.into_iter().filter_map(|(method, path, what)| {
        let method: Method = method.parse().ok()?;
        let filter = MethodFilter::try_from(method.clone()).ok()?;
        let answer = move || async move { Error::not_implemented(what) };
        Some(Route { of_sandbox: false, ..keyed(method, path, on(filter, answer)) })
    })
}

/// All routes.
pub(crate) fn all() -> Vec<Route> {
    let mut routes = working();
    routes.extend(missing());
    routes
}

/// The control plane of this surface. What it does not know is left to the caller's fallback.
pub(crate) fn router(app: App) -> Router {
    let mut open = Router::new();
    let mut closed = Router::new();
    for route in all() {
        match route.needs {
            Needs::Nothing => open = open.route(route.path, route.handler),
            Needs::Key => closed = closed.route(route.path, route.handler),
        }
    }
    let closed = closed.route_layer(from_fn_with_state(app.clone(), authenticate));
    let all = open.merge(closed).method_not_allowed_fallback(|| async { wrong_method() });
    all.layer(axum::middleware::from_fn(browsers)).with_state(app)
}

/// What is at no route.
pub(crate) fn unknown() -> Response {
    Error::new(StatusCode::NOT_FOUND, "no such endpoint").into_response()
}

fn wrong_method() -> Response {
    Error::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed").into_response()
}

async fn authenticate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    match actor(&app, request.headers()).await {
        Ok(actor) => {
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

async fn actor(app: &App, headers: &HeaderMap) -> Result<Actor, Error> {
    let key = headers.get("x-api-key").and_then(|value| value.to_str().ok());
    let bearer = || headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ");
    let key = key.or_else(bearer).map(str::trim).filter(|key| !key.is_empty());
    let key =
        key.ok_or_else(|| Error::new(StatusCode::UNAUTHORIZED, "missing API key (header X-API-KEY)"))?;
    Ok(app.authenticate(key).await?)
}

async fn browsers(request: Request, next: Next) -> Response {
    let request = request.map(Body::new);
    if let Some(answer) = cors::preflight(&request) {
        return answer;
    }
    let asked = cors::is_asked(request.headers());
    cors::open(asked, next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_listed_once_and_needs_a_key() {
        let mut seen = BTreeSet::new();
        for route in all() {
            assert!(seen.insert((route.method.to_string(), route.path)), "{} {}", route.method, route.path);
            assert_eq!(route.needs == Needs::Nothing, route.path == "/health", "{}", route.path);
            assert!(!route.of_sandbox || route.path.contains("/sandboxes/{id}"), "{}", route.path);
        }
        assert_eq!(all().len(), working().len() + MISSING.len());
    }
}
