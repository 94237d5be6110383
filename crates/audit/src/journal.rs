//! Owns writing the record: one `write` per event, in order, to the newest segment; recovery after a crash.
//!
//! An event is in the file when `append` returns; `sync`, called from time to time, makes it survive a power cut.

use crate::event::{Entry, Event};
use crate::files::{self, Segment};
use crate::line::{self, GENESIS, Hash, Link};
use cofferdam_core::Timestamp;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How the record is kept.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// A segment that has so many bytes is followed by a new one.
    pub segment_bytes: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { segment_bytes: 16 * 1024 * 1024 }
    }
}

/// The event could not be recorded; what it announces must not be done.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The file does not take it.
    #[error("append to the record")]
    Write(#[source] io::Error),
    /// An earlier failure left the file in doubt; the record has to be opened anew.
    #[error("record is closed after a failed append")]
    Closed,
    /// The event has no JSON form.
    #[error("encode an event")]
    Encode(#[source] serde_json::Error),
}

/// The record cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or the directory does not open.
    #[error("open the record in `{}`", .dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The last whole line is not a line of a record. Somebody else wrote there; appending would hide it.
    #[error("last line of `{}` is no record", .path.display())]
    Foreign {
        /// The segment.
        path: PathBuf,
    },
    /// The record could not be continued.
    #[error("continue the record")]
    Append(#[from] AppendError),
}

/// The record, open for appending. There must be one per directory.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    settings: Settings,
    writer: Mutex<Writer>,
}

#[derive(Debug)]
struct Writer {
    file: Arc<File>,
    /// Bytes of whole lines in `file`.
    bytes: u64,
    next_seq: u64,
    prev: Hash,
    /// Written since the last sync: `file`, and segments closed meanwhile.
    unsynced: Vec<Arc<File>>,
    closed: bool,
}

impl Journal {
    /// Opens the record in `dir`, which exists. Cuts off a torn last line, and records that at `now`.
    pub fn open(dir: &Path, settings: Settings, now: Timestamp) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { dir: dir.to_owned(), source };
        let segments = files::list(dir).map_err(io)?;
        let (writer, dropped_bytes) = match segments.as_slice() {
            [] => (Writer::start(&Segment::new(dir, 1), 1, GENESIS).map_err(io)?, 0),
            [.., newest] => Writer::resume(dir, &segments, newest)?,
        };
        let journal = Self { dir: dir.to_owned(), settings, writer: Mutex::new(writer) };
        if dropped_bytes > 0 {
            let entry = Entry { by: "server".to_owned(), ..Entry::default() };
            journal.append(now, &entry, &Event::RecordRecovered { dropped_bytes })?;
        }
        Ok(journal)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Records an event and gives its number. On an error nothing was recorded.
    pub fn append(&self, at: Timestamp, entry: &Entry, event: &Event) -> Result<u64, AppendError> {
        let mut writer = self.lock();
        if writer.closed {
            return Err(AppendError::Closed);
        }
        if writer.bytes >= self.settings.segment_bytes {
            writer.rotate(&self.dir)?;
        }
        writer.append(at, entry, event)
    }

    /// Number of the newest record.
    pub fn last_seq(&self) -> u64 {
        self.lock().next_seq - 1
    }

    /// Makes what was appended survive a power cut. Appends go on meanwhile.
    pub fn sync(&self) -> io::Result<()> {
        let files = std::mem::take(&mut self.lock().unsynced);
        for (index, file) in files.iter().enumerate() {
            if let Err(error) = file.sync_data() {
                self.lock().unsynced.extend_from_slice(&files[index..]);
                return Err(error);
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    fn start(segment: &Segment, next_seq: u64, prev: Hash) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(&segment.path)?;
        Ok(Self { file: Arc::new(file), bytes: 0, next_seq, prev, unsynced: Vec::new(), closed: false })
    }

    /// Continues after the last whole line; gives the number of bytes cut off behind it.
    fn resume(dir: &Path, all: &[Segment], newest: &Segment) -> Result<(Self, u64), OpenError> {
        let io = |source| OpenError::Io { dir: dir.to_owned(), source };
        let mut file = OpenOptions::new().read(true).append(true).open(&newest.path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let whole = end_of_last_line(&mut file, length).map_err(io)?;
        if whole < length {
            file.set_len(whole).map_err(io)?;
        }
        let foreign = || OpenError::Foreign { path: newest.path.clone() };
        let (next_seq, prev) = match (whole, all) {
            (0, [.., before, _]) => last_link(&before.path).map_err(io)?.ok_or_else(foreign)?,
            (0, _) => (newest.first_seq, GENESIS),
            _ => last_link(&newest.path).map_err(io)?.ok_or_else(foreign)?,
        };
        let file = Arc::new(file);
        let unsynced = Vec::new();
        Ok((Self { file, bytes: whole, next_seq, prev, unsynced, closed: false }, length - whole))
    }

    fn rotate(&mut self, dir: &Path) -> Result<(), AppendError> {
        let segment = Segment::new(dir, self.next_seq);
        let next = Self::start(&segment, self.next_seq, self.prev).map_err(AppendError::Write)?;
        let unsynced = std::mem::take(&mut self.unsynced);
        *self = Self { unsynced, ..next };
        Ok(())
    }

    fn append(&mut self, at: Timestamp, entry: &Entry, event: &Event) -> Result<u64, AppendError> {
        let seq = self.next_seq;
        let line = line::encode((seq, &self.prev), at, entry, event).map_err(AppendError::Encode)?;
        let written = match (&*self.file).write(&line) {
            Ok(written) if written == line.len() => Ok(()),
            Ok(_) => Err(io::Error::from(io::ErrorKind::StorageFull)),
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            // A part of the line may be there. It must not become the beginning of the next one.
            self.closed = self.file.set_len(self.bytes).is_err();
            return Err(AppendError::Write(error));
        }
        self.bytes += line.len() as u64;
        self.next_seq += 1;
        self.prev = line::hash(&line[..line.len() - 1]);
        if !self.unsynced.last().is_some_and(|file| Arc::ptr_eq(file, &self.file)) {
            self.unsynced.push(Arc::clone(&self.file));
        }
        Ok(seq)
    }
}

/// Where the last line feed ends, looking backwards.
fn end_of_last_line(file: &mut File, length: u64) -> io::Result<u64> {
    let mut end = length;
    let mut block = vec![0; 64 * 1024];
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = &mut block[..usize::try_from(end - start).unwrap_or(0)];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Number and `prev` of what follows the last line of a file; `None` when that is no record.
fn last_link(path: &Path) -> io::Result<Option<(u64, Hash)>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let end = end_of_last_line(&mut file, length)?;
    let start = end_of_last_line(&mut file, end.saturating_sub(1))?;
    file.seek(SeekFrom::Start(start))?;
    let mut line = Vec::new();
    file.take(end.saturating_sub(start + 1)).read_to_end(&mut line)?;
    let link: Option<Link> = serde_json::from_slice(&line).ok();
    Ok(link.map(|link| (link.seq + 1, line::hash(&line))))
}
