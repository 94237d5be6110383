//! Owns `POST /files`: bodies in both forms become files inside, streamed, never held.

use super::encoding::{self, Encoding, Inflate};
use super::files::{FileQuery, refuse};
use super::session::Session;
use super::{disposition, entry, metadata};
use crate::api::e2b::error::Error;
use crate::app::{AppError, Upload};
use crate::http::Body;
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use cofferdam_core::limits::GUEST_DATA_BYTES_MAX;
use cofferdam_proto::guest::Entry;
use futures::{Stream, StreamExt};
use http::{HeaderMap, Request, Response, StatusCode, header};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::time::Duration;

/// Permission bits of a new file.
const MODE: u32 = 0o644;
/// How long the next piece of an upload may take.
const PIECE_TIME: Duration = Duration::from_secs(300);
/// How long the rest of a refused upload is read, so that a client that is still sending gets to see the answer.
const DRAIN_TIME: Duration = Duration::from_secs(60);
/// Files in one request.
const FILES_MAX: usize = 10_000;

type Pieces = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// `POST /files`.
pub(crate) async fn answer(session: Session, request: Request<Body>) -> Result<Response<Body>, Error> {
    let query = FileQuery::parse(request.uri().query());
    let (parts, body) = request.into_parts();
    let mut source = body.into_data_stream();
    let outcome = store(&query.clone().act(session), query.path, &parts.headers, &mut source).await;
    match outcome {
        Ok(written) => Ok(axum::Json(written.iter().map(entry::written).collect::<Vec<_>>()).into_response()),
        Err(error) => {
            // The answer goes out meanwhile.
            tokio::spawn(drain(source));
            Err(error)
        }
    }
}

async fn drain(mut source: impl Stream<Item = Result<Bytes, axum::Error>> + Unpin + Send) {
    let rest = async { while let Some(Ok(_)) = source.next().await {} };
    if tokio::time::timeout(DRAIN_TIME, rest).await.is_err() {
        tracing::debug!("a refused upload went on and on");
    }
}

async fn store(
    session: &Session,
    path: Option<String>,
    headers: &HeaderMap,
    source: &mut (impl Stream<Item = Result<Bytes, axum::Error>> + Unpin + Send),
) -> Result<Vec<Entry>, Error> {
    let target = Target { session, metadata: metadata::of(headers).map_err(Error::bad_request)? };
    let encoding = encoding::of_upload(headers).map_err(Error::bad_request)?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // The channel lets the multipart reader own a stream although the caller keeps the body to drain it.
    let (give, take) = tokio::sync::mpsc::channel(1);
    let pieces = decoded(Box::pin(tokio_stream::wrappers::ReceiverStream::new(take)), encoding);
    let work = async {
        match essence.as_str() {
            "multipart/form-data" => multipart(&target, path, kind, pieces).await,
            "application/octet-stream" => {
                let path = path.ok_or_else(|| Error::bad_request("query parameter path is required"))?;
                Ok(vec![target.write(&path, pieces).await?])
            }
            other => Err(Error::bad_request(format!(
                "unsupported Content-Type '{other}': send multipart/form-data or application/octet-stream"
            ))),
        }
    };
    tokio::pin!(work);
    tokio::select! {
        biased;
        outcome = &mut work => return outcome,
        () = feed(source, give) => {}
    }
    work.await
}

/// Moves pieces of the body into the channel until the body or its taker ends.
async fn feed(
    source: &mut (impl Stream<Item = Result<Bytes, axum::Error>> + Unpin + Send),
    give: tokio::sync::mpsc::Sender<io::Result<Bytes>>,
) {
    loop {
        let piece = match tokio::time::timeout(PIECE_TIME, source.next()).await {
            Ok(Some(piece)) => piece.map_err(io::Error::other),
            Ok(None) => return,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let broken = piece.is_err();
        if give.send(piece).await.is_err() || broken {
            return;
        }
    }
}

fn decoded(pieces: Pieces, encoding: Encoding) -> Pieces {
    match encoding {
        Encoding::Identity => pieces,
        Encoding::Gzip => Box::pin(inflated(pieces)),
    }
}

fn inflated(pieces: Pieces) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let state = (pieces, Some(Inflate::new()), Bytes::new());
    futures::stream::try_unfold(state, |(mut pieces, mut inflate, mut rest)| async move {
        loop {
            let Some(mut open) = inflate.take() else { return Ok(None) };
            if rest.is_empty() {
                match pieces.next().await {
                    Some(piece) => rest = piece?,
                    None => {
                        let last = open.finish().map_err(bad_gzip)?;
                        return Ok((!last.is_empty()).then(|| (last.into(), (pieces, None, rest))));
                    }
                }
            }
            let out = open.pull(&mut rest).map_err(bad_gzip)?;
            inflate = Some(open);
            if !out.is_empty() {
                return Ok(Some((Bytes::from(out), (pieces, inflate, rest))));
            }
        }
    })
}

