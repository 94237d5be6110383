//! Owns `Read`: the content of a regular file, in frames.

use super::{entry, locate};
use crate::agent::Agent;
use crate::connection::{Connection, Outgoing};
use crate::failure::{at_path, because, failure, invalid};
use crate::users::Names;
use cofferdam_core::ErrorKind;
use cofferdam_core::limits::GUEST_DATA_BYTES_MAX;
use cofferdam_proto::frame::Channel;
use cofferdam_proto::guest::{self, Failure, Reason, Reply};
use cofferdam_sys::file::{Backing, backing, open_to_read};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// What is read of a kernel file, whose size nobody knows before.
const KERNEL_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Sends the file; `range` is the first byte and the number of bytes.
pub(crate) fn run(
    agent: &Agent,
    connection: &Connection,
    path: &guest::Path,
    range: (u64, Option<u64>),
) -> Result<(), Failure> {
    let (path, _) = locate(agent, path)?;
    let at = |error: io::Error| at_path("read", path.display(), &error);
    let mut file = open_regular(&path)?;
    let size = file.metadata().map_err(at)?.len();
    let kind = backing(file.as_fd()).map_err(at)?;
    if kind == Backing::Proc && is_ours(agent, &file) {
        return Err(failure(
            ErrorKind::PermissionDenied,
            format!("'{}' belongs to the agent", path.display()),
        ));
    }
    let entry = entry::read(&path, &Names::load()).map_err(at)?;
    let (offset, wanted) = (range.0, range.1.unwrap_or(u64::MAX));
    if size == 0 && kind != Backing::Disk {
        let content = read_kernel_file(&mut file).map_err(at)?;
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let length = wanted.min((content.len() - begin) as u64);
        send(connection, &Reply::File { entry, length }, &mut &content[begin..], length);
        return Ok(());
    }
    let length = wanted.min(size.saturating_sub(offset));
    if offset > 0 {
        file.seek(SeekFrom::Start(offset.min(size))).map_err(at)?;
    }
    send(connection, &Reply::File { entry, length }, &mut file, length);
    Ok(())
}

/// A regular file, open; anything else is the caller's mistake.
pub(super) fn open_regular(path: &Path) -> Result<File, Failure> {
    let file = open_to_read(path).map_err(|error| at_path("read", path.display(), &error))?;
    let metadata = file.metadata().map_err(|error| at_path("read", path.display(), &error))?;
    if metadata.is_dir() {
        let message = format!("path '{}' is a directory", path.display());
        return Err(because(ErrorKind::InvalidArgument, Reason::IsDirectory, message));
    }
    if metadata.is_file() {
        Ok(file)
    } else {
        Err(invalid(format!("path '{}' is not a regular file", path.display())))
    }
}

/// Files about PID 1 and the spawner, which the agent could open but nobody else inside.
fn is_ours(agent: &Agent, file: &File) -> bool {
    let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) else { return true };
    let ours = [Some(std::process::id()), agent.link.pid()];
    ours.into_iter().flatten().any(|pid| path.starts_with(format!("/proc/{pid}")))
}

fn read_kernel_file(file: &mut File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    match file.take(KERNEL_FILE_BYTES_MAX).read_to_end(&mut content) {
        Ok(_) => Ok(content),
        // A file that would wait for an event has nothing now.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(content),
        Err(error) => Err(error),
    }
}

/// Sends announcement, content and end, as far as the caller listens. What goes wrong on the way is told in a message.
fn send(connection: &Connection, announcement: &Reply, content: &mut dyn Read, length: u64) {
    if connection.reply(announcement).is_err() {
        return;
    }
    let mut left = length;
    let mut frame =
        Outgoing::with_capacity(usize::try_from(left).unwrap_or(usize::MAX).min(GUEST_DATA_BYTES_MAX));
    while left > 0 {
        frame.clear();
        match frame.fill_from(content, left) {
            // It shrank.
            Ok(0) => break,
            Ok(taken) => left -= taken as u64,
            Err(error) => {
                return connection.try_reply(&Reply::Error(crate::failure::doing("read the file", &error)));
            }
        }
        if connection.send(Channel::File, &mut frame).is_err() {
            return;
        }
    }
    // A caller that has left needs no end.
    connection.send_end(Channel::File).ok();
}
