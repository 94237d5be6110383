//! Owns what all connections share, and the threads of the agent.

use crate::deadline::Deadlines;
use crate::link::Link;
use crate::sync::lock;
use crate::table::Table;
use cofferdam_proto::guest::Configure;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::{SyncSender, sync_channel};
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
    /// There were many of them at once, which leaves a heap with holes.
    pub(crate) burst: AtomicBool,
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
            burst: AtomicBool::new(false),
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

/// Work for a thread.
type Work = Box<dyn FnOnce() + Send>;

/// Threads that have nothing to do: making one costs a tenth of starting a small program.
static IDLE: Mutex<Vec<SyncSender<Work>>> = Mutex::new(Vec::new());
/// How many of them are kept.
const IDLE_MAX: usize = 4;

/// A thread that is there and waits.
#[derive(Debug)]
pub(crate) struct Reserved(SyncSender<Work>);

impl Reserved {
    /// Gives it its work.
    pub(crate) fn work(self, work: impl FnOnce() + Send + 'static) {
        // It waits for exactly this.
        self.0.send(Box::new(work)).ok();
    }
}

/// A thread with a small stack, reserved: whoever must not fail later for want of one.
pub(crate) fn reserve() -> io::Result<Reserved> {
    if let Some(idle) = { lock(&IDLE).pop() } {
        return Ok(Reserved(idle));
    }
    let (sender, receiver) = sync_channel(1);
    let wait = move || {
        // Given back without work.
        if let Ok(work) = receiver.recv() {
            run(work);
        }
    };
    Builder::new().stack_size(STACK_BYTES).spawn(wait)?;
    Ok(Reserved(sender))
}

/// Has a thread with a small stack do `work`.
pub(crate) fn thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    reserve()?.work(work);
    Ok(())
}

fn run(mut work: Work) {
    loop {
        work();
        let (sender, receiver) = sync_channel(1);
        if !stay(sender) {
            return;
        }
        match receiver.recv() {
            Ok(next) => work = next,
            Err(_) => return,
        }
    }
}

fn stay(sender: SyncSender<Work>) -> bool {
    let mut idle = lock(&IDLE);
    let is_needed = idle.len() < IDLE_MAX;
    if is_needed {
        idle.push(sender);
    }
    is_needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_do_one_thing_after_another() {
        let (sender, receiver) = std::sync::mpsc::channel();
        for number in 0..100 {
            let sender = sender.clone();
            thread(move || sender.send(number).unwrap()).unwrap();
        }
        let mut seen: Vec<i32> = receiver.iter().take(100).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
}
