//! Owns the start of each role's process: logging, the signals that end it, the wiring of its configuration.

use crate::config::Config;
use crate::data_dir;
use crate::handover::{self, Orders, Word};
use crate::serve::Role;
use anyhow::{Context, Result, bail};
use cofferdam_node::isolation::container::LauncherCommand;
use cofferdam_server::{InitialKey, Quota, ServerConfig};
use std::io::{IsTerminal as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use tokio::io::AsyncReadExt as _;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Logs go to stderr; `COFFERDAM_LOG` sets what (default `info`).
pub(crate) fn start_logging() {
    let filter = EnvFilter::try_from_env("COFFERDAM_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
}

/// One line on stderr, for the last word of a process.
pub(crate) fn complain(line: &str) {
    let mut stderr = std::io::stderr().lock();
    if writeln!(stderr, "{line}").is_err() {
        // There is nowhere left to say it; the exit status tells.
    }
}

/// The signals that end a process in order.
pub(crate) struct StopSignal {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignal {
    /// Listens from now on.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).context("listen for SIGINT")?,
            terminate: signal(SignalKind::terminate()).context("listen for SIGTERM")?,
        })
    }

    /// Waits for one of them.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Starts a role on a runtime of its own and runs it until the supervisor is gone or asks.
pub(crate) fn run(role: Role, orders: Orders, supervisor: UnixStream) -> Result<()> {
    let listener = match role {
        Role::Api => Some(handover::inherited_listener()?),
        Role::Node => None,
    };
    runtime()?.block_on(async {
        let word = supervisor.try_clone().context("share the supervisor's stream")?;
        let ready_word = supervisor.try_clone().context("share the supervisor's stream")?;
        let stop = stop_token(Some(supervisor))?;
        let ready = move || handover::tell(&ready_word, &Word::Ready);
        let outcome = start(role, orders, listener, ready, stop).await;
        if let Err(error) = &outcome {
            handover::tell(&word, &Word::Failed { message: format!("{error:#}") });
        }
        outcome
    })
}

/// Runs one role without a supervisor. The data directory must have been made by a first start of all roles.
pub(crate) fn run_alone(role: Role, config: Config) -> Result<()> {
    std::env::set_current_dir(&config.data_dir)
        .with_context(|| format!("enter the data directory `{}`", config.data_dir.display()))?;
    let listener = match role {
        Role::Api => {
            Some(TcpListener::bind(config.listen).with_context(|| format!("listen on {}", config.listen))?)
        }
        Role::Node => None,
    };
    let instance = data_dir::instance(&std::env::current_dir().context("find the data directory")?);
    let orders = Orders { config, instance, initial_key: None };
    let ready = || tracing::info!("ready");
    runtime()?.block_on(async { start(role, orders, listener, ready, stop_token(None)?).await })
}

/// The process that makes the processes of sandboxes; the node starts it.
pub(crate) fn launcher() -> ExitCode {
    match cofferdam_sys::helper::inherited_socket() {
        Ok(socket) => cofferdam_node::launcher::launcher_main(socket),
        Err(error) => {
            complain(&format!("cofferdam: the launcher is started by the node only: {error}"));
            ExitCode::from(2)
        }
    }
}

fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the event loop")
}

async fn start(
    role: Role,
    orders: Orders,
    listener: Option<TcpListener>,
    ready: impl FnOnce() + Send + 'static,
    stop: CancellationToken,
) -> Result<()> {
    match (role, listener) {
        (Role::Node, _) => {
            let config = node_config(&orders);
            cofferdam_node::run(config, ready, async move { stop.cancelled().await }).await?;
        }
        (Role::Api, Some(listener)) => {
            let config = server_config(orders)?;
            cofferdam_server::run(config, listener, ready, stop).await?;
        }
        (Role::Api, None) => bail!("the api role has no listening socket"),
    }
    Ok(())
}

/// Fires on a signal, and when the supervisor is gone or closes its stream.
fn stop_token(supervisor: Option<UnixStream>) -> Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut signals = StopSignal::new()?;
    let fire = stop.clone();
    tokio::spawn(async move {
        signals.received().await;
        fire.cancel();
    });
    if let Some(stream) = supervisor {
        stream.set_nonblocking(true).context("watch the supervisor's stream")?;
        let mut stream = tokio::net::UnixStream::from_std(stream).context("watch the supervisor's stream")?;
        let fire = stop.clone();
        tokio::spawn(async move {
            // The supervisor says nothing after the orders: whatever comes of this read is the end.
            if let Err(error) = stream.read_u8().await {
                tracing::debug!(%error, "the supervisor closed its stream");
            }
            fire.cancel();
        });
    }
    Ok(stop)
}

fn node_config(orders: &Orders) -> cofferdam_node::NodeConfig {
    let Config { api, node, .. } = &orders.config;
    let launcher = LauncherCommand { program: "/proc/self/exe".into(), arguments: vec!["launcher".into()] };
    let mut config = cofferdam_node::NodeConfig::new(orders.instance.clone(), launcher);
    config.allowed_uids = vec![0, api.uid];
    config.api_gid = Some(api.gid);
    config.sandboxes_max = node.sandboxes_max;
    config.parked = node.parked;
    config.warm = node.warm;
    config.cache_dir.clone_from(&node.cache_dir);
    config.disk_image_bytes = node.disk_image_mib * 1024 * 1024;
    config
}

fn server_config(orders: Orders) -> Result<ServerConfig> {
    let Config { domain, defaults, quota, .. } = orders.config;
    let initial_key = orders.initial_key.map(|key| -> Result<InitialKey> {
        let hash = <[u8; 32]>::try_from(hex::decode(&key.sha256).context("decode the first key")?)
            .map_err(|_| anyhow::anyhow!("the hash of the first key is not 32 bytes"))?;
        Ok(InitialKey { hash, masked: key.masked })
    });
    Ok(ServerConfig {
        store: "api/store.db".into(),
        audit_dir: "api/audit".into(),
        node_socket: "run/node.sock".into(),
        domain,
        resources: defaults,
        quota: Quota {
            sandboxes_max: quota.sandboxes.into(),
            cpu_millis_max: quota.cpu_millis,
            memory_mib_max: quota.memory_mib,
        },
        initial_key: initial_key.transpose()?,
    })
}
