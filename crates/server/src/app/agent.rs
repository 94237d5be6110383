//! Owns every way into a sandbox: each operation is permitted, recorded as intent, done, and recorded as outcome, here
//! and nowhere else. Surfaces translate; they cannot reach an agent around this.

use super::command::{Command, Ending};
use super::{Actor, App, AppError, Caller, LiveSandbox};
use crate::cluster::LinkError;
use crate::guest::{self, FileReader, FileWriter, GuestError, InputWriter, Watcher};
use cofferdam_audit::{Entry as Record, Event, FileChange, bounded_argv};
use cofferdam_core::lifecycle::{Decision, Request, decide};
use cofferdam_core::limits::GUEST_REPLY_MS_MAX;
use cofferdam_core::{ErrorKind, SandboxId, State};
use cofferdam_policy::{Action, Permit, Scopes};
use cofferdam_proto::guest::{
    Entry, Exec, Path, Process, PtySize, Selector, SignalScope, Stats, Stdio, User,
};
use cofferdam_proto::node::Usage;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::net::UnixStream;

/// One caller at one sandbox. Get it from [`App::agent`] (a key) or [`App::agent_for`] (the gateway).
#[derive(Clone)]
pub struct Agent {
    app: App,
    sandbox: LiveSandbox,
    scopes: Scopes,
    record: Record,
}

impl App {
    /// The way into a sandbox of the actor's tenant. What its key may do there is decided at each operation.
    pub async fn agent(&self, actor: &Actor, id: &SandboxId) -> Result<Agent, AppError> {
        let sandbox = self.unended(actor, id)?;
        let record = self.entry(actor, Some(id));
        let agent = Agent { app: self.clone(), sandbox, scopes: actor.scopes, record };
        agent.until_usable().await?;
        Ok(agent)
    }

    /// The way into a sandbox for a caller whom the gateway has let in: what the token of a sandbox opens.
    pub fn agent_for(&self, sandbox: LiveSandbox, caller: Caller) -> Agent {
        let record = Record {
            by: caller.recorded(),
            tenant: Some(sandbox.tenant.clone()),
            sandbox: Some(sandbox.id.clone()),
            request: super::model::current_request(),
        };
        Agent { app: self.clone(), sandbox, scopes: Scopes::SANDBOX_TOKEN, record }
    }
}

impl Agent {
    /// The sandbox.
    pub fn sandbox(&self) -> &LiveSandbox {
        &self.sandbox
    }

    /// Whether the caller may run commands, for surfaces that say so before they know which.
    pub fn may_exec(&self) -> Result<(), AppError> {
        self.permit(Action::Exec).map(|_| ())
    }

    /// Starts a process.
    pub async fn exec(&self, exec: Exec) -> Result<Command, AppError> {
        let permit = self.permit(Action::Exec)?;
        let intent = self.intent(&permit, &command_wish(&exec))?;
        let kill = exec.kill_on_disconnect;
        match self.call(async |stream| guest::exec(stream, exec).await).await {
            Ok(session) => {
                self.outcome(&Event::CommandStarted { intent, pid: session.pid });
                let ending = Ending::new(self.clone(), intent, kill);
                Ok(Command::new(session, self.sandbox.clone(), Some(ending)))
            }
            Err(error) => {
                let (kind, why) = (error.kind(), error.public());
                self.outcome(&Event::CommandFailed { intent, kind, why });
                Err(error)
            }
        }
    }

    /// Joins a process that runs.
    pub async fn attach(&self, process: Selector) -> Result<Command, AppError> {
        let permit = self.permit(Action::Exec)?;
        self.intent(&permit, &Event::CommandAttached { process: name(&process) })?;
        let session = self.call(async |stream| guest::attach(stream, process).await).await?;
        Ok(Command::new(session, self.sandbox.clone(), None))
    }

