//! Owns the time limits of processes: one thread, made when the first is set, that ends trees whose time is up.

use crate::agent::{Agent, thread};
use crate::process::Process;
use crate::sync::lock;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Instant;

/// All deadlines.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    runs: bool,
    waiting: BTreeMap<(Instant, u64), Weak<Process>>,
}

impl Deadlines {
    /// Makes sure that there is a thread to watch them.
    pub(crate) fn prepare(&self, agent: &Arc<Agent>) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        if !inner.runs {
            let agent = Arc::clone(agent);
            thread(move || agent.deadlines.watch())?;
            inner.runs = true;
        }
        Ok(())
    }

    /// Ends the tree of `process` at `at`, unless it has ended by then.
    pub(crate) fn set(&self, process: &Arc<Process>, at: Instant) {
        lock(&self.inner).waiting.insert((at, process.serial), Arc::downgrade(process));
        self.changed.notify_all();
    }

    /// The process has ended.
    pub(crate) fn cancel(&self, process: &Process) {
        lock(&self.inner).waiting.retain(|(_, serial), _| *serial != process.serial);
    }

    fn watch(&self) {
        loop {
            let Some(process) = self.next().upgrade() else { continue };
            let victim = Arc::clone(&process);
            // A tree that resists must not hold up the others; without a thread for it, it does.
            if thread(move || victim.kill_tree(true)).is_err() {
                process.kill_tree(true);
            }
        }
    }

    fn next(&self) -> Weak<Process> {
        let mut inner = lock(&self.inner);
        loop {
            let now = Instant::now();
            inner = match inner.waiting.first_entry() {
                None => self.changed.wait(inner).unwrap_or_else(std::sync::PoisonError::into_inner),
                Some(first) if first.key().0 <= now => return first.remove(),
                Some(first) => {
                    let span = first.key().0 - now;
                    let waited = self.changed.wait_timeout(inner, span);
                    waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
                }
            };
        }
    }
}
