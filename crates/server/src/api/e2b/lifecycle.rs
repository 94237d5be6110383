//! Owns the endpoints about one sandbox: connect, resume, info, kill, timeout, refresh.

use super::body;
use super::error::Error;
use super::query::Named;
use super::shapes::{self, Sandbox};
use crate::app::{Actor, App, AppError, SandboxView};
use crate::http::Body;
use axum::extract::State;
use axum::{Extension, Json};
use cofferdam_core::SandboxId;
use cofferdam_core::limits::TIMEOUT_SECONDS_DEFAULT;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

/// Shortest extension of a refresh, in seconds.
const REFRESH_SECONDS_MIN: u64 = 15;
const REFRESH_SECONDS_MAX: u64 = 3600;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Connect {
    timeout: Option<i64>,
    /// False asks for a cold boot from disk; of a running sandbox it changes nothing.
    #[serde(rename = "memory")]
    _memory: Option<bool>,
}

#[derive(Deserialize)]
struct Timeout {
    timeout: i64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Refresh {
    duration: Option<i64>,
}

/// `POST /v2/sandboxes/{id}/connect`.
pub(crate) async fn connect_v2(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Named(id): Named,
    body: Body,
) -> Result<Json<Sandbox>, Error> {
    let connect: Connect = body::json(body).await?;
    let seconds = connect.timeout.map_or(Ok(TIMEOUT_SECONDS_DEFAULT), seconds)?;
    connect_running(&app, &actor, id, seconds).await
}

/// `POST /sandboxes/{id}/connect`.
pub(crate) async fn connect_v1(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Named(id): Named,
    body: Body,
) -> Result<Json<Sandbox>, Error> {
    let connect: Timeout = body::json(body).await?;
    connect_running(&app, &actor, id, seconds(connect.timeout)?).await
}

async fn connect_running(
    app: &App,
    actor: &Actor,
    id: SandboxId,
    seconds: u64,
) -> Result<Json<Sandbox>, Error> {
    alive(app, actor, &id).await?;
    let view = app.extend_timeout(actor, &id, seconds).await?;
    Ok(Json(Sandbox::new(&view, app.domain())))
}

/// `POST /sandboxes/{id}/resume`: only a paused sandbox can be resumed, and none can be paused yet.
pub(crate) async fn resume(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Named(id): Named,
) -> Result<StatusCode, Error> {
    let view = alive(&app, &actor, &id).await?;
    Err(Error::conflict(format!("Sandbox {} is already running", view.id)))
}

/// `GET /sandboxes/{id}`.
pub(crate) async fn info(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Named(id): Named,
) -> Result<Json<Value>, Error> {
    let view = alive(&app, &actor, &id).await?;
    let detail = shapes::detail(&view, app.domain());
    Ok(Json(detail.ok_or_else(|| AppError::SandboxNotFound(view.id.to_string()))?))
}

/// `DELETE /sandboxes/{id}`.
pub(crate) async fn kill(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Named(id): Named,
) -> Result<StatusCode, Error> {
    app.kill_sandbox(&actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /sandboxes/{id}/timeout`.
pub(crate) async fn timeout(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Named(id): Named,
    body: Body,
) -> Result<StatusCode, Error> {
    let timeout: Timeout = body::json(body).await?;
    app.set_timeout(&actor, &id, seconds(timeout.timeout)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /sandboxes/{id}/refreshes`.
pub(crate) async fn refresh(
    State(app): State<App>,
    Extension(actor): Extension<Actor>,
    Named(id): Named,
    body: Body,
) -> Result<StatusCode, Error> {
    let refresh: Refresh = body::json(body).await?;
    let seconds = seconds(refresh.duration.unwrap_or(0))?;
    if seconds > REFRESH_SECONDS_MAX {
        return Err(Error::bad_request(format!("duration must be from 0 to {REFRESH_SECONDS_MAX}")));
    }
    app.extend_timeout(&actor, &id, seconds.max(REFRESH_SECONDS_MIN)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The sandbox, when clients may still see it.
pub(crate) async fn alive(app: &App, actor: &Actor, id: &SandboxId) -> Result<SandboxView, Error> {
    let view = app.sandbox(actor, id).await?;
    if shapes::state(view.state).is_none() {
        return Err(AppError::SandboxNotFound(id.to_string()).into());
    }
    Ok(view)
}

fn seconds(timeout: i64) -> Result<u64, Error> {
    u64::try_from(timeout).map_err(|_| Error::bad_request("timeout must not be negative"))
}