fn bad_gzip(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("error decoding gzip body: {error}"))
}

async fn multipart(
    target: &Target<'_>,
    path: Option<String>,
    kind: &str,
    pieces: Pieces,
) -> Result<Vec<Entry>, Error> {
    let boundary = multer::parse_boundary(kind).map_err(|error| bad_form(&error))?;
    let mut form = multer::Multipart::new(pieces, boundary);
    let (mut written, mut named, mut resolved) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    while let Some(field) = form.next_field().await.map_err(|error| bad_form(&error))? {
        if field.name() != Some("file") {
            continue;
        }
        if written.len() >= FILES_MAX || (path.is_some() && !written.is_empty()) {
            return Err(Error::bad_request("more files than allowed: one when path is given"));
        }
        let raw = field.headers().get(header::CONTENT_DISPOSITION).map(http::HeaderValue::as_bytes);
        let name = raw.and_then(|raw| disposition::file_name(&String::from_utf8_lossy(raw)));
        let destination = path.clone().or(name).filter(|name| !name.is_empty());
        let destination =
            destination.ok_or_else(|| Error::bad_request("a part has no filename and path is not given"))?;
        if !named.insert(destination.clone()) {
            return Err(duplicate(&destination));
        }
        let pieces = field.map(|piece| piece.map_err(io::Error::other));
        let entry = target.write(&destination, pieces).await?;
        if !resolved.insert(entry.path.clone()) {
            return Err(duplicate(&entry.path));
        }
        written.push(entry);
    }
    Ok(written)
}

fn duplicate(path: &str) -> Error {
    Error::bad_request(format!(
        "the path '{path}' comes twice; you can upload only one file to the same path"
    ))
}

fn bad_form(error: &(dyn std::error::Error + 'static)) -> Error {
    bad_body(error, "error parsing multipart form")
}

/// What is wrong with a body, by the innermost cause that is ours.
fn bad_body(error: &(dyn std::error::Error + 'static), what: &str) -> Error {
    let causes = std::iter::successors(Some(error), |error| error.source());
    for cause in causes {
        let Some(io) = cause.downcast_ref::<io::Error>() else { continue };
        match io.kind() {
            io::ErrorKind::TimedOut => {
                return Error::new(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time");
            }
            io::ErrorKind::InvalidData => return Error::bad_request(io.to_string()),
            _ => {}
        }
    }
    Error::bad_request(format!("{what}: {error}"))
}

/// Whose files are written, and what is stored with each.
struct Target<'a> {
    session: &'a Session,
    metadata: BTreeMap<String, String>,
}

impl Target<'_> {
    async fn write(&self, path: &str, pieces: impl Stream<Item = io::Result<Bytes>>) -> Result<Entry, Error> {
        let destination = self.session.path(path);
        let outcome = match self.session.agent.write(destination, self.metadata.clone(), MODE).await {
            Ok(upload) => fill(upload, pieces).await,
            Err(error) => Err(Broken::Inside(error)),
        };
        match outcome {
            Ok(entry) => Ok(entry),
            Err(Broken::Inside(error)) => Err(refuse(self.session, error, path).await),
            Err(Broken::Outside(error)) => Err(bad_body(&error, "error reading the request body")),
        }
    }
}

enum Broken {
    Inside(AppError),
    Outside(io::Error),
}

/// Gives the content in large pieces: a small file must arrive as one write, whatever the network made of it.
async fn fill(mut upload: Upload, pieces: impl Stream<Item = io::Result<Bytes>>) -> Result<Entry, Broken> {
    tokio::pin!(pieces);
    let mut held = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        held.extend_from_slice(&piece.map_err(Broken::Outside)?);
        while held.len() >= GUEST_DATA_BYTES_MAX {
            let full = held.split_to(GUEST_DATA_BYTES_MAX);
            upload.write(&full).await.map_err(Broken::Inside)?;
        }
    }
    if !held.is_empty() {
        upload.write(&held).await.map_err(Broken::Inside)?;
    }
    upload.finish().await.map_err(Broken::Inside)
}
