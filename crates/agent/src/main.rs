//! The agent: PID 1 of every sandbox, and its helper, the spawner. Owns how the two are started; the modules own what
//! they do. Never holds a secret or decides a policy, never resolves names through the C library, never writes a cgroup
//! other than through descriptors it was given.
//!
//! ```text
//!   outside            │ inside (own pid, user, mount … namespaces)
//!                      │
//!   node, api ── unix ─┼─▶ PID 1 `cofferdam-agent`            cgroup `agent` (reserved)
//!                      │        │ socketpair   ▲ parent of every user process
//!                      │        ▼              │
//!                      │   `cofferdam-agent --spawner`        cgroup `work` (limited)
//!                      │        └─ clone(CLONE_PARENT) ─▶ user processes, in `work` by inheritance
//! ```
//!
//! # How the launcher starts it
//!
//! `cofferdam-agent --work-cgroups N` as PID 1 of the pid namespace, with
//!
//! - fd 0, 1, 2: open, best `/dev/null` (a Rust program that finds one of them closed opens `/dev/null`, or aborts);
//! - fd 3: a listening `AF_UNIX` stream socket, bound outside;
//! - fd 4: a connected `AF_UNIX` stream socket whose other end is fd 3 of a spawner. It may be absent (closed, or
//!   anything that is not a socket): then the agent starts the spawner itself, exactly as it restarts a dead one;
//! - fd 5 … 5+N-1: `cgroup.procs` files of the `work` cgroup, opened for writing by root outside (v1: one for every
//!   hierarchy, v2: one). Every spawner that the agent starts writes `0` into each of them before it does anything
//!   else; the kernel checks such writes against the credentials of whoever opened the file. A spawner that cannot
//!   join all of them exits, and `exec` answers `unavailable`. `--work-cgroups 0` means that there is none to join
//!   (tests); without the option the agent starts no spawner itself.
//!
//! `cofferdam-agent --spawner` with fd 3 = its end of the socketpair, and `cofferdam-agent --spawner --work-cgroups N`
//! with the cgroup files from fd 4 on (that is how the agent starts it). A spawner that the launcher provides must be a
//! *child of the process that becomes PID 1* (fork it before the final exec) and be in `work` already: CLONE_PARENT
//! then makes its clones children of PID 1. Its exit signal must be SIGCHLD.
//!
//! Both mark every descriptor from 3 on close-on-exec, make themselves non-dumpable and survive every signal that a
//! process of the sandbox can send, but SIGKILL to the spawner: the next `exec` then starts a new one. For that the
//! agent executes its own binary again through `/proc/self/exe`, opened at its start, and `execveat`: Landlock and
//! seccomp must allow both, also `clone` with CLONE_PARENT, CLONE_VM and CLONE_VFORK, `setgroups`, `setresuid`,
//! `setresgid`, `prlimit64`, `pidfd_open`, `pidfd_send_signal`, `close_range`, and `sendmsg` with descriptors.
//!
//! What else the launcher should know:
//!
//! - The working directory of PID 1 is `/` of the sandbox. Of its environment nothing is passed on; `itself::SMALL` of
//!   `cofferdam-sys` in it halves the memory that remains after many requests at once.
//! - Capabilities: those of Docker's default set suffice. `sethostname` needs CAP_SYS_ADMIN, so `Configure.hostname` is
//!   tried and a refusal ignored: whoever wants it to hold sets the name from outside, in the UTS namespace.
//! - `oom_score_adj`: a value lowered with CAP_SYS_RESOURCE becomes the floor (`oom_score_adj_min`) of every process that
//!   descends from it, so a user process could lower itself as far. Lower that of PID 1 only *after* a spawner has been
//!   started, and never that of the spawner. User processes get 100.
//! - A negative nice value of PID 1 and the spawner is fine (the spawner competes with user processes inside `work`);
//!   user processes are set to 0.
//! - The `agent` cgroup needs room for 1 thread per connection and 1 per running client process: pids.max ≥ 2048, memory
//!   limit ≥ 96 MiB (use at rest is below 2 MiB). RLIMIT_NOFILE of PID 1: hard limit ≥ 8192; the limit of user processes
//!   is `Configure.open_files`, which cannot exceed the hard limit of the spawner.
//! - RLIMIT_RTTIME must be unlimited: its hard limit marks which `exec` a process descends from.

mod agent;
mod connection;
mod deadline;
mod failure;
mod files;
mod link;
mod order;
mod paths;
mod process;
mod pump;
mod reaper;
mod service;
mod spawner;
mod sync;
mod table;
mod tree;
mod users;

use cofferdam_sys::{inherited, itself};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::Arc;

/// How it was started.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    spawner: bool,
    work_cgroups: Option<u32>,
}

/// Most cgroup files: cgroup v1 has a dozen controllers.
const WORK_CGROUPS_MAX: u32 = 32;

fn main() -> ExitCode {
    let done = parse(std::env::args().skip(1)).and_then(|options| {
        if options.spawner { spawner::run(options.work_cgroups) } else { serve(options.work_cgroups) }
    });
    // There is nobody to tell more than the number: standard error is /dev/null in a sandbox.
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(70),
    }
}

fn parse(arguments: impl Iterator<Item = String>) -> io::Result<Options> {
    let (mut options, mut arguments) = (Options::default(), arguments);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--spawner" => options.spawner = true,
            "--work-cgroups" => {
                let number = arguments.next().and_then(|number| number.parse().ok());
                let number = number.filter(|number| *number <= WORK_CGROUPS_MAX);
                options.work_cgroups = Some(number.ok_or(io::ErrorKind::InvalidInput)?);
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok(options)
}

/// PID 1.
fn serve(work_cgroups: Option<u32>) -> io::Result<()> {
    let listener = UnixListener::from(inherited::take(3)?);
    let spawner = take_spawner();
    let work_cgroups = work_cgroups.map(take_work_cgroups).transpose()?;
    itself::become_undumpable()?;
    itself::close_on_exec_from(3)?;
    itself::default_fault_handlers();
    itself::keep_heap_small();
    itself::clear_umask();
    itself::raise_open_files()?;
    itself::adopt_orphans()?;
    std::env::set_current_dir("/")?;
    let recipe = link::Recipe { binary: cofferdam_sys::exec::own_program().ok(), work_cgroups };
    let agent = Arc::new(agent::Agent::new(link::Link::new(recipe, spawner)));
    // Without a spawner the agent is still good for files; `exec` tries again and says why it cannot.
    agent.link.prepare().ok();
    let reaping = Arc::clone(&agent);
    agent::thread(move || reaper::run(&reaping))?;
    service::Entrance::open(&agent, listener)
}

/// The launcher's spawner, if fd 4 is one.
fn take_spawner() -> Option<UnixStream> {
    use std::os::fd::AsFd;
    let fd = inherited::take(4).ok()?;
    inherited::is_stream_socket(fd.as_fd()).then(|| fd.into())
}

fn take_work_cgroups(number: u32) -> io::Result<Vec<OwnedFd>> {
    (0..number).map(|index| inherited::take(5 + RawFd::try_from(index).unwrap_or(RawFd::MAX))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_strictly() {
        let parse = |text: &str| parse(text.split_whitespace().map(str::to_owned));
        assert_eq!(parse("").unwrap(), Options::default());
        let both = Options { spawner: true, work_cgroups: Some(7) };
        assert_eq!(parse("--spawner --work-cgroups 7").unwrap(), both);
        for text in ["--work-cgroups", "--work-cgroups x", "--work-cgroups 33", "other"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