    /// The processes that clients started.
    pub async fn processes(&self) -> Result<Vec<Process>, AppError> {
        let _permit = self.permit(Action::Exec)?;
        self.call(guest::list).await
    }

    /// Sends a signal.
    pub async fn signal(&self, process: Selector, signal: u8, scope: SignalScope) -> Result<(), AppError> {
        let permit = self.permit(Action::Exec)?;
        let tree = scope == SignalScope::Tree;
        self.intent(&permit, &Event::ProcessSignalled { process: name(&process), signal, tree })?;
        self.call(async |stream| guest::signal(stream, process, signal, scope).await).await
    }

    /// Opens the input of a process. Whether there is such a process, its end tells.
    pub async fn input(&self, process: Selector, pty: bool) -> Result<InputWriter, AppError> {
        let permit = self.permit(Action::Exec)?;
        self.intent(&permit, &Event::ProcessInput { process: name(&process), closed: false })?;
        self.call(async |stream| guest::input(stream, process, pty).await).await
    }

    /// Closes the standard input of a process.
    pub async fn close_stdin(&self, process: Selector) -> Result<(), AppError> {
        let permit = self.permit(Action::Exec)?;
        self.intent(&permit, &Event::ProcessInput { process: name(&process), closed: true })?;
        self.call(async |stream| guest::close_stdin(stream, process).await).await
    }

    /// Gives a terminal a new size.
    pub async fn resize(&self, process: Selector, size: PtySize) -> Result<(), AppError> {
        let _permit = self.permit(Action::Exec)?;
        self.call(async |stream| guest::resize(stream, process, size).await).await
    }

    /// Looks at a path.
    pub async fn stat(&self, path: Path) -> Result<Entry, AppError> {
        let _permit = self.permit(Action::ReadFiles)?;
        self.call(async |stream| guest::stat(stream, path).await).await
    }

    /// Lists a directory.
    pub async fn list_dir(&self, path: Path, depth: u32) -> Result<Vec<Entry>, AppError> {
        let _permit = self.permit(Action::ReadFiles)?;
        self.call(async |stream| guest::list_dir(stream, path, depth).await).await
    }

    /// Makes a directory.
    pub async fn make_dir(&self, path: Path) -> Result<Entry, AppError> {
        let wish = change(FileChange::MakeDirectory, &path, Vec::new());
        self.changed(
            wish,
            |entry: &Entry| entry.path.clone(),
            async |stream| guest::make_dir(stream, path).await,
        )
        .await
    }

    /// Moves a path.
    pub async fn rename(&self, source: Path, destination: String) -> Result<Entry, AppError> {
        let wish = change(FileChange::Move, &source, vec![destination.clone()]);
        self.changed(
            wish,
            |entry: &Entry| entry.path.clone(),
            async |stream| guest::rename(stream, source, destination).await,
        )
        .await
    }

    /// Removes a path with everything below it.
    pub async fn remove(&self, path: Path) -> Result<(), AppError> {
        let (wish, removed) = (change(FileChange::Remove, &path, Vec::new()), path.path.clone());
        self.changed(wish, |()| removed, async |stream| guest::remove(stream, path).await).await
    }

    /// Concatenates files.
    pub async fn compose(&self, sources: Vec<String>, destination: Path) -> Result<Entry, AppError> {
        let wish = change(FileChange::Compose, &destination, sources.clone());
        self.changed(
            wish,
            |entry: &Entry| entry.path.clone(),
            async |stream| guest::compose(stream, sources, destination).await,
        )
        .await
    }

    /// Opens a file for reading.
    pub async fn read(&self, path: Path, offset: u64, length: Option<u64>) -> Result<FileReader, AppError> {
        let permit = self.permit(Action::ReadFiles)?;
        let wish = Event::FileReadRequested { path: path.path.clone(), user: user(&path.user) };
        let intent = self.intent(&permit, &wish)?;
        let opened = self.call(async |stream| guest::read(stream, path, offset, length).await).await;
        self.outcome(&match &opened {
            Ok(file) => Event::FileRead { intent, path: file.entry.path.clone(), bytes: file.length },
            Err(error) => file_failed(intent, error),
        });
        opened
    }

