//! Owns the supervisor: the process that starts the roles, starts them again when they end, and ends them.
//!
//! It never parses anything from clients or sandboxes. When it dies, whatever killed it, the roles end too (their stream
//! to it closes) and the sandboxes go on; the next `serve` adopts them.
//!
//! SIGINT and SIGTERM end the roles and leave running sandboxes running, so that a restart or an upgrade costs nobody
//! work. What was only prepared ahead is removed.

use crate::config::Config;
use crate::data_dir::{self, DataDir};
use crate::handover::{InitialKey, Orders, Word};
use crate::keeper::{Event, Keeper, Launch};
use crate::roles;
use crate::serve::Role;
use anyhow::{Context, Result, bail, ensure};
use cofferdam_core::secret::ApiKey;
use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};

/// Prepares the data directory and runs the roles until a signal ends them.
pub(crate) fn run(config: Config) -> Result<()> {
    ensure!(
        cofferdam_sys::supervise::is_root(),
        "`serve` must run as root: the node role makes namespaces and cgroups (the api role drops to uid {})",
        config.api.uid
    );
    let data_dir = DataDir::enter(&config)?;
    let listener =
        TcpListener::bind(config.listen).with_context(|| format!("listen on {}", config.listen))?;
    cofferdam_sys::supervise::enter_private_mounts().context("make a private mount namespace")?;
    cofferdam_sys::supervise::become_subreaper().context("become the reaper of orphaned sandboxes")?;
    let first_key = data_dir.first_key()?;
    let orders = Orders {
        instance: data_dir.instance(),
        initial_key: first_key.as_ref().map(|key| InitialKey {
            sha256: hex::encode(Sha256::digest(key.expose())),
            masked: key.masked(),
        }),
        config,
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the event loop")?;
    let launch = Launch { listener, orders };
    runtime.block_on(Supervisor { data_dir, first_key, launch, announced: false }.run())
}

struct Supervisor {
    data_dir: DataDir,
    /// Shown once, when everything is ready for the first time.
    first_key: Option<ApiKey>,
    launch: Launch,
    announced: bool,
}

impl Supervisor {
    async fn run(mut self) -> Result<()> {
        let mut stop = roles::StopSignal::new()?;
        let mut orphans = signal(SignalKind::child()).context("listen for ended children")?;
        write_pid("supervisor", std::process::id())?;
        let mut node = Keeper::start(Role::Node, &self.launch)?;
        let mut api = Keeper::start(Role::Api, &self.launch)?;
        let outcome = loop {
            let event = tokio::select! {
                () = stop.received() => break Ok(()),
                _ = orphans.recv() => {
                    self.reap(&[&node, &api]);
                    continue;
                }
                event = node.next(&self.launch) => event,
                event = api.next(&self.launch) => event,
            };
            if let Err(error) = event.and_then(|event| self.take(event, &[&node, &api])) {
                break Err(error);
            }
        };
        tracing::info!("stopping; running sandboxes go on");
        api.stop().await;
        node.stop().await;
        for name in ["supervisor", "node", "api"] {
            remove_pid(name);
        }
        outcome
    }

    fn take(&mut self, event: Event, keepers: &[&Keeper]) -> Result<()> {
        match event {
            Event::Started { role, pid } => write_pid(role.name(), pid),
            Event::Said { role, word: Word::Failed { message } } if !self.announced => {
                bail!("the {} role cannot start: {message}", role.name())
            }
            Event::Said { role, word: Word::Failed { message } } => {
                tracing::error!(role = role.name(), error = message, "a role failed");
                Ok(())
            }
            Event::Said { word: Word::Ready, .. } => self.announce_when_ready(keepers),
            Event::Ended { role, status } if !self.announced => {
                bail!("the {} role ended before it was ready ({status})", role.name())
            }
            Event::Ended { role, status } => {
                tracing::warn!(role = role.name(), status, "a role ended and is started again");
                Ok(())
            }
        }
    }

    /// Says `ready` once, when all roles are; on the first start, gives the key away first.
    fn announce_when_ready(&mut self, keepers: &[&Keeper]) -> Result<()> {
        if self.announced || !keepers.iter().all(|keeper| keeper.is_ready()) {
            return Ok(());
        }
        if let Some(key) = self.first_key.take() {
            match &self.launch.orders.config.api_key_file {
                Some(path) => data_dir::write_key(path, &key)?,
                None => say(&format!("API key (shown once, keep it): {}", key.expose()))?,
            }
            self.data_dir.mark_initialized()?;
            self.launch.orders.initial_key = None;
        }
        self.announced = true;
        let address = self.launch.listener.local_addr().context("read the listening address")?;
        tracing::info!(%address, "listening");
        say("ready")
    }

    fn reap(&self, keepers: &[&Keeper]) {
        let keep: Vec<u32> = keepers.iter().filter_map(|keeper| keeper.pid()).collect();
        if let Err(error) = cofferdam_sys::supervise::reap_orphans(&keep) {
            tracing::warn!(%error, "reap orphans");
        }
    }
}

/// One line on stdout.
fn say(line: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("write to stdout")
}

fn pid_file(name: &str) -> PathBuf {
    PathBuf::from(format!("run/{name}.pid"))
}

fn write_pid(name: &str, pid: u32) -> Result<()> {
    std::fs::write(pid_file(name), format!("{pid}\n"))
        .with_context(|| format!("write the pid file of {name}"))
}

fn remove_pid(name: &str) {
    if let Err(error) = std::fs::remove_file(pid_file(name)) {
        tracing::debug!(name, %error, "remove a pid file");
    }
}
