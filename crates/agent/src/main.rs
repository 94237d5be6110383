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
//! seccomp must allow both, also `clone` with CLONE_PARENT, `setgroups`, `setresuid`, `setresgid`, `prlimit64`,
//! `pidfd_send_signal`, `sendmsg` with descriptors.
//!
//! What else the launcher should know:
//!
//! - The working directory of PID 1 is `/` of the sandbox; its environment is ignored.
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

fn main() {}