    /// Opens a file for writing.
    pub async fn write(
        &self,
        path: Path,
        metadata: BTreeMap<String, String>,
        mode: u32,
    ) -> Result<Upload, AppError> {
        let permit = self.permit(Action::WriteFiles)?;
        let intent = self.intent(&permit, &change(FileChange::Write, &path, Vec::new()))?;
        let opened = self.call(async |stream| guest::write(stream, path, metadata, mode).await).await;
        match opened {
            Ok(writer) => Ok(Upload { agent: self.clone(), intent, writer: Some(writer) }),
            Err(error) => {
                self.outcome(&file_failed(intent, &error));
                Err(error)
            }
        }
    }

    /// Watches a directory.
    pub async fn watch(&self, path: Path, recursive: bool) -> Result<Watcher, AppError> {
        let permit = self.permit(Action::ReadFiles)?;
        self.intent(&permit, &Event::DirectoryWatched { path: path.path.clone() })?;
        self.call(async |stream| guest::watch(stream, path, recursive).await).await
    }

    /// Connects to a TCP port of the sandbox's loopback; `Reason::PortClosed` when nothing listens.
    pub async fn dial(&self, port: u16) -> Result<UnixStream, AppError> {
        let permit = self.permit(Action::DialPort)?;
        self.intent(&permit, &Event::PortDialled { port })?;
        self.call(async |stream| guest::dial(stream, port).await).await
    }

    /// What the sandbox uses, as its agent sees it.
    pub async fn stats(&self) -> Result<Stats, AppError> {
        let _permit = self.permit(Action::Exec)?;
        self.call(guest::stats).await
    }

    /// What the sandbox uses, as the node measures it.
    pub async fn usage(&self) -> Result<Usage, AppError> {
        let _permit = self.permit(Action::Exec)?;
        Ok(self.app.0.link.usage(self.sandbox.id.clone()).await?)
    }

    pub(super) fn outcome(&self, fact: &Event) {
        self.app.outcome(&self.record, fact);
    }

    fn permit(&self, action: Action) -> Result<Permit, AppError> {
        self.app.permit_as(&self.record, self.scopes, action)
    }

    fn intent(&self, permit: &Permit, wish: &Event) -> Result<u64, AppError> {
        Ok(self.app.intent(permit, &self.record, wish)?)
    }

    /// A change of files: permitted, wished for, done, noted.
    async fn changed<T>(
        &self,
        wish: Event,
        path: impl FnOnce(&T) -> String,
        work: impl AsyncFnOnce(UnixStream) -> Result<T, GuestError>,
    ) -> Result<T, AppError> {
        let permit = self.permit(Action::WriteFiles)?;
        let intent = self.intent(&permit, &wish)?;
        let result = self.call(work).await;
        self.outcome(&match &result {
            Ok(value) => Event::FileChanged { intent, path: path(value), bytes: None },
            Err(error) => file_failed(intent, error),
        });
        result
    }

    /// One operation on a connection of its own. It is broken off when the sandbox ends.
    async fn call<T>(
        &self,
        work: impl AsyncFnOnce(UnixStream) -> Result<T, GuestError>,
    ) -> Result<T, AppError> {
        let id = &self.sandbox.id;
        let whole = async {
            match self.app.0.link.dial(id.clone()).await {
                Ok(stream) => work(stream).await.map_err(|error| self.translate(error)),
                Err(LinkError::Failed(failure)) if failure.kind == ErrorKind::NotFound => {
                    Err(AppError::SandboxEnded(id.clone()))
                }
                Err(error) => Err(error.into()),
            }
        };
        tokio::select! {
            biased;
            result = whole => result,
            () = self.sandbox.ended().cancelled() => Err(AppError::SandboxEnded(id.clone())),
        }
    }

