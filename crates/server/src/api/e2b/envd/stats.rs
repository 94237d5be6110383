//! Owns `GET /metrics` of a sandbox: what it uses now.

use super::session::Session;
use crate::api::e2b::error::Error;
use crate::api::e2b::meter::{self, Sample};
use crate::http::Body;
use axum::response::IntoResponse;
use http::Response;
use serde_json::json;

/// `GET /metrics`.
pub(crate) async fn metrics(session: &Session) -> Result<Response<Body>, Error> {
    let sample = match meter::sample(&session.agent).await {
        Ok(sample) => sample,
        Err(error) => {
            session.settle(&error).await;
            return Err(error.into());
        }
    };
    Ok(axum::Json(shape(&sample)).into_response())
}

fn shape(sample: &Sample) -> serde_json::Value {
    let mib = |bytes: u64| bytes / (1024 * 1024);
    json!({
        "ts": sample.at.as_micros() / 1_000_000,
        "cpu_count": sample.cpu_count,
        "cpu_used_pct": sample.cpu_used_pct,
        "mem_total": sample.mem_total,
        "mem_used": sample.mem_used,
        "mem_cache": sample.mem_cache,
        "mem_total_mib": mib(sample.mem_total),
        "mem_used_mib": mib(sample.mem_used),
        "disk_used": sample.disk_used,
        "disk_total": sample.disk_total,
    })
}
