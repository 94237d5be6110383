//! Owns the bond between a request and the sandbox it goes to: when the sandbox ends, the client must see a broken
//! connection, never an orderly end. Over HTTP/1 the whole connection is reset; over HTTP/2 only the stream.

use crate::http::{Body, Breaker, Cut, Outcome};
use bytes::Bytes;
use http::Version;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

/// How long an error from inside waits for the news that the sandbox ended, which may be its cause.
pub(crate) const NEWS_TIME: Duration = Duration::from_secs(2);

/// Answers with `work`, bound to the sandbox whose end `ended` tells.
pub(crate) async fn bind(
    ended: CancellationToken,
    breaker: Breaker,
    version: Version,
    work: impl Future<Output = Outcome>,
) -> Outcome {
    let whole = (version < Version::HTTP_2).then(|| Whole::watch(ended.clone(), breaker));
    let response = tokio::select! {
        biased;
        () = ended.cancelled() => {
            whole.iter().for_each(|whole| whole.breaker.break_now());
            return Err(Cut);
        }
        outcome = work => outcome?,
    };
    Ok(response.map(|body| Body::new(Bound::new(body, ended, whole))))
}

/// Waits until the sandbox has ended, but not for long; for errors that its end may have caused.
pub(crate) async fn await_news(ended: &CancellationToken) {
    let news = tokio::time::timeout(NEWS_TIME, ended.cancelled()).await;
    tracing::debug!(ended = news.is_ok(), "a connection into a sandbox broke");
}

/// A connection that ends with the sandbox as a whole, for as long as this is held.
struct Whole {
    breaker: Breaker,
    _watch: DropGuard,
}

impl Whole {
    /// Watches in a task of its own, because the connection may be waiting for a slow client and not poll the body.
    fn watch(ended: CancellationToken, breaker: Breaker) -> Self {
        let over = CancellationToken::new();
        let watch = over.clone().drop_guard();
        let theirs = breaker.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = over.cancelled() => {}
                () = ended.cancelled() => theirs.break_now(),
            }
        });
        Self { breaker, _watch: watch }
    }
}

/// A body that fails when the sandbox ends.
struct Bound {
    inner: Body,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    failed: Option<(axum::Error, Pin<Box<Sleep>>)>,
    whole: Option<Whole>,
}

impl Bound {
    fn new(inner: Body, ended: CancellationToken, whole: Option<Whole>) -> Self {
        Self { inner, ended: Box::pin(ended.cancelled_owned()), failed: None, whole }
    }
}

impl http_body::Body for Bound {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended.as_mut().poll(cx).is_ready() {
            // Before the error is known to the connection, which would end in good order otherwise.
            self.whole.iter().for_each(|whole| whole.breaker.break_now());
            return Poll::Ready(Some(Err(axum::Error::new(Cut))));
        }
        if self.failed.is_none() {
            match ready!(Pin::new(&mut self.inner).poll_frame(cx)) {
                Some(Err(error)) => self.failed = Some((error, Box::pin(tokio::time::sleep(NEWS_TIME)))),
                frame => return Poll::Ready(frame),
            }
        }
        if let Some((_, patience)) = &mut self.failed {
            ready!(patience.as_mut().poll(cx));
        }
        Poll::Ready(self.failed.take().map(|(error, _)| Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
