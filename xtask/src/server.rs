//! Owns starting and stopping a server for the chores: waits for its `ready`, passes on what it says meanwhile, and
//! never leaves it running unless told to.

use crate::run::Log;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Building the template `base` out of Debian packages is part of a first start.
const READY: Duration = Duration::from_secs(20 * 60);
const STOP: Duration = Duration::from_secs(60);

/// A server of ours.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// How it was started.
    pub(crate) config: Config,
}

/// How to start a server.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The program.
    pub(crate) binary: PathBuf,
    /// Where everything of it is.
    pub(crate) data_dir: PathBuf,
    /// Address and port.
    pub(crate) listen: String,
    /// Where it writes its first key.
    pub(crate) key_file: PathBuf,
    /// Name of which the sandboxes are sub-domains, with the port.
    pub(crate) domain: String,
}

impl Config {
    /// A server of `binary` in `data_dir`, on a free port of the loopback.
    pub(crate) fn local(binary: &Path, data_dir: &Path) -> Result<Self> {
        let port = free_port()?;
        Ok(Self {
            binary: binary.to_owned(),
            data_dir: data_dir.to_owned(),
            listen: format!("127.0.0.1:{port}"),
            key_file: data_dir.with_extension("key"),
            domain: format!("e2b.localhost:{port}"),
        })
    }

    /// Its base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// The command line after the program.
    pub(crate) fn args(&self) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let rows = [
            ("--data-dir", text(&self.data_dir)),
            ("--listen", self.listen.clone()),
            ("--api-key-file", text(&self.key_file)),
            ("--domain", self.domain.clone()),
        ];
        let mut args = vec!["serve".to_owned()];
        args.extend(rows.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]));
        args
    }
}

impl Server {
    /// Starts it and waits for `ready`. What it says goes to `log` and, line by line, to `progress`.
    pub(crate) fn start(config: Config, log: &mut Log, progress: impl FnMut(&str)) -> Result<Self> {
        log.note(&format!("$ {} {}", config.binary.display(), config.args().join(" ")))?;
        let mut command = Command::new(&config.binary);
        command.args(config.args()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.handle()?);
        let mut child = command.spawn().with_context(|| format!("start {}", config.binary.display()))?;
        let stdout = child.stdout.take().context("standard output of the server")?;
        let lines = follow(stdout, log)?;
        let mut server = Self { child, config };
        server.wait_ready(&lines, progress)?;
        Ok(server)
    }

    /// Its pid.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as an operator would, and says whether it ended well.
    pub(crate) fn stop(mut self) -> Result<bool> {
        signal("TERM", self.pid())?;
        let deadline = Instant::now() + STOP;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().context("wait for the server")? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        bail!("the server did not end within {} s of SIGTERM", STOP.as_secs())
    }

    fn wait_ready(&mut self, lines: &Receiver<String>, mut progress: impl FnMut(&str)) -> Result<()> {
        let deadline = Instant::now() + READY;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.trim() == "ready" => return Ok(()),
                Ok(line) => progress(&line),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the server was not ready within {} s", READY.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().context("wait for the server")?;
                    bail!("the server ended before it was ready: {status}")
                }
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) && signal("TERM", self.pid()).is_ok() {
            let deadline = Instant::now() + STOP;
            while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Sends a signal by name.
pub(crate) fn signal(name: &str, pid: u32) -> Result<()> {
    let status =
        Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().context("start kill")?;
    if status.success() { Ok(()) } else { bail!("kill -{name} {pid}: {status}") }
}

/// Copies what the server says into the log and hands on the lines.
fn follow(stdout: ChildStdout, log: &Log) -> Result<Receiver<String>> {
    let mut copy = log.handle()?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if writeln!(copy, "{line}").is_err() {
                return;
            }
            // Nobody listens any more once the server is ready, and that is fine.
            drop(sender.send(line));
        }
    });
    Ok(receiver)
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("find a free port")?;
    Ok(listener.local_addr().context("find a free port")?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(script: &str, dir: &Path) -> Config {
        std::fs::create_dir_all(dir).unwrap();
        let binary = dir.join("server.sh");
        std::fs::write(&binary, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::process::Command::new("chmod").arg("+x").arg(&binary).status().unwrap();
        assert!(mode.success());
        Config::local(&binary, &dir.join("data")).unwrap()
    }

    #[test]
    fn a_server_that_says_ready_is_started_and_stopped() {
        let dir = std::env::temp_dir().join(format!("xtask-server-{}", std::process::id()));
        let config = config("echo building; echo ready; exec sleep 60", &dir);
        let mut log = Log::create(&dir.join("a.log")).unwrap();
        let mut seen = Vec::new();
        let server = Server::start(config, &mut log, |line| seen.push(line.to_owned())).unwrap();
        assert_eq!(seen, ["building"]);
        assert!(!server.stop().unwrap());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_server_that_ends_before_it_is_ready_is_an_error() {
        let dir = std::env::temp_dir().join(format!("xtask-noserver-{}", std::process::id()));
        let config = config("echo no such directory >&2; exit 3", &dir);
        let mut log = Log::create(&dir.join("a.log")).unwrap();
        let error = Server::start(config, &mut log, |_| {}).unwrap_err().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(log.text().unwrap().contains("no such directory"));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
