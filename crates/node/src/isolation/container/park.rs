//! Owns the node's side of a park: cgroups, disk, run directory and the agent's socket, then the shell from the launcher.

use super::link::{self, wait_report};
use super::{Shared, Step, StepFailure, blocking};
use crate::isolation::cgroup::JoinFiles;
use crate::isolation::{Parked, ParkedParts, ProcessIdentity, Slot};
use crate::launcher::protocol::{Outcome, Park, Request, ShellReport};
use cofferdam_sys::{pidfd, seqpacket};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;

/// Connections that wait while the agent accepts others.
const BACKLOG: i32 = 512;

pub(super) async fn park(shared: &Arc<Shared>, slot: Slot) -> Result<Parked, StepFailure> {
    let for_task = Arc::clone(shared);
    let (listener, files) = blocking(move || prepare(&for_task, slot)).await?;
    let park = Park { slot, agent_groups: files.agent.len(), work_groups: files.work.len() };
    let descriptors = [listener].into_iter().chain(files.agent).chain(files.work).collect();
    let (outcome, descriptors) =
        shared.link.call(Request::Park(park), descriptors).await.step("ask the launcher")?;
    let Outcome::Parked { pid } = outcome else { return Err(link::unexpected(outcome)) };
    let [pidfd, control, user_namespace] = <[OwnedFd; 3]>::try_from(descriptors)
        .map_err(|_| io::ErrorKind::InvalidData.into())
        .step("take the descriptors of a shell")?;
    let identity = identity(shared, pid, &pidfd).step("identify the shell")?;
    seqpacket::set_nonblocking(&control).step("prepare the control socket")?;
    let (control, report) = wait_report(control).await.step("wait for the shell")?;
    match report {
        Some(ShellReport::Parked) => {}
        Some(ShellReport::Failed { step, errno }) => return Err(link::reported(step, errno)),
        None => return Err(io::ErrorKind::BrokenPipe.into()).step("wait for the shell"),
    }
    Ok(Parked::new(slot, identity, pidfd, ParkedParts { control, user_namespace }))
}

fn prepare(shared: &Shared, slot: Slot) -> Result<(OwnedFd, JoinFiles), StepFailure> {
    shared.cgroups.create(slot).step("make cgroups")?;
    let files = shared.cgroups.join_files(slot).step("open cgroups")?;
    shared.volume.create(slot).step("make the disk")?;
    let directory = slot.run_dir();
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).step("make the run directory")?;
    let listener = seqpacket::listen(&slot.agent_socket(), BACKLOG).step("listen for the agent")?;
    Ok((listener, files))
}

/// Names a process whose pidfd was made together with it, so that its pid cannot be another's while it runs.
fn identity(shared: &Shared, pid: u32, pidfd: &OwnedFd) -> io::Result<ProcessIdentity> {
    let start_ticks = pidfd::start_ticks(pid)?;
    if pidfd::wait_end(pidfd, std::time::Duration::ZERO)? {
        return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the shell has ended"));
    }
    Ok(ProcessIdentity { pid, start_ticks, boot_id: shared.boot_id.clone() })
}
