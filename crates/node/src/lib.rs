//! Owns the privileged half of a host: isolation drivers, storage, templates, the pool and the life of each sandbox.
//! Hands out connected sockets into sandboxes; never parses what a client sent, never sees policy or a secret.

mod actor;
mod clock;
mod config;
mod doctor;
mod events;
mod guest;
mod host;
pub mod isolation;
pub mod launcher;
mod link;
mod node;
mod pidfd;
mod pool;
mod records;
mod registry;
mod service;
mod slots;
pub mod storage;
mod templates;
mod undo;

#[cfg(test)]
mod testbed;
#[cfg(test)]
mod tests;

pub use config::NodeConfig;
pub use doctor::check as doctor;
pub use records::RecordError;
pub use templates::ImportError;

use crate::clock::{Clock, SystemClock};
use crate::guest::Agents;
use crate::isolation::container::{ContainerConfig, ContainerDriver, StartError};
use crate::link::Door;
use crate::node::{Node, Parts, Sizes};
use crate::pool::PoolSize;
use crate::records::Records;
use crate::storage::VolumeConfig;
use crate::templates::base::{self, Workshop};
use crate::templates::{Progress, Step, TemplateStore, VolumeTrees};
use cofferdam_core::ErrorKind;
use cofferdam_sys::openat;
use std::fs::{DirBuilder, File};
use std::future::Future;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

/// The node could not start.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Another node works on the same directory.
    #[error("another node runs on the same data directory")]
    Running,
    /// A directory or file of the node could not be made.
    #[error("prepare the directories of the node")]
    Directories(#[source] io::Error),
    /// The isolation driver did not start.
    #[error("start the isolation of sandboxes")]
    Driver(#[source] StartError),
    /// What the driver left earlier could not be listed.
    #[error("look for what is left of earlier sandboxes")]
    Leftovers(#[source] io::Error),
    /// The templates could not be read.
    #[error("open the templates")]
    Templates(#[source] io::Error),
    /// The records could not be read.
    #[error("read the records of sandboxes")]
    Records(#[source] RecordError),
    /// The default template could not be made.
    #[error("make the template `base`")]
    Base(#[source] templates::ImportError),
    /// The socket for the server could not be made.
    #[error("open the socket for the server")]
    Socket(#[source] io::Error),
}

impl NodeError {
    /// What a caller may do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Running => ErrorKind::Conflict,
            Self::Driver(_) => ErrorKind::Unsupported,
            Self::Base(_) => ErrorKind::Internal,
            Self::Directories(_)
            | Self::Leftovers(_)
            | Self::Templates(_)
            | Self::Records(_)
            | Self::Socket(_) => ErrorKind::Internal,
        }
    }
}

/// Runs the node until `shutdown` completes. Sandboxes go on afterwards; the next node takes them over. `ready` is called
/// once, when sandboxes of the default template can be made; a template that cannot be made ends the node.
pub async fn run(
    config: NodeConfig,
    ready: impl FnOnce() + Send,
    shutdown: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    make_directories(&config).map_err(NodeError::Directories)?;
    // Held until the end, so that a second node refuses.
    let _lock = lock(&config)?;
    let clock = Arc::new(SystemClock);
    let driver = ContainerDriver::start(container(&config)?).await.map_err(NodeError::Driver)?;
    let leftovers = driver.slots().map_err(NodeError::Leftovers)?;
    let templates = open_templates(&config, clock.clone()).map_err(NodeError::Templates)?;
    let records = Records::open(config.node_dir.join("slots")).map_err(NodeError::Records)?;
    let incarnation = format!("{:x}-{}", clock.now().as_micros(), std::process::id());
    let parts = Parts {
        driver: Arc::new(driver.clone()),
        guest: Arc::new(Agents),
        clock,
        templates: Arc::clone(&templates),
        records,
        leftovers,
        incarnation,
    };
    let mut node = Node::start(parts, sizes(&config)).map_err(NodeError::Records)?;
    let door = Door { socket: config.socket.clone(), uids: config.allowed_uids.clone(), gid: config.api_gid };
    node.open(door).map_err(NodeError::Socket)?;
    let service = Arc::clone(&node.service);
    let work = async {
        make_base(&config, &templates, &service).await?;
        tracing::info!(socket = %config.socket.display(), "the node is ready");
        ready();
        std::future::pending().await
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        () = shutdown => Ok(()),
    };
    if node.stop(&config.socket).await {
        driver.remove_shared();
    }
    outcome
}

fn make_directories(config: &NodeConfig) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(&config.node_dir)?;
    // The server must reach the socket in it; what is secret in it is closed by itself.
    DirBuilder::new().recursive(true).mode(0o755).create(&config.run_dir)?;
    DirBuilder::new().recursive(true).mode(0o700).create(config.run_dir.join("s"))
}

fn lock(config: &NodeConfig) -> Result<File, NodeError> {
    let file = File::create(config.node_dir.join("lock")).map_err(NodeError::Directories)?;
    match cofferdam_sys::lock::try_lock(&file) {
        Ok(true) => Ok(file),
        Ok(false) => Err(NodeError::Running),
        Err(error) => Err(NodeError::Directories(error)),
    }
}

fn container(config: &NodeConfig) -> Result<ContainerConfig, NodeError> {
    let size_bytes = match config.disk_image_bytes {
        0 => openat::space(&config.node_dir).map_err(NodeError::Directories)?.0 / 10 * 8,
        bytes => bytes,
    };
    Ok(ContainerConfig {
        instance: config.instance.clone(),
        volume: VolumeConfig {
            image: config.node_dir.join("data.btrfs"),
            mount_point: config.node_dir.join("data"),
            size_bytes,
        },
        launcher: config.launcher.clone(),
        agent: config.agent,
    })
}

fn open_templates(config: &NodeConfig, clock: Arc<dyn Clock>) -> io::Result<Arc<TemplateStore>> {
    let trees = VolumeTrees::open(config.node_dir.join("data/templates"))?;
    TemplateStore::open(config.node_dir.join("templates"), Arc::new(trees), clock)
}

fn sizes(config: &NodeConfig) -> Sizes {
    Sizes {
        sandboxes_max: config.sandboxes_max,
        pool: PoolSize { parked: config.parked, warm: config.warm },
        template: config.default_template.clone(),
        data_dir: Path::new(".").to_path_buf(),
    }
}

/// Makes the template `base` when it is the default and missing. Requests are answered meanwhile.
async fn make_base(
    config: &NodeConfig,
    templates: &Arc<TemplateStore>,
    service: &service::Service,
) -> Result<(), NodeError> {
    let workshop =
        Workshop { cache_dir: config.cache_dir.clone(), scratch_dir: config.node_dir.join("build") };
    workshop.clear().await;
    if config.default_template != base::NAME || templates.current(base::NAME).is_some() {
        return Ok(());
    }
    let progress: Progress = Arc::new(|Step { step, done, total }| {
        tracing::info!(template = base::NAME, step, done, total, "making the template");
    });
    base::ensure(templates, &workshop, progress).await.map_err(NodeError::Base)?;
    service.pool.follow_templates().await;
    Ok(())
}
