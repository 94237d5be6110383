//! Owns the endpoints about measured use, the record and the host.

use super::answer::Answer;
use super::ask::{Id, Query, Who};
use crate::app::App;
use axum::Json;
use axum::extract::State;
use cofferdam_proto::api::{DoctorReport, LogList, LogRow, LogsQuery};
use cofferdam_proto::node::{Capacity, Usage};

/// Rows of the record when no number is asked for.
const ROWS: usize = 1000;

pub(super) async fn usage(State(app): State<App>, Who(actor): Who, Id(id): Id) -> Answer<Json<Usage>> {
    Ok(Json(app.usage(&actor, &id).await?))
}

pub(super) async fn logs(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    Query(query): Query<LogsQuery>,
) -> Answer<Json<LogList>> {
    let (after, limit) = (query.after.unwrap_or(0), query.limit.unwrap_or(ROWS));
    let (rows, cursor) = app.logs(&actor, &id, after, limit).await?;
    let rows = rows.into_iter().map(|row| LogRow { at: row.at, event: row.event, fields: row.fields });
    Ok(Json(LogList { rows: rows.collect(), cursor }))
}

pub(super) async fn doctor(State(app): State<App>, Who(actor): Who) -> Answer<Json<DoctorReport>> {
    Ok(Json(DoctorReport { checks: app.doctor(&actor).await? }))
}

pub(super) async fn capacity(State(app): State<App>, Who(actor): Who) -> Answer<Json<Capacity>> {
    Ok(Json(app.capacity(&actor).await?))
}
