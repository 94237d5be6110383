//! Owns the way from a descriptor to plain archive bytes: waiting with a deadline, telling the compression by the first
//! bytes, bounding what comes out, and noticing an end that came too early.

use crate::templates::error::{Bound, ImportError};
use cofferdam_core::limits;
use std::io::{self, Read};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// How long an import waits for the next bytes.
const READ_DEADLINE: Duration = Duration::from_secs(60);
/// Zero bytes that end an archive; one block is enough, as for everyone else who reads archives.
const END_MARK_BYTES: u64 = 512;

/// A pipe whose reads give up after a deadline, or when the node stops. For threads that may block.
#[derive(Debug)]
pub(crate) struct PipeReader {
    pipe: pipe::Receiver,
    runtime: Handle,
    stopping: CancellationToken,
}

impl PipeReader {
    /// Must be called within a runtime; anything but the reading end of a pipe is refused.
    pub(crate) fn new(fd: std::os::fd::OwnedFd, stopping: CancellationToken) -> io::Result<Self> {
        Ok(Self { pipe: pipe::Receiver::from_owned_fd(fd)?, runtime: Handle::current(), stopping })
    }
}

impl Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { pipe, runtime, stopping } = self;
        let stopped = || Err(io::Error::new(io::ErrorKind::BrokenPipe, "the node is stopping"));
        runtime.block_on(async {
            let read = tokio::time::timeout(READ_DEADLINE, pipe.read(buffer));
            match stopping.run_until_cancelled(read).await {
                Some(Ok(read)) => read,
                Some(Err(_)) => Err(io::Error::new(io::ErrorKind::TimedOut, "no bytes for 60 seconds")),
                None => stopped(),
            }
        })
    }
}

/// Plain bytes of a stream that may be compressed, at most [`limits::IMPORT_BYTES_MAX`] of them.
pub(crate) struct Plain<'a> {
    inner: Box<dyn Read + 'a>,
    left: u64,
    read: u64,
    zeros_at_end: u64,
}

impl std::fmt::Debug for Plain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plain").field("read", &self.read).finish_non_exhaustive()
    }
}

impl<'a> Plain<'a> {
    pub(crate) fn new(mut source: impl Read + 'a) -> Result<Self, ImportError> {
        let mut magic = [0; 4];
        let length = read_up_to(&mut source, &mut magic).map_err(ImportError::Read)?;
        let whole = Read::chain(Read::take(io::Cursor::new(magic), length as u64), source);
        let inner: Box<dyn Read + 'a> = match magic {
            [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
            [0x28, 0xb5, 0x2f, 0xfd] => {
                Box::new(zstd::stream::read::Decoder::new(whole).map_err(ImportError::Read)?)
            }
            [0xfd, b'7', b'z', b'X'] | [b'B', b'Z', b'h', _] => {
                let problem = "xz and bzip2 are not supported; use gzip, zstd or no compression";
                return Err(ImportError::Refused { path: ".".into(), problem });
            }
            _ => Box::new(whole),
        };
        // One block above the bound, so that reaching it can be told from ending at it.
        let left = limits::IMPORT_BYTES_MAX + END_MARK_BYTES;
        Ok(Self { inner, left, read: 0, zeros_at_end: 0 })
    }

    /// To be called after the last member: tells an archive that ended from one that was cut at a member's border.
    pub(crate) fn check_end(&self) -> Result<(), ImportError> {
        if self.read == 0 {
            return Err(ImportError::Empty);
        }
        if self.left == 0 {
            return Err(ImportError::TooLarge(Bound::Bytes));
        }
        if self.zeros_at_end < END_MARK_BYTES { Err(ImportError::Truncated) } else { Ok(()) }
    }
}

impl Read for Plain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !buffer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the archive exceeds its bound"));
        }
        let want = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = self.inner.read(&mut buffer[..want])?;
        self.left -= got as u64;
        self.read += got as u64;
        let zeros = buffer[..got].iter().rev().take_while(|byte| **byte == 0).count();
        self.zeros_at_end = if zeros == got { self.zeros_at_end + got as u64 } else { zeros as u64 };
        Ok(got)
    }
}

fn read_up_to(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
