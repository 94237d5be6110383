//! Owns the endpoints about files.

use super::answer::{Answer, Problem};
use super::ask::{Body, Id, Query, Who};
use crate::app::{Agent, App};
use axum::Json;
use axum::body::Body as Content;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use cofferdam_proto::api::{FileList, FilePath, FileQuery, MoveFile};
use cofferdam_proto::guest::{Entry, Path, User};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::io;

/// Permission bits of a new file when none are asked for.
const MODE: u32 = 0o644;
/// Levels of a listing at most.
const DEPTH_MAX: u32 = 100;

pub(super) async fn read(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    Query(query): Query<FileQuery>,
) -> Answer<Response> {
    refuse(&query, ("read", false, false))?;
    let agent = app.agent(&actor, &id).await?;
    let file = agent.read(path(query.path, query.user), 0, None).await?;
    let length = file.length;
    let content = futures::stream::try_unfold(file, async |mut file| {
        let next = file.next().await.map_err(io::Error::other)?;
        Ok::<_, io::Error>(next.map(|bytes| (bytes, file)))
    });
    let response = Response::builder()
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::CONTENT_LENGTH, length)
        .body(Content::from_stream(content));
    response.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

pub(super) async fn write(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    Query(query): Query<FileQuery>,
    request: Request,
) -> Answer<Json<FileList>> {
    refuse(&query, ("write", false, true))?;
    let mode = query.mode.as_deref().map_or(Ok(MODE), parse_mode)?;
    let agent = app.agent(&actor, &id).await?;
    let mut upload = agent.write(path(query.path, query.user), BTreeMap::new(), mode).await?;
    let mut content = request.into_body().into_data_stream();
    while let Some(bytes) = content.next().await {
        let bytes = bytes.map_err(|_| Problem::bad_request("the body did not arrive whole"))?;
        upload.write(&bytes).await?;
    }
    Ok(one(upload.finish().await?))
}

pub(super) async fn stat(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    Query(query): Query<FileQuery>,
) -> Answer<Json<FileList>> {
    refuse(&query, ("stat", false, false))?;
    let agent = app.agent(&actor, &id).await?;
    Ok(one(agent.stat(path(query.path, query.user)).await?))
}

pub(super) async fn list(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    Query(query): Query<FileQuery>,
) -> Answer<Json<FileList>> {
    refuse(&query, ("list", true, false))?;
    let depth = query.depth.unwrap_or(1);
    if !(1..=DEPTH_MAX).contains(&depth) {
        return Err(Problem::bad_request(format!("`depth` must be between 1 and {DEPTH_MAX}")));
    }
    let agent = app.agent(&actor, &id).await?;
    let entries = agent.list_dir(path(query.path, query.user), depth).await?;
    Ok(Json(FileList { entries }))
}

pub(super) async fn make_dir(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    Body { value, .. }: Body<FilePath>,
) -> Answer<Json<FileList>> {
    let agent: Agent = app.agent(&actor, &id).await?;
    Ok(one(agent.make_dir(path(value.path, value.user)).await?))
}

pub(super) async fn rename(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    Body { value, .. }: Body<MoveFile>,
) -> Answer<Json<FileList>> {
    let agent = app.agent(&actor, &id).await?;
    Ok(one(agent.rename(path(value.source, value.user), value.destination).await?))
}

pub(super) async fn remove(
    State(app): State<App>,
    Who(actor): Who,
    Id(id): Id,
    Body { value, .. }: Body<FilePath>,
) -> Answer<StatusCode> {
    let agent = app.agent(&actor, &id).await?;
    agent.remove(path(value.path, value.user)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn one(entry: Entry) -> Json<FileList> {
    Json(FileList { entries: vec![entry] })
}

fn path(path: String, user: Option<String>) -> Path {
    Path { path, user: user.map_or(User::Default, User::Named) }
}

/// Refuses parts of a query that mean nothing here, so that a typing error is an error.
fn refuse(query: &FileQuery, (what, depth, mode): (&str, bool, bool)) -> Answer<()> {
    if query.depth.is_some() && !depth {
        return Err(Problem::bad_request(format!("`depth` means nothing to {what}")));
    }
    if query.mode.is_some() && !mode {
        return Err(Problem::bad_request(format!("`mode` means nothing to {what}")));
    }
    Ok(())
}

fn parse_mode(text: &str) -> Answer<u32> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| Problem::bad_request("`mode` must be permission bits in octal, for example 0755"))
}
