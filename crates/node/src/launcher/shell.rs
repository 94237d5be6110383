//! Owns the inner half of a park: what the first process of a sandbox, and the second one that becomes the spawner, do
//! before there is a template. Both are copies of the launcher and end in the exec of the agent or in an exit.

use super::Launcher;
use super::enter::{Apprentice, Entry, Spawner, become_spawner, settle};
use super::failure::{Failure, Step};
use super::protocol::{MESSAGE_BYTES_MAX, ShellReport};
use super::tree::Tree;
use cofferdam_sys::clone::{self, Cloned, Namespaces};
use cofferdam_sys::{errno_of, exec, seqpacket};
use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Host name until the node sets another.
const HOSTNAME: &str = "sandbox";
/// Settings of the network namespace: any user may bind low ports and send echo requests, as in other runtimes.
const SETTINGS: [(&str, &str); 2] = [
    ("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"),
    ("/proc/sys/net/ipv4/ping_group_range", "0 65535"),
];

/// The first process: all it has are these and the agent's program.
pub(super) struct Shell {
    /// To the launcher and then the node; closed by the exec.
    pub(super) control: OwnedFd,
    /// The agent's listening socket.
    pub(super) listener: OwnedFd,
    /// The device file system, detached.
    pub(super) devices: OwnedFd,
    /// Files through which a spawner joins `work`.
    pub(super) work_groups: Vec<OwnedFd>,
}

impl Shell {
    /// Runs to the exec. Whoever waits on the control socket is told what failed.
    pub(super) fn run(self, launcher: &Launcher) -> ! {
        let control = self.control.as_raw_fd();
        let keep: Vec<_> =
            [control, self.listener.as_raw_fd(), self.devices.as_raw_fd(), launcher.agent.as_raw_fd()]
                .into_iter()
                .chain(self.work_groups.iter().map(AsRawFd::as_raw_fd))
                .collect();
        if exec::close_all_but(&keep).is_err() {
            exec::exit_now(1);
        }
        match self.live(launcher) {
            Ok(never) => match never {},
            Err(told) => tell(&told.control, &told.failure),
        }
        exec::exit_now(1)
    }

    fn live(self, launcher: &Launcher) -> Result<Infallible, Told> {
        let Shell { control, listener, devices, work_groups } = self;
        let prepared = wait(&control).and_then(|_| prepare(launcher, &control, devices, &work_groups));
        let (tree, spawner) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => return Err(Told { control, failure }),
        };
        let entry = Entry { launcher, control, listener, work_groups, tree, spawner };
        entry.run()
    }
}

/// A failure, and the socket on which to tell it.
pub(super) struct Told {
    pub(super) control: OwnedFd,
    pub(super) failure: Failure,
}

/// Tells the node why this process ends.
pub(super) fn tell(control: &OwnedFd, failure: &Failure) {
    let report =
        ShellReport::Failed { step: failure.to_string(), errno: errno_of(&failure.source).unwrap_or(0) };
    // Without a listener there is nobody to tell.
    seqpacket::send(control, &report.encode(), &[]).ok();
}

/// The next message on a socket. Its end means that whoever wanted this sandbox is gone, and so is the reason to live.
pub(super) fn wait(socket: &OwnedFd) -> Result<seqpacket::Message, Failure> {
    match seqpacket::receive(socket, MESSAGE_BYTES_MAX).step("wait for a message")? {
        Some(message) => Ok(message),
        None => exec::exit_now(0),
    }
}

fn prepare(
    launcher: &Launcher,
    control: &OwnedFd,
    devices: OwnedFd,
    work_groups: &[OwnedFd],
) -> Result<(Tree, Spawner), Failure> {
    exec::new_session().step("start a session")?;
    clone::unshare_cgroup_namespace().step("unshare the cgroup namespace")?;
    let tree = Tree::build(devices)?;
    clone::loopback_up().step("bring up the loopback interface")?;
    clone::set_hostname(HOSTNAME).step("set the host name")?;
    for (path, value) in SETTINGS {
        match fs::write(path, value) {
            // A kernel without the setting behaves as before it existed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.step("set up the network namespace")?,
        }
    }
    tree.mask(&launcher.home.masks)?;
    settle()?;
    let spawner = start_spawner(launcher, control, work_groups)?;
    seqpacket::send(control, &ShellReport::Parked.encode(), &[]).step("report")?;
    Ok((tree, spawner))
}

/// Forks the spawner-to-be. It is the first child, hence pid 2.
fn start_spawner(
    launcher: &Launcher,
    control: &OwnedFd,
    work_groups: &[OwnedFd],
) -> Result<Spawner, Failure> {
    let (ours, theirs) = seqpacket::stream_pair().step("make the spawner's socket")?;
    let (signal, awaited) = seqpacket::pair().step("make the spawner's signal")?;
    let told = control.try_clone().step("copy the control socket")?;
    match clone::clone(&launcher.proof, Namespaces::NONE).step("make the second process")? {
        Cloned::Parent { .. } => Ok(Spawner { socket: ours, signal }),
        Cloned::Child => {
            let keep: Vec<_> = [&told, &theirs, &awaited, &launcher.agent]
                .into_iter()
                .chain(work_groups)
                .map(AsRawFd::as_raw_fd)
                .collect();
            if exec::close_all_but(&keep).is_err() {
                exec::exit_now(1);
            }
            let apprentice = Apprentice { control: told, socket: theirs, signal: awaited };
            match become_spawner(launcher, work_groups, apprentice) {
                Ok(never) => match never {},
                Err(told) => tell(&told.control, &told.failure),
            }
            exec::exit_now(1)
        }
    }
}
