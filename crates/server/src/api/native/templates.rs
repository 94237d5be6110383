//! Owns the endpoints about templates.

use super::answer::{Answer, Problem};
use super::ask::{Named, Query, Who};
use crate::app::{Actor, App, AppError, Progress, REQUEST};
use axum::Json;
use axum::body::Body as Content;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use cofferdam_core::TemplateInfo;
use cofferdam_proto::api::{ImportEvent, ImportQuery, TemplateList};
use cofferdam_proto::node::ImportFormat;
use futures::{Stream, StreamExt};
use std::io;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Steps of progress that may wait for a slow client; further ones are left out.
const STEPS_MAX: usize = 64;

pub(super) async fn list(State(app): State<App>, Who(actor): Who) -> Answer<Json<TemplateList>> {
    let templates = app.templates(&actor).await?.into_iter().map(|view| view.info).collect();
    Ok(Json(TemplateList { templates }))
}

pub(super) async fn look(
    State(app): State<App>,
    Who(actor): Who,
    Named(name): Named,
) -> Answer<Json<TemplateInfo>> {
    Ok(Json(app.template(&actor, &name).await?.info))
}

pub(super) async fn remove(
    State(app): State<App>,
    Who(actor): Who,
    Named(name): Named,
) -> Answer<StatusCode> {
    app.remove_template(&actor, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The answer begins when the content was read or the import failed: many clients do not listen before they have sent
/// everything. What fails by then has its own status; what fails later is the last line.
pub(super) async fn import(
    State(app): State<App>,
    Who(actor): Who,
    Named(name): Named,
    Query(query): Query<ImportQuery>,
    request: Request,
) -> Answer<Response> {
    let (all_read, read) = oneshot::channel();
    let content = telling(request.into_body(), all_read);
    let (progress, steps) = mpsc::channel(STEPS_MAX);
    let format = query.format.unwrap_or(ImportFormat::Rootfs);
    let mut import = start((app, actor), (name, format), content, progress);
    let finished = tokio::select! {
        biased;
        finished = &mut import => Some(joined(finished)),
        _ = read => None,
    };
    let lines = match finished {
        Some(Err(error)) => return Err(error.into()),
        Some(Ok(info)) => futures::stream::iter([event(&ImportEvent::Template(Box::new(info)))]).boxed(),
        None => rest(steps, import).boxed(),
    };
    let response = Response::builder().header(header::CONTENT_TYPE, "application/x-ndjson");
    let response = response.body(Content::from_stream(lines));
    response.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

type Imported = Result<TemplateInfo, AppError>;

fn start(
    (app, actor): (App, Actor),
    (name, format): (String, ImportFormat),
    content: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    progress: mpsc::Sender<Progress>,
) -> JoinHandle<Imported> {
    let request = REQUEST.try_with(Clone::clone).ok();
    let work = async move { app.import_template(&actor, (&name, format), content, progress).await };
    match request {
        Some(request) => tokio::spawn(REQUEST.scope(request, work)),
        None => tokio::spawn(work),
    }
}

fn joined(finished: Result<Imported, tokio::task::JoinError>) -> Imported {
    finished.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
}

/// The body, which says when it was read or dropped.
fn telling(
    body: Content,
    all_read: oneshot::Sender<()>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let content = body.into_data_stream().map(|bytes| bytes.map_err(io::Error::other));
    futures::stream::unfold((content, all_read), async |(mut content, all_read)| {
        let next = content.next().await?;
        Some((next, (content, all_read)))
    })
}

/// Progress as it comes, then the end.
fn rest(
    steps: mpsc::Receiver<Progress>,
    import: JoinHandle<Imported>,
) -> impl Stream<Item = io::Result<Bytes>> {
    let steps = tokio_stream::wrappers::ReceiverStream::new(steps);
    let steps = steps.map(|Progress { step, done, total }| ImportEvent::Progress { step, done, total });
    let end = futures::stream::once(async move {
        match joined(import.await) {
            Ok(info) => ImportEvent::Template(Box::new(info)),
            Err(error) => ImportEvent::Error(Problem::from(error).into_body()),
        }
    });
    steps.chain(end).map(|line| event(&line))
}

fn event(event: &ImportEvent) -> io::Result<Bytes> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line.into())
}
