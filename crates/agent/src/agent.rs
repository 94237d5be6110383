//! Owns what all connections share, and the threads of the agent.

use crate::deadline::Deadlines;
use crate::link::Link;
use crate::sync::lock;
use crate::table::Table;
use cofferdam_proto::guest::Configure;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::thread::Builder;

/// Stack of a thread, in bytes. Debug builds need more for the same code.
const STACK_BYTES: usize = if cfg!(debug_assertions) { 512 * 1024 } else { 128 * 1024 };

/// The state of PID 1.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) link: Link,
    pub(crate) table: Table,
    pub(crate) deadlines: Deadlines,
    /// Connections that are served now.
    pub(crate) connections: AtomicUsize,
    /// Held while a large call is decoded, so that many at once do not add up.
    pub(crate) large_call: Mutex<()>,
    defaults: Mutex<Arc<Defaults>>,
}

/// What `Configure` set.
#[derive(Debug)]
pub(crate) struct Defaults {
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) user: String,
    pub(crate) workdir: String,
    pub(crate) open_files: Option<u64>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { env: BTreeMap::new(), user: "root".to_owned(), workdir: String::new(), open_files: None }
    }
}

impl Agent {
    /// Not configured yet: root is the default user.
    pub(crate) fn new(link: Link) -> Self {
        Self {
            link,
            table: Table::default(),
            deadlines: Deadlines::default(),
            connections: AtomicUsize::new(0),
            large_call: Mutex::default(),
            defaults: Mutex::default(),
        }
    }

    /// What holds now.
    pub(crate) fn defaults(&self) -> Arc<Defaults> {
        Arc::clone(&lock(&self.defaults))
    }

    /// Takes new defaults.
    pub(crate) fn set_defaults(&self, configure: Configure) {
        let Configure { env, default_user: user, default_workdir: workdir, open_files, .. } = configure;
        let open_files = Some(u64::from(open_files)).filter(|limit| *limit > 0);
        *lock(&self.defaults) = Arc::new(Defaults { env, user, workdir, open_files });
    }
}

/// Starts a thread with a small stack.
pub(crate) fn thread(name: &'static str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(work).map(drop)
}
