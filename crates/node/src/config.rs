//! Owns what the node is told at its start. Paths are relative to the working directory, which is the data directory, so
//! that the paths of sockets stay short.

use crate::isolation::container::{AGENT, LauncherCommand};
use std::path::PathBuf;

/// Everything a node needs to know. Passed by value, never changed.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Records, templates and the data volume; for root alone.
    pub node_dir: PathBuf,
    /// Sockets.
    pub run_dir: PathBuf,
    /// Where the server connects.
    pub socket: PathBuf,
    /// Who may connect.
    pub allowed_uids: Vec<u32>,
    /// Group that may open the socket.
    pub api_gid: Option<u32>,
    /// Tells the kernel objects of this data directory from those of another on the same host.
    pub instance: String,
    /// Largest number of sandboxes at one time.
    pub sandboxes_max: u32,
    /// Shells parked ahead of need.
    pub parked: u32,
    /// Sandboxes booted ahead of need.
    pub warm: u32,
    /// Name of the template that is kept warm; `base` is built when it is missing.
    pub default_template: String,
    /// Where the archive of `base` is kept for other data directories. Deleting it costs time only.
    pub cache_dir: PathBuf,
    /// Size of the data volume when it is made; 0 takes 80 % of the free space.
    pub disk_image_bytes: u64,
    /// How to start the launcher.
    pub launcher: LauncherCommand,
    /// The program of the agent: the one that was built with this, but for tests.
    pub agent: &'static [u8],
}

impl NodeConfig {
    /// The usual places and sizes.
    pub fn new(instance: String, launcher: LauncherCommand) -> Self {
        Self {
            node_dir: "node".into(),
            run_dir: "run".into(),
            socket: "run/node.sock".into(),
            allowed_uids: vec![0],
            api_gid: None,
            instance,
            sandboxes_max: 2000,
            parked: 8,
            warm: 8,
            default_template: "base".into(),
            cache_dir: "/var/cache/cofferdam".into(),
            disk_image_bytes: 0,
            launcher,
            agent: AGENT,
        }
    }
}
