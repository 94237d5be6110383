//! Owns one role's process on behalf of the supervisor: starting it, hearing it, starting it again when it ended.

use crate::handover::{self, Orders, Word};
use crate::serve::Role;
use anyhow::{Context, Result};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, Command};

/// A role that lived this long is started again at once; one that did not waits longer each time.
const HEALTHY: Duration = Duration::from_secs(5);
/// Longest wait before a role that keeps ending is started again.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// How long a role may take to end when asked.
const STOP_DEADLINE: Duration = Duration::from_secs(20);

/// What every start of a role needs.
pub(crate) struct Launch {
    /// Where clients connect; open as long as the supervisor lives.
    pub listener: TcpListener,
    /// What the roles are told.
    pub orders: Orders,
}

/// What happened to a role.
#[derive(Debug)]
pub(crate) enum Event {
    /// It was started, or started again.
    Started {
        /// Which.
        role: Role,
        /// Its process.
        pid: u32,
    },
    /// It said something.
    Said {
        /// Which.
        role: Role,
        /// What.
        word: Word,
    },
    /// It ended without being asked; it will be started again.
    Ended {
        /// Which.
        role: Role,
        /// How.
        status: String,
    },
}

/// Keeps one role running.
pub(crate) struct Keeper {
    role: Role,
    process: Process,
    ready: bool,
    failures: u32,
}

enum Process {
    Running {
        child: Box<Child>,
        words: Lines<BufReader<tokio::net::UnixStream>>,
        since: Instant,
        announced: bool,
    },
    Waiting {
        until: tokio::time::Instant,
    },
}

impl Keeper {
    /// Starts the role for the first time.
    pub(crate) fn start(role: Role, launch: &Launch) -> Result<Self> {
        Ok(Self { role, process: spawn(role, launch)?, ready: false, failures: 0 })
    }

    /// True while the present process has said that it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }

    /// The present process.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.process {
            Process::Running { child, .. } => child.id(),
            Process::Waiting { .. } => None,
        }
    }

    /// Waits for the next event. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self, launch: &Launch) -> Result<Event> {
        loop {
            match &mut self.process {
                Process::Waiting { until } => {
                    tokio::time::sleep_until(*until).await;
                    self.process = spawn(self.role, launch)?;
                }
                Process::Running { child, announced, .. } if !*announced => {
                    *announced = true;
                    if let Some(pid) = child.id() {
                        return Ok(Event::Started { role: self.role, pid });
                    }
                }
                Process::Running { child, words, since, .. } => {
                    let line = tokio::select! {
                        biased;
                        line = words.next_line() => line.ok().flatten(),
                        _ = child.wait() => None,
                    };
                    if let Some(word) = line.and_then(|line| serde_json::from_str(&line).ok()) {
                        self.ready |= word == Word::Ready;
                        return Ok(Event::Said { role: self.role, word });
                    }
                    let lived = since.elapsed();
                    let status = end(child).await;
                    self.ready = false;
                    self.failures = if lived >= HEALTHY { 0 } else { self.failures + 1 };
                    self.process =
                        Process::Waiting { until: tokio::time::Instant::now() + backoff(self.failures) };
                    return Ok(Event::Ended { role: self.role, status });
                }
            }
        }
    }

    /// Asks the role to end and, after a deadline, ends it.
    pub(crate) async fn stop(&mut self) {
        let Process::Running { child, words, .. } = &mut self.process else { return };
        // The role takes the end of its stream for the wish that it ends.
        let shut = std::os::fd::AsFd::as_fd(words.get_ref().get_ref())
            .try_clone_to_owned()
            .and_then(|fd| UnixStream::from(fd).shutdown(std::net::Shutdown::Write));
        let asked = shut.is_ok() && tokio::time::timeout(STOP_DEADLINE, child.wait()).await.is_ok();
        if !asked {
            tracing::warn!(role = self.role.name(), "the role did not end when asked and is killed");
            end(child).await;
        }
    }
}

/// Kills what is left of a role and tells how it ended.
async fn end(child: &mut Child) -> String {
    if let Err(error) = child.start_kill() {
        tracing::debug!(%error, "the role had ended already");
    }
    match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => format!("unknown: {error}"),
    }
}

fn backoff(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => Duration::from_millis(50 << more.min(6)).min(WAIT_MAX),
    }
}

fn spawn(role: Role, launch: &Launch) -> Result<Process> {
    let (mut ours, theirs) = UnixStream::pair().context("make a stream for a role")?;
    // Not by its path: that may be where the role's uid cannot look, and a newer program may stand there already.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("cofferdam")
        .args(["serve", "--supervised", "--role", role.name()])
        .stdout(Stdio::from(OwnedFd::from(theirs)));
    match role {
        Role::Node => {
            command.stdin(Stdio::null());
        }
        Role::Api => {
            let listener =
                launch.listener.as_fd().try_clone_to_owned().context("share the listening socket")?;
            let api = &launch.orders.config.api;
            command.stdin(Stdio::from(listener)).uid(api.uid).gid(api.gid);
        }
    }
    let child = command.spawn().with_context(|| format!("start the {} role", role.name()))?;
    handover::send(&mut ours, &launch.orders)?;
    ours.set_nonblocking(true).context("prepare the stream of a role")?;
    let ours = tokio::net::UnixStream::from_std(ours).context("watch the stream of a role")?;
    Ok(Process::Running {
        child: Box::new(child),
        words: BufReader::new(ours).lines(),
        since: Instant::now(),
        announced: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_is_at_once_and_later_ones_wait_longer_up_to_a_bound() {
        assert_eq!(backoff(1), Duration::ZERO);
        let waits: Vec<_> = (2..40).map(backoff).collect();
        assert!(waits.is_sorted());
        assert_eq!(waits.last(), Some(&WAIT_MAX));
    }
}
