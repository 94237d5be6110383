//! Owns a command that a client follows, and its end in the record: also when the client goes away before it.

use super::agent::Agent;
use super::{AppError, LiveSandbox};
use crate::guest::{Output, Session, SessionInput, SessionOutput};
use cofferdam_audit::Event;
use cofferdam_proto::guest::{Exit, SignalScope};

const SIGKILL: u8 = 9;

/// A command that runs or is attached to. Dropping it disconnects; its end is recorded all the same.
pub struct Command {
    pid: u32,
    input: SessionInput,
    sandbox: LiveSandbox,
    /// `None` after the end.
    output: Option<SessionOutput>,
    ending: Option<Ending>,
}

impl Command {
    pub(super) fn new(session: Session, sandbox: LiveSandbox, ending: Option<Ending>) -> Self {
        let Session { pid, output, input } = session;
        Self { pid, input, sandbox, output: Some(output), ending }
    }

    /// Its pid in the sandbox.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The way in; clones are for tasks of their own.
    pub fn input(&self) -> SessionInput {
        self.input.clone()
    }

    /// What comes next; `None` after the end. Cancel-safe. When the sandbox ends, so does this, with an error.
    pub async fn next(&mut self) -> Result<Option<Output>, AppError> {
        let Some(output) = self.output.as_mut() else { return Ok(None) };
        let next = next_of(output, &self.sandbox).await;
        if let Some(ending) = self.ending.as_mut() {
            ending.see(&next);
        }
        if !matches!(next, Ok(Some(Output::Stdout(_) | Output::Stderr(_) | Output::Pty(_)))) {
            self.output = None;
        }
        next
    }
}

async fn next_of(output: &mut SessionOutput, sandbox: &LiveSandbox) -> Result<Option<Output>, AppError> {
    tokio::select! {
        biased;
        () = sandbox.ended().cancelled() => Err(AppError::SandboxEnded(sandbox.id.clone())),
        next = output.next() => Ok(next?),
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        let (Some(mut output), Some(mut ending)) = (self.output.take(), self.ending.take()) else { return };
        let (input, sandbox) = (self.input.clone(), self.sandbox.clone());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // The process goes on without its client (or is killed, if it was started so); the record needs its end.
        runtime.spawn(async move {
            if ending.kill_on_disconnect
                && let Err(error) = input.signal(SIGKILL, SignalScope::Tree).await
            {
                tracing::debug!(%error, sandbox = %sandbox.id, "kill a command whose client went away");
            }
            while !ending.seen {
                ending.see(&next_of(&mut output, &sandbox).await);
            }
        });
    }
}

/// The part of the record of a command that is still to be written.
pub(super) struct Ending {
    agent: Agent,
    intent: u64,
    kill_on_disconnect: bool,
    output_bytes: u64,
    seen: bool,
}

impl Ending {
    pub(super) fn new(agent: Agent, intent: u64, kill_on_disconnect: bool) -> Self {
        Self { agent, intent, kill_on_disconnect, output_bytes: 0, seen: false }
    }

    fn see(&mut self, next: &Result<Option<Output>, AppError>) {
        match next {
            Ok(Some(Output::Stdout(bytes) | Output::Stderr(bytes) | Output::Pty(bytes))) => {
                self.output_bytes += bytes.len() as u64;
            }
            Ok(Some(Output::Exited(exit))) => self.finished(exit),
            Ok(None) => self.lost("its connection was closed"),
            Err(error) => self.lost(&error.public()),
        }
    }

    fn finished(&mut self, exit: &Exit) {
        self.write(&Event::CommandFinished {
            intent: self.intent,
            code: exit.code,
            signal: exit.signal,
            timed_out: exit.timed_out,
            duration_ms: exit.duration_ms,
            cpu_ms: exit.cpu_user_ms.saturating_add(exit.cpu_system_ms),
            max_rss_kib: exit.max_rss_kib,
            output_bytes: self.output_bytes,
        });
    }

    fn lost(&mut self, why: &str) {
        self.write(&Event::CommandLost { intent: self.intent, why: why.to_owned() });
    }

    fn write(&mut self, fact: &Event) {
        if !self.seen {
            self.seen = true;
            self.agent.outcome(fact);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.lost("the server stopped");
    }
}
