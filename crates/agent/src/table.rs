//! Owns which processes of clients there are: those that run, and for a while the ends of those that do not.

use crate::failure::failure;
use crate::process::Process;
use crate::sync::lock;
use cofferdam_core::ErrorKind;
use cofferdam_core::limits::{EXIT_RETENTION_MS, GUEST_PROCESSES_MAX};
use cofferdam_proto::guest::{self, Exec, Exit, Failure, Selector};
use cofferdam_sys::wait::{self, Ended};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Marks begin here: far beyond any time in microseconds that a limit could mean.
const MARK_BASE: u64 = 1 << 62;
/// Ends that are kept.
const EXITS_MAX: usize = 256;
/// Bytes that are remembered of what clients asked for: all of it must fit into one answer.
const REMEMBERED_BYTES_MAX: usize = 512 * 1024;

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    inner: Mutex<Inner>,
    /// Rings when a child was started.
    started: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    running: BTreeMap<u32, Arc<Process>>,
    exits: VecDeque<Gone>,
    /// Orders that are under way: their children can end before we know them.
    starting: usize,
    early: HashMap<u32, Ended>,
    remembered_bytes: usize,
    serial: u64,
}

/// A process that has ended.
#[derive(Debug, Clone)]
pub(crate) struct Gone {
    at: Instant,
    pub(crate) pid: u32,
    tag: Option<String>,
    pub(crate) exit: Exit,
}

/// What a selector finds.
#[derive(Debug)]
pub(crate) enum Known {
    /// A process that runs.
    Running(Arc<Process>),
    /// The end of one that does not any more.
    Gone(Gone),
}

/// Leave to start one process. Dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    table: &'a Table,
    pub(crate) serial: u64,
}

impl Ticket<'_> {
    /// What the process and its descendants are marked with.
    pub(crate) fn mark(&self) -> u64 {
        MARK_BASE + self.serial
    }

    /// The child exists: from now on it is found, and its end is noticed even if it came before.
    pub(crate) fn enter(self, process: Process) -> Arc<Process> {
        let process = Arc::new(process);
        let mut inner = lock(&self.table.inner);
        inner.remembered_bytes += size(&process.info);
        inner.running.insert(process.pid(), Arc::clone(&process));
        if let Some(ended) = inner.early.remove(&process.pid()) {
            process.note_end(ended);
        }
        process
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut inner = lock(&self.table.inner);
        inner.starting -= 1;
        if inner.starting == 0 {
            inner.early = HashMap::new();
        }
        self.table.started.notify_all();
    }
}

