//! Owns the endpoints about sandboxes as a whole.

use super::answer::{Answer, Problem};
use super::ask::{Body, Id, Query, Who};
use crate::app::{self, App, Idempotency, ListFilter, SandboxView};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use cofferdam_proto::api::{CreateSandbox, ListQuery, Sandbox, SandboxList, SetTimeout};
use sha2::{Digest, Sha256};

/// Header that makes a repetition answer with the same sandbox.
const IDEMPOTENCY_HEADER: &str = "idempotency-key";

pub(super) async fn create(
    State(app): State<App>,
    Who(actor): Who,
    headers: HeaderMap,
    Body { value, bytes }: Body<CreateSandbox>,
) -> Answer<(StatusCode, Json<Sandbox>)> {
    let request = app::CreateSandbox {
        template: value.template,
        timeout_seconds: value.timeout_seconds,
        resources: value.resources,
        env: value.env,
        metadata: value.metadata,
        secure: true,
        idempotency: idempotency(&headers, &bytes)?,
        ..app::CreateSandbox::default()
    };
    let view = app.create_sandbox(&actor, request).await?;
    Ok((StatusCode::CREATED, Json(shape(view))))
}

fn idempotency(headers: &HeaderMap, body: &[u8]) -> Answer<Option<Idempotency>> {
    let Some(key) = headers.get(IDEMPOTENCY_HEADER) else { return Ok(None) };
    let key = key.to_str().map_err(|_| Problem::bad_request("Idempotency-Key is not plain text"))?;
    Ok(Some(Idempotency { key: key.to_owned(), body_hash: Sha256::digest(body).into() }))
}

pub(super) async fn list(
    State(app): State<App>,
    Who(actor): Who,
    Query(query): Query<ListQuery>,
) -> Answer<Json<SandboxList>> {
    let names = query.state.iter().flat_map(|states| states.split(','));
    let states = names.map(|name| {
        let state = cofferdam_core::State::parse(name);
        state.ok_or_else(|| Problem::bad_request(format!("`state` has an unknown value `{name}`")))
    });
    let states = states.collect::<Answer<Vec<_>>>()?;
    let filter = ListFilter { states, page: query.next, ..ListFilter::default() };
    let page = app.list_sandboxes(&actor, filter).await?;
    Ok(Json(SandboxList { sandboxes: page.sandboxes.into_iter().map(shape).collect(), next: page.next }))
}

pub(super) async fn look(State(app): State<App>, Who(actor): Who, Id(id): Id) -> Answer<Json<Sandbox>> {
    Ok(Json(shape(app.sandbox(&actor, &id).await?)))
}

pub(super) async fn kill(State(app): State<App>, Who(actor): Who, Id(id): Id) -> Answer<StatusCode> {
    app.kill_sandbox(&actor, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn set_timeout(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    Body { value, .. }: Body<SetTimeout>,
) -> Answer<Json<Sandbox>> {
    Ok(Json(shape(app.set_timeout(&actor, &id, value.timeout_seconds).await?)))
}

fn shape(view: SandboxView) -> Sandbox {
    Sandbox {
        id: view.id,
        state: view.state,
        reason: view.reason,
        template: view.template.name,
        template_digest: view.template.digest,
        resources: view.resources,
        metadata: view.metadata,
        started_at: view.started_at.to_string(),
        expires_at: view.expires_at.to_string(),
    }
}