    /// An error of the agent, with the limit that it is about.
    fn translate(&self, error: GuestError) -> AppError {
        AppError::from(error).within(&self.sandbox.resources)
    }

    /// Waits until the sandbox can be used, if it is on its way there.
    async fn until_usable(&self) -> Result<(), AppError> {
        let id = &self.sandbox.id;
        let mut states = self.sandbox.watch_state();
        let settled = states.wait_for(|state| decide(*state, Request::Use) != Decision::Wait);
        let settled = tokio::time::timeout(Duration::from_millis(GUEST_REPLY_MS_MAX), settled).await;
        let state = match settled {
            Ok(Ok(state)) => *state,
            Ok(Err(_)) => State::Killing,
            Err(_) => self.sandbox.state(),
        };
        match decide(state, Request::Use) {
            Decision::Stay | Decision::Go(_) => Ok(()),
            Decision::Wait | Decision::Refuse => Err(AppError::SandboxState { id: id.clone(), state }),
            Decision::Gone => Err(AppError::SandboxNotFound(id.to_string())),
        }
    }
}

/// A file being written; the record gets its outcome from [`Upload::finish`], or from dropping it.
pub struct Upload {
    agent: Agent,
    intent: u64,
    writer: Option<FileWriter>,
}

impl Upload {
    /// Gives the next bytes. After an error there is no use in going on.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), AppError> {
        let sandbox = &self.agent.sandbox;
        let writer = self.writer.as_mut().ok_or(GuestError::Closed)?;
        let written = tokio::select! {
            biased;
            written = writer.write(bytes) => written.map_err(|error| self.agent.translate(error)),
            () = sandbox.ended().cancelled() => Err(AppError::SandboxEnded(sandbox.id.clone())),
        };
        if let Err(error) = &written {
            self.writer = None;
            self.agent.outcome(&file_failed(self.intent, error));
        }
        written
    }

    /// Ends the content and waits until the file is complete.
    pub async fn finish(mut self) -> Result<Entry, AppError> {
        let writer = self.writer.take().ok_or(GuestError::Closed)?;
        let bytes = Some(writer.sent());
        let finished = writer.finish().await.map_err(|error| self.agent.translate(error));
        self.agent.outcome(&match &finished {
            Ok(entry) => Event::FileChanged { intent: self.intent, path: entry.path.clone(), bytes },
            Err(error) => file_failed(self.intent, error),
        });
        finished
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            let why = format!("broken off after {} bytes", writer.sent());
            let kind = ErrorKind::Unavailable;
            self.agent.outcome(&Event::FileFailed { intent: self.intent, kind, why });
        }
    }
}

fn command_wish(exec: &Exec) -> Event {
    let argv = std::iter::once(&exec.cmd).chain(&exec.args).map(String::as_str);
    let (argv, argv_sha256) = bounded_argv(argv);
    Event::CommandRequested {
        argv,
        argv_sha256,
        cwd: exec.cwd.clone(),
        user: user(&exec.user),
        env_names: exec.env.keys().cloned().collect(),
        pty: matches!(exec.stdio, Stdio::Pty(_)),
        timeout_ms: exec.timeout_ms,
    }
}

fn change(change: FileChange, path: &Path, others: Vec<String>) -> Event {
    Event::FileChangeRequested { change, path: path.path.clone(), others, user: user(&path.user) }
}

fn file_failed(intent: u64, error: &AppError) -> Event {
    Event::FileFailed { intent, kind: error.kind(), why: error.public() }
}

fn user(user: &User) -> Option<String> {
    match user {
        User::Default => None,
        User::Named(name) => Some(name.clone()),
    }
}

fn name(process: &Selector) -> String {
    match process {
        Selector::Pid(pid) => pid.to_string(),
        Selector::Tag(tag) => format!("tag:{tag}"),
    }
}
