//! Owns the node's side of a fill: limits and idmapped layers, then the root file system through the launcher, then the
//! wait for the exec.

use super::link::{self, wait_report};
use super::{Shared, Step, StepFailure, blocking, put_limits, shared_memory_bytes};
use crate::isolation::{Fill, Live, Parked, Slot};
use crate::launcher::protocol::{self, Outcome, Request, ShellReport};
use cofferdam_sys::{directory, mount, pidfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn fill(shared: &Arc<Shared>, parked: Parked, fill: Fill) -> Result<Live, StepFailure> {
    let (slot, identity, pidfd, parts) = parked.into_inner();
    let parts = parts.ok_or(io::ErrorKind::InvalidInput.into()).step("take a parked shell")?;
    let shared_memory_bytes = shared_memory_bytes(&fill.resources);
    let for_task = Arc::clone(shared);
    let user_namespace = parts.user_namespace;
    let (lower, upper) = blocking(move || prepare(&for_task, slot, &fill, &user_namespace)).await?;
    let control = parts.control;
    let passed = control.try_clone().step("copy the control socket")?;
    let request = Request::Fill(protocol::Fill { slot, shared_memory_bytes });
    let descriptors = vec![passed, lower, upper];
    let (outcome, _) = shared.link.call(request, descriptors).await.step("ask the launcher")?;
    if !matches!(outcome, Outcome::Filled) {
        return Err(link::unexpected(outcome));
    }
    let (_, report) = wait_report(control).await.step("wait for the agent")?;
    match report {
        // The control socket is closed by the exec, or by the end of the process.
        None if !pidfd::wait_end(&pidfd, Duration::ZERO).step("look at the agent")? => {
            Ok(Live::new(slot, identity, pidfd))
        }
        Some(ShellReport::Failed { step, errno }) => Err(link::reported(step, errno)),
        None | Some(ShellReport::Parked) => Err(io::ErrorKind::BrokenPipe.into()).step("start the agent"),
    }
}

/// Puts limits in force and makes the two layers with the ids of the slot.
fn prepare(
    shared: &Shared,
    slot: Slot,
    fill: &Fill,
    user_namespace: &OwnedFd,
) -> Result<(OwnedFd, OwnedFd), StepFailure> {
    put_limits(shared, slot, &fill.resources)?;
    let template = directory::locate_at(&fill.template_root).step("open the template")?;
    let lower = mount::clone_tree(&template, c"").step("copy the mount of the template")?;
    mount::set_id_map(&lower, user_namespace, mount::READ_ONLY).step("map the ids of the template")?;
    let subvolume = shared.volume.subvolume(slot).step("open the disk")?;
    let upper = mount::clone_tree(&subvolume, c"").step("copy the mount of the disk")?;
    mount::set_id_map(&upper, user_namespace, mount::PLAIN).step("map the ids of the disk")?;
    Ok((lower, upper))
}
