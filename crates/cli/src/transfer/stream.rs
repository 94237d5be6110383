//! Owns request bodies that are read from files or threads as they are sent, in constant memory.

use crate::client::Body;
use crate::progress::Progress;
use bytes::Bytes;
use futures::StreamExt as _;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use std::io::{self, Read, Write};
use tokio::sync::mpsc;

const CHUNK_BYTES: usize = 256 * 1024;
/// Chunks that wait to be sent.
const QUEUE: usize = 4;

type Chunk = io::Result<Bytes>;

/// The content of `source`, at most `length` bytes, read by a thread of its own.
pub(crate) fn of_reader(mut source: impl Read + Send + 'static, length: u64, progress: &Progress) -> Body {
    of_thread(progress, move |sink| {
        let mut left = length;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
            let mut buffer = vec![0; want];
            let count = source.read(&mut buffer)?;
            if count == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter"));
            }
            buffer.truncate(count);
            left -= count as u64;
            sink.send(Bytes::from(buffer))?;
        }
        Ok(())
    })
}

/// What `produce` sends, from a thread of its own.
pub(crate) fn of_thread(
    progress: &Progress,
    produce: impl FnOnce(&mut Sink) -> io::Result<()> + Send + 'static,
) -> Body {
    let (sender, receiver) = mpsc::channel::<Chunk>(QUEUE);
    std::thread::spawn(move || {
        let mut sink = Sink { sender: sender.clone(), buffer: Vec::new() };
        let result = produce(&mut sink).and_then(|()| sink.flush());
        if let Err(error) = result {
            // Nobody listens when the request has failed already, for its own reason.
            sender.blocking_send(Err(error)).unwrap_or_default();
        }
    });
    let progress = progress.clone();
    let chunks = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|chunk| (chunk, receiver))
    });
    let frames = chunks.map(move |chunk| {
        chunk.map(|bytes| {
            progress.add(bytes.len() as u64);
            Frame::data(bytes)
        })
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Where a producing thread puts its bytes.
pub(crate) struct Sink {
    sender: mpsc::Sender<Chunk>,
    buffer: Vec<u8>,
}

impl Sink {
    fn send(&mut self, bytes: Bytes) -> io::Result<()> {
        self.sender.blocking_send(Ok(bytes)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let full = std::mem::take(&mut self.buffer);
        self.send(full.into())
    }
}
