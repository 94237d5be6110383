//! Owns the endpoints that tell what sandboxes use and what happened in them.

use super::error::Error;
use super::lifecycle::alive;
use super::meter::{self, Sample};
use super::query::{Named, number, parameter, sandbox_id};
use crate::app::{Actor, App, AppError};
use axum::extract::{RawQuery, State};
use axum::{Extension, Json};
use cofferdam_audit::Row;
use cofferdam_core::{SandboxId, Timestamp};
use serde_json::{Map, Value, json};

/// Sandboxes in one request for metrics.
const MANY_MAX: usize = 100;
/// Rows of the record in one answer.
const LOGS_MAX: u32 = 1000;
/// Pages of the record that one request reads.
const LOG_PAGES_MAX: usize = 20;

/// `GET /sandboxes/{id}/metrics`: the figures of this moment. No history is kept.
pub(crate) async fn of_one(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Named(id): Named,
) -> Result<Json<Vec<Value>>, Error> {
    alive(&app, &actor, &id).await?;
    let agent = app.agent(&actor, &id).await?;
    Ok(Json(vec![shape(&meter::sample(&agent).await?)]))
}

/// `GET /sandboxes/metrics`: those that are not found are left out.
pub(crate) async fn of_many(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Error> {
    let ids = parameter(query.as_deref(), "sandbox_ids")?.unwrap_or_default();
    let ids = ids.split(',').filter(|id| !id.is_empty()).map(sandbox_id).collect::<Result<Vec<_>, _>>()?;
    if ids.len() > MANY_MAX {
        return Err(Error::bad_request(format!("sandbox_ids must name at most {MANY_MAX} sandboxes")));
    }
    let samples = ids.into_iter().map(async |id| {
        let agent = app.agent(&actor, &id).await?;
        Ok::<_, AppError>((id, meter::sample(&agent).await?))
    });
    let samples = futures::future::join_all(samples).await.into_iter().flatten();
    let found: Map<_, _> = samples.map(|(id, sample)| (id.to_string(), shape(&sample))).collect();
    Ok(Json(json!({ "sandboxes": found })))
}

/// `GET /sandboxes/{id}/logs?start&limit`: from an instant in unix milliseconds on, oldest first.
pub(crate) async fn logs_v1(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Named(id): Named,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Error> {
    let limit = number(query.as_deref(), "limit", 0..=LOGS_MAX)?.unwrap_or(LOGS_MAX);
    let start = millis(query.as_deref(), "start")?.unwrap_or(0);
    let rows = rows_since(&app, (&actor, &id), start, limit as usize).await?;
    let lines: Vec<_> = rows.iter().map(|row| json!({"timestamp": row.at, "line": line(row)})).collect();
    let entries: Vec<_> = rows.iter().map(entry).collect();
    Ok(Json(json!({"logs": lines, "logEntries": entries})))
}

/// `GET /v2/sandboxes/{id}/logs?cursor&limit&direction`: the cursor is an instant in unix milliseconds.
pub(crate) async fn logs_v2(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Named(id): Named,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Error> {
    let query = query.as_deref();
    let limit = number(query, "limit", 0..=LOGS_MAX)?.unwrap_or(LOGS_MAX) as usize;
    let cursor = millis(query, "cursor")?;
    let search = parameter(query, "search")?;
    let fits = |row: &Row| search.as_ref().is_none_or(|text| line(row).contains(text.as_str()));
    let entries: Vec<_> = match parameter(query, "direction")?.as_deref() {
        None | Some("backward") => {
            let rows = rows_since(&app, (&actor, &id), 0, usize::MAX).await?;
            let before = |row: &&Row| cursor.is_none_or(|cursor| millis_of(row) < cursor);
            rows.iter().rev().filter(before).filter(|row| fits(row)).take(limit).map(entry).collect()
        }
        Some("forward") => {
            let rows = rows_since(&app, (&actor, &id), cursor.unwrap_or(0), usize::MAX).await?;
            rows.iter().filter(|row| fits(row)).take(limit).map(entry).collect()
        }
        Some(other) => {
            return Err(Error::bad_request(format!("direction must be forward or backward, got '{other}'")));
        }
    };
    Ok(Json(json!({ "logs": entries })))
}

/// The record of the sandbox from `start` on, at most `limit` rows.
async fn rows_since(
    app: &App,
    (actor, id): (&Actor, &SandboxId),
    start: i64,
    limit: usize,
) -> Result<Vec<Row>, Error> {
    let (mut after, mut found) = (0, Vec::new());
    for _ in 0..LOG_PAGES_MAX {
        let (rows, cursor) = app.logs(actor, id, after, LOGS_MAX as usize).await?;
        let last = rows.len() < LOGS_MAX as usize;
        found.extend(rows.into_iter().filter(|row| millis_of(row) >= start));
        if last || found.len() >= limit {
            break;
        }
        after = cursor;
    }
    found.truncate(limit);
    Ok(found)
}

fn millis_of(row: &Row) -> i64 {
    Timestamp::parse_rfc3339(&row.at).map_or(0, |at| at.as_micros() / 1000)
}

fn millis(query: Option<&str>, wanted: &str) -> Result<Option<i64>, Error> {
    let Some(text) = parameter(query, wanted)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| Error::bad_request(format!("{wanted} must be unix milliseconds")))
}

/// Clients read a line as a JSON object with a level and a message.
fn line(row: &Row) -> String {
    let mut line = row.fields.as_object().cloned().unwrap_or_default();
    line.insert("level".into(), level(row).into());
    line.insert("message".into(), row.event.clone().into());
    line.insert("timestamp".into(), row.at.clone().into());
    Value::Object(line).to_string()
}

fn entry(row: &Row) -> Value {
    let fields = row.fields.as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields: Map<_, _> = fields.map(|(name, value)| (name.clone(), text(value).into())).collect();
    json!({"timestamp": row.at, "message": row.event, "level": level(row), "fields": fields})
}

fn level(row: &Row) -> &'static str {
    if row.event.ends_with("failed") { "error" } else { "info" }
}

fn shape(sample: &Sample) -> Value {
    json!({
        "timestamp": sample.at.to_string(),
        "timestampUnix": sample.at.as_micros() / 1_000_000,
        "cpuCount": sample.cpu_count,
        "cpuUsedPct": sample.cpu_used_pct,
        "memUsed": sample.mem_used,
        "memTotal": sample.mem_total,
        "memCache": sample.mem_cache,
        "diskUsed": sample.disk_used,
        "diskTotal": sample.disk_total,
    })
}
