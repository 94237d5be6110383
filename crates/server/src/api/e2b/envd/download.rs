//! Owns `GET /files`: a file as a stream, whole, in part or compressed, never held in memory.

use super::encoding::{self, Deflate, Encoding};
use super::files::{FileQuery, refuse};
use super::range::{self, Part};
use super::session::Session;
use super::{disposition, mime};
use crate::api::e2b::error::Error;
use crate::app::AppError;
use crate::gateway::lifeline::await_news;
use crate::guest::FileReader;
use crate::http::Body;
use bytes::Bytes;
use cofferdam_proto::guest::Entry;
use futures::Stream;
use http::request::Parts;
use http::response::Builder;
use http::{HeaderValue, Request, Response, StatusCode, header};
use std::collections::VecDeque;
use std::io;

/// `GET /files` and `HEAD /files`.
pub(crate) async fn answer(session: Session, request: Request<Body>) -> Result<Response<Body>, Error> {
    let (Parts { headers, uri, .. }, _) = request.into_parts();
    let query = FileQuery::parse(uri.query());
    let session = query.act(session);
    let path = query.path.unwrap_or_default();
    let ranged = range::is_asked(&headers);
    let encoding = if ranged { Some(Encoding::Identity) } else { encoding::accepted(&headers) };
    let encoding = encoding.ok_or_else(|| {
        Error::new(StatusCode::NOT_ACCEPTABLE, "no acceptable encoding: identity and gzip are available")
    })?;
    let mut file = Opened::open(&session, &path, 0, None).await?;
    let (size, modified) = (file.reader.length, file.reader.entry.modified_us);
    let part = if ranged { range::decide(&headers, size, modified) } else { Part::Whole };
    let entry = file.reader.entry.clone();
    match part {
        Part::NotModified => finish(common(&entry).status(StatusCode::NOT_MODIFIED), Body::empty()),
        Part::PreconditionFailed => Err(Error::new(StatusCode::PRECONDITION_FAILED, "precondition failed")),
        Part::Unsatisfiable => unsatisfiable(size),
        Part::Bytes { offset, length } => {
            let file = Opened::open(&session, &path, offset, Some(length)).await?;
            let range = format!("bytes {offset}-{}/{size}", offset + length - 1);
            let response =
                common(&entry).status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, range);
            finish(response.header(header::CONTENT_TYPE, mime::by_name(&entry.name)), file.body(length))
        }
        Part::Whole => {
            let kind = file.kind().await?;
            let encoding = if encoding == Encoding::Gzip && file.is_dense().await? {
                Encoding::Identity
            } else {
                encoding
            };
            let response = common(&entry).header(header::CONTENT_TYPE, kind);
            match encoding {
                Encoding::Identity => {
                    finish(response.header(header::ACCEPT_RANGES, "bytes"), file.body(size))
                }
                Encoding::Gzip => finish(response.header(header::CONTENT_ENCODING, "gzip"), file.gzip()),
            }
        }
    }
}

fn common(entry: &Entry) -> Builder {
    let disposition = HeaderValue::from_bytes(disposition::inline(&entry.name).as_bytes());
    Response::builder()
        .header(header::LAST_MODIFIED, httpdate::fmt_http_date(range::modified(entry.modified_us)))
        .header(header::CONTENT_DISPOSITION, disposition.unwrap_or(HeaderValue::from_static("inline")))
        .header(header::VARY, "Accept-Encoding")
}

