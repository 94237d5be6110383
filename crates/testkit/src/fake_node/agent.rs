//! Owns a pretended agent: a few commands, files in memory, and no process anywhere.
//!
//! Commands: `echo WORDS`, `cat`, `exit CODE`, `forever` (until a signal), `env`, `garbage` (breaks the protocol).

use cofferdam_core::{ErrorKind, SandboxSpec, Timestamp};
use cofferdam_proto::frame::{Channel, Decoder, Frame, encode};
use cofferdam_proto::guest::{
    self, Call, Change, Entry, Exec, Exit, Failure, FileType, Input, Process, Reason, Reply, Request,
    Selector, Stats, Stdio,
};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

/// A sandbox in memory.
pub(super) struct Sandbox {
    spec: SandboxSpec,
    expires_us: AtomicI64,
    next_pid: AtomicU32,
    ended: CancellationToken,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    files: BTreeMap<String, Vec<u8>>,
    processes: BTreeMap<u32, (Process, CancellationToken)>,
}

impl Sandbox {
    pub(super) fn new(spec: SandboxSpec) -> Self {
        let expires_us = AtomicI64::new(spec.expires_at.as_micros());
        let (next_pid, ended) = (AtomicU32::new(100), CancellationToken::new());
        Self { spec, expires_us, next_pid, ended, inside: Mutex::default() }
    }

    pub(super) fn spec(&self) -> &SandboxSpec {
        &self.spec
    }

    pub(super) fn expires_at(&self) -> Timestamp {
        Timestamp::from_micros(self.expires_us.load(Ordering::Relaxed))
    }

    pub(super) fn set_expires_at(&self, at: Timestamp) -> cofferdam_proto::node::SandboxRecord {
        self.expires_us.store(at.as_micros(), Ordering::Relaxed);
        self.record()
    }

    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One connection: one operation.
    pub(super) async fn serve(&self, stream: UnixStream) {
        let mut wire = Wire { stream, decoder: Decoder::default() };
        // A caller that goes away early is no concern of a fake.
        drop(self.ended.run_until_cancelled(self.operate(&mut wire)).await);
    }

    async fn operate(&self, wire: &mut Wire) -> io::Result<()> {
        let Some(first) = wire.next().await? else { return Ok(()) };
        let call: Call = guest::decode("call", &first.payload).map_err(io::Error::other)?;
        match call.request {
            Request::Exec(exec) => self.exec(wire, exec).await,
            Request::Attach { process } => self.attach(wire, &process).await,
            Request::Input { process, .. } => self.input(wire, &process).await,
            Request::Read { path, offset, length } => self.read(wire, &path.path, offset, length).await,
            Request::Write { path, .. } => self.write(wire, path.path).await,
            Request::ListDir { path, .. } => self.list_dir(wire, &path.path).await,
            Request::Dial { port } => self.dial(wire, port).await,
            Request::Watch { .. } => {
                wire.reply(&Reply::Ok).await?;
                wire.reply(&Reply::Event { name: "new.txt".to_owned(), change: Change::Create }).await
            }
            other => wire.reply(&self.at_once(other)).await,
        }
    }

    fn at_once(&self, request: Request) -> Reply {
        let mut inside = self.inside();
        match request {
            Request::List => {
                let processes = inside.processes.values().map(|(process, _)| process.clone()).collect();
                Reply::Processes { processes }
            }
            Request::Signal { process, .. } => match inside.find(&process) {
                Some(stop) => {
                    stop.cancel();
                    Reply::Ok
                }
                None => missing("process not found"),
            },
            Request::Stat { path } => match inside.files.get(&path.path) {
                Some(content) => Reply::Entry { entry: entry(&path.path, content.len()) },
                None => missing("no such file"),
            },
            Request::MakeDir { path } => Reply::Entry { entry: entry(&path.path, 0) },
            Request::Move { source, destination } => match inside.files.remove(&source.path) {
                Some(content) => {
                    let entry = entry(&destination, content.len());
                    inside.files.insert(destination, content);
                    Reply::Entry { entry }
                }
                None => missing("no such file"),
            },
            Request::Remove { path } => {
                inside.files.remove(&path.path);
                Reply::Ok
            }
            Request::Compose { sources, destination } => {
                let parts = sources.iter().filter_map(|source| inside.files.remove(source));
                let content = parts.collect::<Vec<_>>().concat();
                let entry = entry(&destination.path, content.len());
                inside.files.insert(destination.path, content);
                Reply::Entry { entry }
            }
            Request::Stats => {
                Reply::Stats(Stats { disk_used: 1, disk_total: 2, processes: 3, agent_rss_kib: 4 })
            }
            _ => Reply::Ok,
        }
    }

