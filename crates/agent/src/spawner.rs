//! Owns the spawner: one thread that takes orders from PID 1 and starts children of PID 1 inside the `work` cgroup.
//! It keeps nothing between two orders and survives everything but SIGKILL.

use crate::files::job;
use crate::order::{self, Job, Order, Program};
use cofferdam_sys::spawn::{self, Image};
use cofferdam_sys::{inherited, itself, scm};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Room for an order that is kept between two orders.
const ROOM_BYTES: usize = 64 * 1024;

/// Runs until PID 1 is gone.
pub(crate) fn run(work_cgroups: Option<u32>) -> io::Result<()> {
    let link = UnixStream::from(inherited::take(3)?);
    join(work_cgroups.unwrap_or(0))?;
    itself::become_undumpable()?;
    itself::close_on_exec_from(3)?;
    itself::survive_signals();
    itself::default_fault_handlers();
    itself::keep_heap_small();
    itself::clear_umask();
    std::env::set_current_dir("/")?;
    (&link).write_all(&std::process::id().to_le_bytes())?;
    let mut body = Vec::new();
    while let Some(descriptors) = receive(&link, &mut body)? {
        follow(&body, descriptors)?;
        body.clear();
        body.shrink_to(ROOM_BYTES);
    }
    Ok(())
}

fn join(work_cgroups: u32) -> io::Result<()> {
    for fd in (4..).take(usize::try_from(work_cgroups).unwrap_or(usize::MAX)) {
        File::from(inherited::take(RawFd::from(fd))?).write_all(b"0")?;
    }
    Ok(())
}

/// Reads one order; `None` when PID 1 is gone. Descriptors come with the first bytes.
fn receive(link: &UnixStream, body: &mut Vec<u8>) -> io::Result<Option<Vec<OwnedFd>>> {
    let (mut length, mut descriptors) = ([0; 4], Vec::new());
    let first = scm::receive(link.as_fd(), &mut length, &mut descriptors)?;
    if first == 0 {
        return Ok(None);
    }
    let mut link: &UnixStream = link;
    link.read_exact(&mut length[first..])?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > order::ORDER_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    body.resize(length, 0);
    link.read_exact(body)?;
    Ok(Some(descriptors))
}

/// An error means that PID 1 does not say what it should; what the kernel refuses is reported.
fn follow(body: &[u8], mut descriptors: Vec<OwnedFd>) -> io::Result<()> {
    if descriptors.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let report = descriptors.remove(0);
    let started = match order::decode(body).ok_or(io::ErrorKind::InvalidData)? {
        Order::Program(program) => start(&program, &report, &descriptors),
        Order::Job(job) => copy(job, &report, descriptors),
    };
    if let Err(error) = started {
        spawn::report_no_clone(report.as_fd(), &error);
    }
    Ok(())
}

fn start(program: &Program, report: &OwnedFd, streams: &[OwnedFd]) -> io::Result<()> {
    let streams = match streams {
        [terminal] => [terminal, terminal, terminal],
        [input, output, errors] => [input, output, errors],
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    };
    spawn::spawn_sibling(&Image {
        programs: &program.candidates,
        arguments: &program.arguments,
        environment: &program.environment,
        directory: &program.directory,
        uid: program.uid,
        gid: program.gid,
        groups: &program.groups,
        streams: streams.map(AsFd::as_fd),
        terminal: program.terminal,
        open_files: program.open_files,
        mark: Some(program.mark),
        report: report.as_fd(),
    })
}

fn copy(job: Job, report: &OwnedFd, mut descriptors: Vec<OwnedFd>) -> io::Result<()> {
    let Some(connection) = descriptors.pop() else { return Err(io::ErrorKind::InvalidInput.into()) };
    spawn::copy_sibling(report.as_fd(), connection, move |connection| {
        job::serve(connection.into(), &job);
        0
    })
}