fn unsatisfiable(size: u64) -> Result<Response<Body>, Error> {
    let response = Response::builder()
        .status(StatusCode::RANGE_NOT_SATISFIABLE)
        .header(header::CONTENT_RANGE, format!("bytes */{size}"))
        .header(header::CONTENT_TYPE, "application/json");
    finish(response, Body::from(r#"{"code":416,"message":"invalid range: it lies outside of the file"}"#))
}

fn finish(response: Builder, body: Body) -> Result<Response<Body>, Error> {
    response.body(body).map_err(|error| {
        tracing::error!(%error, "headers of a download");
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
    })
}

/// An open file, and the piece that was read to tell its type.
struct Opened<'a> {
    session: &'a Session,
    path: &'a str,
    reader: FileReader,
    first: Option<Bytes>,
}

impl<'a> Opened<'a> {
    async fn open(
        session: &'a Session,
        path: &'a str,
        offset: u64,
        length: Option<u64>,
    ) -> Result<Self, Error> {
        match session.agent.read(session.path(path), offset, length).await {
            Ok(reader) => Ok(Self { session, path, reader, first: None }),
            Err(error) => Err(refuse(session, error, path).await),
        }
    }

    /// The media type, by the name or else by the first bytes.
    async fn kind(&mut self) -> Result<&'static str, Error> {
        if let Some(known) = mime::by_extension(&self.reader.entry.name) {
            return Ok(known);
        }
        Ok(mime::sniff(self.peek().await?))
    }

    /// True when compressing would cost time and save nothing, told by the first bytes.
    async fn is_dense(&mut self) -> Result<bool, Error> {
        Ok(encoding::is_dense(self.peek().await?))
    }

    async fn peek(&mut self) -> Result<&[u8], Error> {
        if self.first.is_none() {
            match self.reader.next().await {
                Ok(first) => self.first = first,
                Err(error) => return Err(refuse(self.session, error.into(), self.path).await),
            }
        }
        Ok(self.first.as_deref().unwrap_or_default())
    }

    fn body(self, length: u64) -> Body {
        if length == 0 {
            return Body::empty();
        }
        Body::new(Sized { length, inner: Body::from_stream(self.pieces()) })
    }

    fn gzip(self) -> Body {
        let pieces = self.pieces();
        Body::from_stream(compressed(pieces))
    }

    fn pieces(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        let ended = self.session.agent.sandbox().ended().clone();
        let promised = self.reader.length;
        let state = (self.reader, self.first, 0u64);
        futures::stream::try_unfold(state, move |(mut reader, first, sent)| {
            let ended = ended.clone();
            async move {
                let piece = match first {
                    Some(first) => Some(first),
                    None => match reader.next().await {
                        Ok(piece) => piece,
                        Err(error) => {
                            let error = AppError::from(error);
                            tracing::debug!(error = error.log(), "download broke off");
                            await_news(&ended).await;
                            return Err(io::Error::other("download broke off"));
                        }
                    },
                };
                match piece {
                    Some(piece) => {
                        let sent = sent + piece.len() as u64;
                        Ok(Some((piece, (reader, None, sent))))
                    }
                    None if sent < promised => Err(io::Error::other("the file shrank")),
                    None => Ok(None),
                }
            }
        })
    }
}

/// A body whose length is known although it comes as a stream.
struct Sized {
    length: u64,
    inner: Body,
}

impl http_body::Body for Sized {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let frame = std::task::ready!(std::pin::Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let sent = frame.data_ref().map_or(0, |data| data.len() as u64);
            self.length = self.length.saturating_sub(sent);
        }
        std::task::Poll::Ready(frame)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.length)
    }
}

fn compressed(
    pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> {
    let state = (Box::pin(pieces), Some(Deflate::new()), VecDeque::<Bytes>::new());
    futures::stream::try_unfold(state, |(mut pieces, mut deflate, mut ready)| async move {
        loop {
            if let Some(piece) = ready.pop_front() {
                return Ok(Some((piece, (pieces, deflate, ready))));
            }
            let Some(mut open) = deflate.take() else { return Ok(None) };
            let out = match futures::StreamExt::next(&mut pieces).await {
                Some(piece) => {
                    let out = open.push(&piece?)?;
                    deflate = Some(open);
                    out
                }
                None => open.finish()?,
            };
            if !out.is_empty() {
                ready.push_back(out.into());
            }
        }
    })
}