    async fn exec(&self, wire: &mut Wire, exec: Exec) -> io::Result<()> {
        let (pid, stop) = (self.next_pid.fetch_add(1, Ordering::Relaxed), CancellationToken::new());
        if exec.cmd == "missing" {
            return wire.fail(ErrorKind::NotFound, "no such program", Reason::None).await;
        }
        let process = Process {
            pid,
            cmd: exec.cmd.clone(),
            args: exec.args.clone(),
            env: exec.env.clone(),
            cwd: exec.cwd.clone(),
            tag: exec.tag.clone(),
            pty: matches!(exec.stdio, Stdio::Pty(_)),
        };
        self.inside().processes.insert(pid, (process, stop.clone()));
        wire.reply(&Reply::Started { pid }).await?;
        let ran = self.run(wire, &exec, &stop).await;
        self.inside().processes.remove(&pid);
        wire.reply(&Reply::Exited(ran?)).await
    }

    async fn run(&self, wire: &mut Wire, exec: &Exec, stop: &CancellationToken) -> io::Result<Exit> {
        let output = if matches!(exec.stdio, Stdio::Pty(_)) { Channel::Pty } else { Channel::Stdout };
        match exec.cmd.as_str() {
            "echo" => {
                wire.send(output, format!("{}\n", exec.args.join(" ")).as_bytes()).await?;
                Ok(exit(Some(0), None))
            }
            "complain" => {
                wire.send(Channel::Stderr, exec.args.join(" ").as_bytes()).await?;
                Ok(exit(Some(1), None))
            }
            "env" => {
                let all = self.spec.env.iter().chain(&exec.env);
                let text: String = all.map(|(name, value)| format!("{name}={value}\n")).collect();
                wire.send(output, text.as_bytes()).await?;
                Ok(exit(Some(0), None))
            }
            "exit" => Ok(exit(exec.args.first().and_then(|code| code.parse().ok()), None)),
            "garbage" => {
                wire.stream.write_all(b"\xff\xff\xff\xff\x09nonsense").await?;
                Ok(exit(Some(0), None))
            }
            "cat" => follow(wire, output, stop).await,
            "forever" => follow(wire, Channel::Stderr, stop).await,
            _ => Ok(exit(Some(127), None)),
        }
    }

    async fn attach(&self, wire: &mut Wire, process: &Selector) -> io::Result<()> {
        let found = self.inside().find(process);
        let Some(stop) = found else {
            return wire.fail(ErrorKind::NotFound, "process not found", Reason::None).await;
        };
        let pid = if let Selector::Pid(pid) = process { *pid } else { 0 };
        wire.reply(&Reply::Started { pid }).await?;
        stop.cancelled().await;
        wire.reply(&Reply::Exited(exit(None, Some(9)))).await
    }

    async fn input(&self, wire: &mut Wire, process: &Selector) -> io::Result<()> {
        if self.inside().find(process).is_none() {
            return wire.fail(ErrorKind::NotFound, "process not found", Reason::None).await;
        }
        while let Some(frame) = wire.next().await? {
            if frame.payload.is_empty() {
                return wire.reply(&Reply::Ok).await;
            }
        }
        Ok(())
    }

    async fn read(&self, wire: &mut Wire, path: &str, offset: u64, length: Option<u64>) -> io::Result<()> {
        let found = self.inside().files.get(path).cloned();
        let Some(content) = found else {
            return wire.fail(ErrorKind::NotFound, &format!("file '{path}' not found"), Reason::None).await;
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
        let wanted = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
        let end = start.saturating_add(wanted).min(content.len());
        let part = &content[start..end];
        let entry = entry(path, content.len());
        wire.reply(&Reply::File { entry, length: part.len() as u64 }).await?;
        for chunk in part.chunks(16 * 1024) {
            wire.send(Channel::File, chunk).await?;
        }
        wire.send(Channel::File, &[]).await
    }

    async fn write(&self, wire: &mut Wire, path: String) -> io::Result<()> {
        wire.reply(&Reply::Ok).await?;
        let mut content = Vec::new();
        while let Some(frame) = wire.next().await? {
            if frame.payload.is_empty() {
                let entry = entry(&path, content.len());
                self.inside().files.insert(path, content);
                return wire.reply(&Reply::Entry { entry }).await;
            }
            content.extend(frame.payload);
            if path.contains("full") && content.len() > 100_000 {
                let kind = ErrorKind::ResourceExhausted;
                return wire.fail(kind, "no space left in the sandbox", Reason::NoSpace).await;
            }
        }
        Ok(())
    }

    async fn list_dir(&self, wire: &mut Wire, path: &str) -> io::Result<()> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let entries: Vec<_> = {
            let inside = self.inside();
            let below = inside.files.iter().filter(|(name, _)| name.starts_with(&prefix));
            below.map(|(name, content)| entry(name, content.len())).collect()
        };
        for part in entries.chunks(2) {
            wire.reply(&Reply::Entries { entries: part.to_vec() }).await?;
        }
        wire.reply(&Reply::Entries { entries: Vec::new() }).await
    }