impl Table {
    /// Asks for leave to start a process.
    pub(crate) fn ticket(&self) -> Result<Ticket<'_>, Failure> {
        let mut inner = lock(&self.inner);
        if inner.running.len() + inner.starting >= GUEST_PROCESSES_MAX {
            return Err(failure(ErrorKind::ResourceExhausted, "too many commands run in this sandbox"));
        }
        inner.starting += 1;
        inner.serial += 1;
        Ok(Ticket { table: self, serial: inner.serial })
    }

    /// What is kept of a request for listings: everything if that is not much, then less and less.
    pub(crate) fn remember(&self, exec: &Exec, pid: u32) -> guest::Process {
        let left = REMEMBERED_BYTES_MAX.saturating_sub(lock(&self.inner).remembered_bytes);
        let mut kept = guest::Process {
            pid,
            cmd: exec.cmd.clone(),
            args: exec.args.clone(),
            env: exec.env.clone(),
            cwd: exec.cwd.clone(),
            tag: exec.tag.clone(),
            pty: matches!(exec.stdio, guest::Stdio::Pty(_)),
        };
        let enough = left / 8;
        if size(&kept) > enough {
            kept.env.clear();
        }
        if size(&kept) > enough {
            kept.args.clear();
        }
        if size(&kept) > enough {
            kept.cmd.clear();
            kept.cwd = None;
        }
        kept
    }

    /// Some child, pid `pid`, has ended.
    pub(crate) fn reap(&self, pid: u32) -> io::Result<()> {
        let mut inner = lock(&self.inner);
        if let Some(process) = inner.running.get(&pid).cloned() {
            drop(inner);
            return process.reap();
        }
        if let Some(ended) = wait::try_reap(pid)?
            && inner.starting > 0
        {
            inner.early.insert(pid, ended);
        }
        Ok(())
    }

    /// Waits until there may be a child again, at most `span`.
    pub(crate) fn wait_for_start(&self, span: Duration) {
        drop(self.started.wait_timeout(lock(&self.inner), span));
    }

    /// The process never became what it should have.
    pub(crate) fn forget(&self, process: &Arc<Process>) {
        lock(&self.inner).leave(process);
    }

    /// The process has ended and its end is fixed.
    pub(crate) fn retire(&self, process: &Arc<Process>, exit: Exit) {
        let at = Instant::now();
        let mut inner = lock(&self.inner);
        inner.leave(process);
        inner.expire(at);
        if inner.exits.len() >= EXITS_MAX {
            inner.exits.pop_front();
        }
        inner.exits.push_back(Gone { at, pid: process.pid(), tag: process.info.tag.clone(), exit });
    }

    /// The processes that run, in the order of their start.
    pub(crate) fn list(&self) -> Vec<guest::Process> {
        let mut processes: Vec<_> = lock(&self.inner).running.values().cloned().collect();
        processes.sort_by_key(|process| process.serial);
        processes.iter().map(|process| process.info.clone()).collect()
    }

    /// A process that runs.
    pub(crate) fn running(&self, selector: &Selector) -> Result<Arc<Process>, Failure> {
        let inner = lock(&self.inner);
        let found = match selector {
            Selector::Pid(pid) => inner.running.get(pid),
            Selector::Tag(tag) => newest(inner.running.values(), tag),
        };
        found.cloned().ok_or_else(|| missing(selector))
    }

    /// A process that runs, or whose end is still known.
    pub(crate) fn known(&self, selector: &Selector) -> Result<Known, Failure> {
        if let Ok(process) = self.running(selector) {
            return Ok(Known::Running(process));
        }
        let mut inner = lock(&self.inner);
        inner.expire(Instant::now());
        let found = inner.exits.iter().rfind(|gone| match selector {
            Selector::Pid(pid) => gone.pid == *pid,
            Selector::Tag(tag) => gone.tag.as_ref() == Some(tag),
        });
        found.cloned().map(Known::Gone).ok_or_else(|| missing(selector))
    }
}

impl Inner {
    fn leave(&mut self, process: &Arc<Process>) {
        let is_it = |other: &Arc<Process>| Arc::ptr_eq(other, process);
        if self.running.get(&process.pid()).is_some_and(is_it) {
            self.running.remove(&process.pid());
            self.remembered_bytes = self.remembered_bytes.saturating_sub(size(&process.info));
        }
    }

    fn expire(&mut self, now: Instant) {
        let kept = Duration::from_millis(EXIT_RETENTION_MS);
        while self.exits.front().is_some_and(|gone| now.duration_since(gone.at) > kept) {
            self.exits.pop_front();
        }
    }
}

fn newest<'a>(processes: impl Iterator<Item = &'a Arc<Process>>, tag: &str) -> Option<&'a Arc<Process>> {
    processes.filter(|process| process.info.tag.as_deref() == Some(tag)).max_by_key(|process| process.serial)
}

fn missing(selector: &Selector) -> Failure {
    let message = match selector {
        Selector::Pid(pid) => format!("process with pid {pid} not found"),
        Selector::Tag(tag) => format!("process with tag {tag} not found"),
    };
    failure(ErrorKind::NotFound, message)
}

/// Bytes it takes in a listing, at most: a byte can become six in JSON.
fn size(process: &guest::Process) -> usize {
    let texts = [Some(&process.cmd), process.cwd.as_ref(), process.tag.as_ref()];
    let texts = texts.into_iter().flatten().chain(&process.args);
    let pairs = process.env.iter().flat_map(|(name, value)| [name, value]);
    128 + texts.chain(pairs).map(|text| text.len() + escapes(text) * 5 + 4).sum::<usize>()
}

fn escapes(text: &str) -> usize {
    text.bytes().filter(|byte| byte.is_ascii_control() || matches!(byte, b'"' | b'\\')).count()
}
