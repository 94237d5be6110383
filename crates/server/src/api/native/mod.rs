//! Owns the native surface: `/v1`, the types of `proto::api`, WebSocket for live commands, NDJSON for imports.

mod answer;
mod ask;
mod exec;
mod files;
mod keys;
mod misc;
mod openapi;
mod routes;
mod sandboxes;
mod stream;
mod templates;

pub(crate) use routes::router;

#[cfg(test)]
mod tests;
