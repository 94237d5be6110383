//! Owns reading and writing the control files of cgroups, and making and removing groups idempotently.

use crate::isolation::Slot;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let text = path.display().to_string();
    move |source| io::Error::new(source.kind(), format!("`{text}`: {source}"))
}

/// Writes a value in one go.
pub(super) fn write(path: &Path, value: impl std::fmt::Display) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path).map_err(at(path))?;
    file.write_all(value.to_string().as_bytes()).map_err(at(path))
}

/// Reads a number. `max` is the largest.
pub(super) fn read_number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path).map_err(at(path))?;
    let text = text.trim();
    if text == "max" {
        return Ok(u64::MAX);
    }
    text.parse().map_err(|_| at(path)(io::ErrorKind::InvalidData.into()))
}

/// Reads some of the `key value` lines of a file; a missing key is 0.
pub(super) fn read_keys<const N: usize>(path: &Path, keys: [&str; N]) -> io::Result<[u64; N]> {
    let text = fs::read_to_string(path).map_err(at(path))?;
    let mut values = [0; N];
    for line in text.lines() {
        let Some((key, value)) = line.split_once(' ') else { continue };
        if let Some(index) = keys.iter().position(|wanted| *wanted == key) {
            values[index] = value.trim().parse().map_err(|_| at(path)(io::ErrorKind::InvalidData.into()))?;
        }
    }
    Ok(values)
}

/// Opens the file through which processes join a group.
pub(super) fn open_join(group: &Path) -> io::Result<OwnedFd> {
    let path = group.join("cgroup.procs");
    Ok(OpenOptions::new().write(true).open(&path).map_err(at(&path))?.into())
}

/// Adds the pids in a group to `pids`; a group that is not there has none.
pub(super) fn read_processes(group: &Path, pids: &mut Vec<u32>) -> io::Result<()> {
    let text = match fs::read_to_string(group.join("cgroup.procs")) {
        Ok(text) => text,
        Err(error) if is_missing(&error) => return Ok(()),
        Err(error) => return Err(at(group)(error)),
    };
    // A process that this pid namespace does not see is listed as 0.
    pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|pid| *pid != 0));
    Ok(())
}

/// A file vanishes with `ENODEV` when its group is removed between open and read.
pub(super) fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(19)
}

/// Makes a group; an existing one is fine.
pub(super) fn make(group: &Path) -> io::Result<()> {
    match fs::create_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(at(group)),
    }
}

/// Removes a group; a missing one is fine.
pub(super) fn remove(group: &Path) -> io::Result<()> {
    match fs::remove_dir(group) {
        Err(error) if is_missing(&error) => Ok(()),
        other => other.map_err(at(group)),
    }
}

/// Slots whose groups are in `parent`.
pub(super) fn slots(parent: &Path, found: &mut Vec<Slot>) -> io::Result<()> {
    let entries = match fs::read_dir(parent) {
        Err(error) if is_missing(&error) => return Ok(()),
        other => other.map_err(at(parent))?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix('s')).and_then(|n| n.parse().ok());
        found.extend(number.and_then(|number| Slot::new(number).ok()));
    }
    Ok(())
}
