//! Owns the last steps before foreign code runs: the root file system, then everything that can never be undone (limits,
//! Landlock, system call filter, capabilities), then the exec of the agent.

use super::Launcher;
use super::failure::{Failure, Step};
use super::shell::{Told, wait};
use super::tree::{MOVED, Tree};
use cofferdam_sys::mount;
use cofferdam_sys::{clone, credentials, directory, exec, itself, landlock, seqpacket};
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

const PROGRAM: &CStr = c"cofferdam-agent";

/// What the first process keeps of the second.
pub(super) struct Spawner {
    /// The agent's end of the socket between agent and spawner.
    pub(super) socket: OwnedFd,
    /// Carries the root file system to the second process when it is there.
    pub(super) signal: OwnedFd,
}

/// A parked shell.
pub(super) struct Entry<'a> {
    pub(super) launcher: &'a Launcher,
    pub(super) control: OwnedFd,
    pub(super) listener: OwnedFd,
    pub(super) work_groups: Vec<OwnedFd>,
    pub(super) tree: Tree,
    pub(super) spawner: Spawner,
}

impl Entry<'_> {
    /// Waits for the root file system and becomes the agent.
    pub(super) fn run(self) -> Result<Infallible, Told> {
        let Self { launcher, mut control, listener, work_groups, tree, spawner } = self;
        let entered = enter(&control, &tree, &spawner.signal)
            .and_then(|root| restrict_first(launcher, &root))
            .and_then(|()| {
                CString::new(work_groups.len().to_string()).map_err(io::Error::from).step("count groups")
            });
        let count = match entered {
            Ok(count) => count,
            Err(failure) => return Err(Told { control, failure }),
        };
        let descriptors = [listener, spawner.socket].into_iter().chain(work_groups).collect();
        let arguments = [PROGRAM, c"--work-cgroups", &count];
        let source = exec::execute(&launcher.agent, &arguments, &[itself::SMALL], descriptors, &mut control);
        Err(Told { control, failure: Failure { step: "execute the agent", source } })
    }
}

/// Takes the root file system, puts the prepared mounts on it and makes it the root of both processes.
fn enter(control: &OwnedFd, tree: &Tree, signal: &OwnedFd) -> Result<OwnedFd, Failure> {
    let message = wait(control)?;
    let shared_memory = <[u8; 8]>::try_from(message.bytes.as_slice())
        .map_err(|_| io::ErrorKind::InvalidData.into())
        .step("read the size of shared memory")?;
    let root = message.descriptors.into_iter().next();
    let root = root.ok_or(io::ErrorKind::InvalidData.into()).step("take the root file system")?;

    tree.mount_shared_memory(u64::from_le_bytes(shared_memory))?;
    // On top of the small root, which nothing can reach from then on: every way up from here ends in this mount.
    mount::attach(&root, &tree.root, c"").step("attach the root file system")?;
    for (name, source) in MOVED {
        directory::make_missing(&root, name, 0o755).step("make a mount point in the template")?;
        // A template may hold anything, a link in place of the directory too: that is an error, not a way out.
        let target = directory::locate(&root, name).step("find a mount point in the template")?;
        mount::move_mount((tree.root.as_fd(), source), (target.as_fd(), c""))
            .step("move a mount to the template")?;
    }
    directory::make_missing(&root, "tmp", 0o1777).step("make /tmp in the template")?;
    mount::change_root(&root).step("change root")?;
    seqpacket::send(signal, b"R", &[root.as_fd()]).step("pass the root on")?;
    Ok(root)
}

/// What does not depend on the template nor keeps a process from mounting. Done before the second process exists, which
/// inherits it.
pub(super) fn settle() -> Result<(), Failure> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").step("open /dev/null")?;
    exec::use_as_standard_streams(&null).step("replace the standard streams")?;
    exec::default_signals().step("reset signals")?;
    exec::set_limits().step("set limits")?;
    credentials::bound_capabilities(credentials::SANDBOX).step("bound capabilities")
}

/// Whom a process and its descendants may send signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signals {
    /// The agent ends what it started.
    Everywhere,
    /// User processes, which all descend from the spawner, reach each other only.
    Inside,
}

/// Forbids what Landlock can: mounting is over from here on. Needs CAP_SYS_ADMIN, as does the filter.
fn restrict(launcher: &Launcher, root: &OwnedFd, signals: Signals) -> Result<(), Failure> {
    match launcher.home.landlock {
        Some(version) => {
            landlock::restrict(version, root, signals == Signals::Inside).step("restrict by Landlock")
        }
        None => Ok(()),
    }
}

/// What is given up here is never gained back.
fn restrict_first(launcher: &Launcher, root: &OwnedFd) -> Result<(), Failure> {
    exec::usual_umask();
    restrict(launcher, root, Signals::Everywhere)?;
    launcher.filter.load().step("load the system call filter")?;
    credentials::keep_capabilities(credentials::SANDBOX).step("give up capabilities")
}

/// What the second process has.
pub(super) struct Apprentice {
    pub(super) control: OwnedFd,
    /// The spawner's end of the socket between agent and spawner.
    pub(super) socket: OwnedFd,
    /// Where the root file system arrives.
    pub(super) signal: OwnedFd,
}

/// The second process: joins `work`, gives up what it can, waits for the root file system and becomes the spawner.
pub(super) fn become_spawner(
    launcher: &Launcher,
    work_groups: &[OwnedFd],
    apprentice: Apprentice,
) -> Result<Infallible, Told> {
    let Apprentice { mut control, socket, signal } = apprentice;
    if let Err(failure) = enter_as_spawner(launcher, work_groups, &signal) {
        return Err(Told { control, failure });
    }
    let source = exec::execute(
        &launcher.agent,
        &[PROGRAM, c"--spawner"],
        &[itself::SMALL],
        vec![socket],
        &mut control,
    );
    Err(Told { control, failure: Failure { step: "execute the spawner", source } })
}

fn enter_as_spawner(launcher: &Launcher, work_groups: &[OwnedFd], signal: &OwnedFd) -> Result<(), Failure> {
    for group in work_groups {
        let mut file = File::from(group.try_clone().step("copy a cgroup file")?);
        file.write_all(b"0\n").step("join the cgroup `work`")?;
    }
    clone::unshare_cgroup_namespace().step("unshare the cgroup namespace")?;
    exec::new_session().step("start a session")?;
    exec::usual_umask();
    // Unlike the first process this one mounts nothing, so the filter need not wait for the root.
    launcher.filter.load().step("load the system call filter")?;
    let message = wait(signal)?;
    let root = message.descriptors.into_iter().next();
    let root = root.ok_or(io::ErrorKind::InvalidData.into()).step("take the root file system")?;
    mount::change_root(&root).step("change root")?;
    restrict(launcher, &root, Signals::Inside)?;
    credentials::keep_capabilities(credentials::SANDBOX).step("give up capabilities")
}
