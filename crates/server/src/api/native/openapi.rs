//! Owns the document of the surface: the list of routes with the shapes that `openapi_shapes.json` describes.

use super::routes::{ROUTES, Route};
use axum::Json;
use serde_json::{Map, Value, json};
use std::sync::OnceLock;

/// Shapes of bodies, as JSON Schema.
const SHAPES: &str = include_str!("openapi_shapes.json");

pub(super) async fn document() -> Json<Value> {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    Json(DOCUMENT.get_or_init(build).clone())
}

/// The whole document.
pub(super) fn build() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    let shapes: Value = serde_json::from_str(SHAPES).expect("the file is part of the program and tested");
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cofferdam",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The native API. Errors have the shape ApiError; every answer has the header x-request-id.",
        },
        "paths": paths,
        "components": {
            "schemas": shapes,
            "securitySchemes": {
                "key": { "type": "apiKey", "in": "header", "name": "X-API-KEY" },
                "bearer": { "type": "http", "scheme": "bearer" },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters(route.path),
        "responses": {
            "default": { "description": "An error", "content": content("ApiError") },
        },
    });
    operation["responses"][success(route)] = match route.shapes.1 {
        Some(shape) => json!({ "description": "Done", "content": content(shape) }),
        None => json!({ "description": "Done" }),
    };
    if let Some(shape) = route.shapes.0 {
        operation["requestBody"] = json!({ "required": true, "content": content(shape) });
    }
    if let Some(action) = route.action {
        operation["security"] = json!([{ "key": [] }, { "bearer": [] }]);
        operation["x-scope"] = action.scope().as_str().into();
    }
    if let Some(event) = route.audit {
        operation["x-recorded-as"] = event.into();
    }
    operation
}

fn success(route: &Route) -> &'static str {
    match (route.method, route.shapes) {
        ("GET", _) if route.path.ends_with("/stream") => "101",
        ("POST", (Some(body), Some(_))) if body.starts_with("Create") => "201",
        ("DELETE", _) | (_, (Some(_), None)) => "204",
        _ => "200",
    }
}

fn parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path =
        |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
    let in_query = |(name, required): &(&str, bool)| json!({ "name": name, "in": "query", "required": required, "schema": { "type": "string" } });
    names.map(in_path).chain(queries(path).iter().map(in_query)).collect()
}

/// Names in the queries of a path, over all methods.
fn queries(path: &str) -> &'static [(&'static str, bool)] {
    match path {
        "/v1/sandboxes" => &[("state", false), ("next", false)],
        "/v1/sandboxes/{id}/logs" => &[("after", false), ("limit", false)],
        "/v1/sandboxes/{id}/files" => &[("path", true), ("user", false), ("mode", false)],
        "/v1/sandboxes/{id}/files/stat" => &[("path", true), ("user", false)],
        "/v1/sandboxes/{id}/files/list" => &[("path", true), ("user", false), ("depth", false)],
        "/v1/templates/{name}" => &[("format", false)],
        _ => &[],
    }
}

fn content(shape: &str) -> Value {
    json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{shape}") } } })
}