    async fn dial(&self, wire: &mut Wire, port: u16) -> io::Result<()> {
        if port != 8080 {
            return wire.fail(ErrorKind::Unavailable, "port is not open", Reason::PortClosed).await;
        }
        wire.reply(&Reply::Ok).await?;
        wire.stream.write_all(b"hello from 8080\n").await?;
        let (mut from, mut to) = wire.stream.split();
        tokio::io::copy(&mut from, &mut to).await.map(|_| ())
    }
}

impl Inside {
    fn find(&self, process: &Selector) -> Option<CancellationToken> {
        let fits = |p: &&(Process, CancellationToken)| match process {
            Selector::Pid(pid) => p.0.pid == *pid,
            Selector::Tag(tag) => p.0.tag.as_ref() == Some(tag),
        };
        self.processes.values().find(fits).map(|(_, stop)| stop.clone())
    }
}

/// Repeats what comes in until the input is closed, a signal comes, or the caller goes away (then until a signal).
async fn follow(wire: &mut Wire, output: Channel, stop: &CancellationToken) -> io::Result<Exit> {
    loop {
        let frame = tokio::select! {
            () = stop.cancelled() => return Ok(exit(None, Some(9))),
            frame = wire.next() => frame?,
        };
        match frame {
            None => {
                stop.cancelled().await;
                return Ok(exit(None, Some(9)));
            }
            Some(Frame { channel: Channel::Stdin, payload }) if payload.is_empty() => {
                return Ok(exit(Some(0), None));
            }
            Some(Frame { channel: Channel::Stdin, payload }) => wire.send(output, &payload).await?,
            Some(Frame { payload, .. }) => match guest::decode::<Input>("input", &payload) {
                Ok(Input::Signal { signal, .. }) => return Ok(exit(None, Some(signal))),
                Ok(Input::Resize { size }) => {
                    wire.send(output, format!("{}x{}\n", size.cols, size.rows).as_bytes()).await?;
                }
                Err(error) => return Err(io::Error::other(error)),
            },
        }
    }
}

fn exit(code: Option<i32>, signal: Option<u8>) -> Exit {
    Exit { code, signal, timed_out: false, duration_ms: 1, cpu_user_ms: 1, cpu_system_ms: 1, max_rss_kib: 1 }
}

fn missing(message: &str) -> Reply {
    Reply::Error(Failure { kind: ErrorKind::NotFound, message: message.to_owned(), reason: Reason::None })
}

fn entry(path: &str, size: usize) -> Entry {
    Entry {
        name: path.rsplit('/').next().unwrap_or(path).to_owned(),
        path: path.to_owned(),
        file_type: FileType::File,
        target_type: None,
        target: None,
        size: size as u64,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        owner: "user".to_owned(),
        group: "user".to_owned(),
        modified_us: 0,
        metadata: BTreeMap::new(),
    }
}

struct Wire {
    stream: UnixStream,
    decoder: Decoder,
}

impl Wire {
    async fn next(&mut self) -> io::Result<Option<Frame>> {
        let mut bytes = [0; 16 * 1024];
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(io::Error::other)? {
                return Ok(Some(frame));
            }
            match self.stream.read(&mut bytes).await? {
                0 => return Ok(None),
                read => self.decoder.feed(&bytes[..read]),
            }
        }
    }

    async fn send(&mut self, channel: Channel, payload: &[u8]) -> io::Result<()> {
        let bytes = encode(channel, payload).map_err(io::Error::other)?;
        self.stream.write_all(&bytes).await
    }

    async fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        self.send(Channel::Control, &guest::encode(reply)).await
    }

    async fn fail(&mut self, kind: ErrorKind, message: &str, reason: Reason) -> io::Result<()> {
        self.reply(&Reply::Error(Failure { kind, message: message.to_owned(), reason })).await
    }
}
