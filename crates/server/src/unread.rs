//! Owns request bodies that nobody read to their end. A connection with an unread rest can only be closed, and a client
//! that sends its next request on it at that moment gets no answer; so a short rest is read and thrown away.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Largest rest that is read for the sake of the connection.
const REST_BYTES_MAX: usize = 256 * 1024;
/// How long the rest may take to arrive.
const REST_DEADLINE: Duration = Duration::from_secs(2);

/// A body whose rest is read when it is dropped early.
pub(crate) struct Unread<B: Body<Data = Bytes> + Send + Unpin + 'static>(Option<B>);

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Unread<B> {
    /// Takes care of the rest of `body`.
    pub(crate) fn new(body: B) -> Self {
        Self(Some(body))
    }
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Body for Unread<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            // Nothing is left to read.
            self.0 = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B: Body<Data = Bytes> + Send + Unpin + 'static> Drop for Unread<B> {
    fn drop(&mut self) {
        let Some(body) = self.0.take().filter(|body| !body.is_end_stream()) else { return };
        let short = body.size_hint().upper().is_some_and(|bytes| bytes <= REST_BYTES_MAX as u64);
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && short
        {
            runtime.spawn(tokio::time::timeout(REST_DEADLINE, read_rest(body)));
        }
    }
}

async fn read_rest<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    while let Some(Ok(_)) = body.frame().await {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;
    use std::convert::Infallible;

    #[tokio::test]
    async fn a_short_rest_is_read_although_the_body_was_dropped() {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
        let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
        drop(Unread::new(Known(StreamBody::new(stream))));
        for _ in 0..3 {
            sender.send(Ok(Frame::data(Bytes::from_static(b"rest")))).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_rest_of_unknown_length_is_left() {
        let (sender, receiver) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
        drop(Unread::new(StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(receiver))));
        assert!(sender.send(Ok(Frame::data(Bytes::from_static(b"rest")))).await.is_err());
    }

    /// A body that announces a short length.
    struct Known<B>(B);

    impl<B: Body<Data = Bytes> + Unpin> Body for Known<B> {
        type Data = Bytes;
        type Error = B::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
            Pin::new(&mut self.0).poll_frame(cx)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(12)
        }
    }
}
