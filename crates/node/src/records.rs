//! Owns the records of slots on disk, `node/slots/<n>.json`: which slot is in use, by which sandbox, and which process is
//! its first. A record is there before anything of a slot is made and goes after everything of it is gone, so what a
//! node that died left behind can be found. Written by rename and not synced: it must survive a kill of the node, and a
//! reboot ends the sandboxes anyway.

use crate::isolation::{ProcessIdentity, Slot};
use cofferdam_core::{Digest, SandboxSpec, Timestamp};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Largest record that is read.
const RECORD_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// What a slot is in use for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) slot: Slot,
    /// Absent while it is made or waits in the pool: after a restart it is destroyed.
    pub(crate) claim: Option<Claim>,
}

/// A sandbox that was handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) spec: SandboxSpec,
    pub(crate) process: ProcessIdentity,
    pub(crate) started_at: Timestamp,
}

impl Claim {
    /// The tree it runs on.
    pub(crate) fn digest(&self) -> &Digest {
        &self.spec.digest
    }
}

/// What was found at the start.
#[derive(Debug)]
pub(crate) enum Found {
    Record(Box<Record>),
    /// The file names a slot and says nothing that can be read.
    Unreadable(Slot),
}

/// The directory of the records.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    dir: PathBuf,
}

/// A record could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{doing} `{}`", path.display())]
pub struct RecordError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Records {
    pub(crate) fn open(dir: PathBuf) -> Result<Self, RecordError> {
        std::fs::create_dir_all(&dir).map_err(|source| failed("make directory", &dir, source))?;
        Ok(Self { dir })
    }

    fn path(&self, slot: Slot) -> PathBuf {
        self.dir.join(format!("{slot}.json"))
    }

    /// Writes or replaces the record of a slot.
    pub(crate) async fn write(&self, record: Record) -> Result<(), RecordError> {
        let this = self.clone();
        blocking(move || this.write_now(&record)).await
    }

    fn write_now(&self, record: &Record) -> Result<(), RecordError> {
        let (path, temporary) = (self.path(record.slot), self.dir.join(format!("{}.tmp", record.slot)));
        let bytes = serde_json::to_vec(record).expect("records have string keys");
        std::fs::write(&temporary, bytes).map_err(|source| failed("write record", &temporary, source))?;
        std::fs::rename(&temporary, &path).map_err(|source| failed("replace record", &path, source))
    }

    /// Forgets a slot; fine when it is forgotten already.
    pub(crate) async fn remove(&self, slot: Slot) -> Result<(), RecordError> {
        let path = self.path(slot);
        blocking(move || match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove record", &path, error))
            }
            Ok(()) | Err(_) => Ok(()),
        })
        .await
    }

    /// Everything that an earlier node left. Only at the start.
    pub(crate) fn load(&self) -> Result<Vec<Found>, RecordError> {
        let list = std::fs::read_dir(&self.dir).map_err(|source| failed("list", &self.dir, source))?;
        let mut found = Vec::new();
        for entry in list {
            let path = entry.map_err(|source| failed("list", &self.dir, source))?.path();
            match slot_of(&path) {
                Some(slot) => found.push(read(&path, slot)),
                None => discard(&path)?,
            }
        }
        Ok(found)
    }
}

fn slot_of(path: &Path) -> Option<Slot> {
    let number = path.file_name()?.to_str()?.strip_suffix(".json")?;
    let slot = Slot::new(number.parse().ok()?).ok()?;
    (slot.to_string() == number).then_some(slot)
}

/// A record whose rename never came describes nothing that was made.
fn discard(path: &Path) -> Result<(), RecordError> {
    if path.extension().is_some_and(|extension| extension == "tmp") {
        std::fs::remove_file(path).map_err(|source| failed("remove", path, source))?;
    } else {
        tracing::warn!(path = %path.display(), "not a record of a slot, left alone");
    }
    Ok(())
}

fn read(path: &Path, slot: Slot) -> Found {
    let parse = || -> io::Result<Record> {
        let bytes = {
            use io::Read;
            let mut bytes = Vec::new();
            std::fs::File::open(path)?.take(RECORD_BYTES_MAX).read_to_end(&mut bytes)?;
            bytes
        };
        let record: Record = serde_json::from_slice(&bytes)?;
        if record.slot == slot { Ok(record) } else { Err(io::Error::other("it names another slot")) }
    };
    parse().map_or_else(
        |error| {
            tracing::warn!(path = %path.display(), %error, "unreadable record; its slot is cleared");
            Found::Unreadable(slot)
        },
        |record| Found::Record(Box::new(record)),
    )
}

async fn blocking(
    work: impl FnOnce() -> Result<(), RecordError> + Send + 'static,
) -> Result<(), RecordError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(failed("write below", Path::new("node/slots"), io::Error::other(error))),
    }
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> RecordError {
    RecordError { doing, path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u32) -> Slot {
        Slot::new(number).unwrap()
    }

    #[tokio::test]
    async fn what_is_written_is_found_and_what_is_removed_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path().join("slots")).unwrap();
        for number in [0, 7] {
            records.write(Record { slot: slot(number), claim: None }).await.unwrap();
        }
        records.remove(slot(0)).await.unwrap();
        records.remove(slot(0)).await.unwrap();
        let found = records.load().unwrap();
        assert!(matches!(&found[..], [Found::Record(record)] if record.slot == slot(7)), "{found:?}");
    }

    #[tokio::test]
    async fn damaged_records_still_name_their_slot_and_strangers_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path().to_path_buf()).unwrap();
        for (name, text) in
            [("3.json", "{"), ("4.json", r#"{"slot":5,"claim":null}"#), ("6.tmp", ""), ("note", "")]
        {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let mut slots: Vec<u32> = records
            .load()
            .unwrap()
            .into_iter()
            .map(|found| match found {
                Found::Unreadable(slot) => slot.number(),
                Found::Record(record) => panic!("{record:?}"),
            })
            .collect();
        slots.sort_unstable();
        assert_eq!(slots, [3, 4]);
        assert!(!dir.path().join("6.tmp").exists());
        assert!(dir.path().join("note").exists());
    }
}
