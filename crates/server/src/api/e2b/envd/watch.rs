//! Owns the two forms of watching a directory: the event stream, and the watchers that clients poll. A polled watcher
//! is a task that collects events until it is removed or its sandbox ends.

use super::entry;
use super::feed::deadline_exceeded;
use super::session::Session;
use crate::api::e2b::wire::filesystem::watch_dir_response::{Event, KeepAlive, StartEvent};
use crate::api::e2b::wire::filesystem::{EventType, FilesystemEvent, WatchDirResponse};
use crate::guest::{WatchEvent, Watcher};
use cofferdam_core::SandboxId;
use cofferdam_proto::guest::Change;
use connectrpc::ConnectError;
use futures::Stream;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Events that wait for a poll; the oldest are dropped beyond that.
const EVENTS_MAX: usize = 10_000;
/// Polled watchers of one sandbox.
const WATCHERS_MAX: usize = 64;
/// A poll returns when no event came for this long: an event that its cause has just reported is still on its way.
const QUIET: Duration = Duration::from_millis(20);
/// A poll returns after this long, however busy the directory is.
const POLL_TIME: Duration = Duration::from_millis(200);

/// What was asked to be watched.
#[derive(Clone)]
pub(crate) struct Watched {
    /// The request.
    pub(crate) session: Session,
    /// The directory, as the client named it.
    pub(crate) path: String,
    /// Whether events carry the entry.
    pub(crate) include_entry: bool,
}

impl Watched {
    async fn event(&self, event: WatchEvent) -> FilesystemEvent {
        let shown = matches!(event.change, Change::Create | Change::Write | Change::Chmod);
        let mut seen = FilesystemEvent { r#type: kind(event.change).into(), ..Default::default() };
        if self.include_entry && shown {
            let path = format!("{}/{}", self.path.trim_end_matches('/'), event.name);
            if let Ok(found) = self.session.agent.stat(self.session.path(&path)).await {
                seen.entry = entry::info(found).into();
            }
        }
        seen.name = event.name;
        seen
    }
}

fn kind(change: Change) -> EventType {
    match change {
        Change::Create => EventType::EVENT_TYPE_CREATE,
        Change::Write => EventType::EVENT_TYPE_WRITE,
        Change::Remove => EventType::EVENT_TYPE_REMOVE,
        Change::Rename => EventType::EVENT_TYPE_RENAME,
        Change::Chmod => EventType::EVENT_TYPE_CHMOD,
    }
}

/// A watch that is streamed to the client.
pub(crate) struct Watching {
    /// What is watched.
    pub(crate) watched: Watched,
    /// Its events.
    pub(crate) watcher: Watcher,
    /// Longest silence.
    pub(crate) keepalive: Duration,
    /// When to give up.
    pub(crate) deadline: Option<Instant>,
}

type Item = Result<WatchDirResponse, ConnectError>;

impl Watching {
    /// The events, a start before them.
    pub(crate) fn events(self) -> impl Stream<Item = Item> + Send + 'static {
        let start = WatchDirResponse { event: StartEvent::default().into(), ..Default::default() };
        let events = futures::stream::unfold(Some(self), |stream| async move {
            let mut stream = stream?;
            let item = stream.next().await?;
            let over = item.is_err();
            Some((item, (!over).then_some(stream)))
        });
        futures::StreamExt::chain(futures::stream::iter([Ok(start)]), events)
    }

    async fn next(&mut self) -> Option<Item> {
        let deadline = self.deadline;
        let late = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            biased;
            event = self.watcher.next() => event,
            () = late => return Some(Err(deadline_exceeded())),
            () = tokio::time::sleep(self.keepalive) => {
                return Some(Ok(WatchDirResponse { event: KeepAlive::default().into(), ..Default::default() }));
            }
        };
        match event {
            Ok(Some(event)) => {
                let event = Event::from(self.watched.event(event).await);
                Some(Ok(WatchDirResponse { event: Some(event), ..Default::default() }))
            }
            Ok(None) => None,
            Err(error) => Some(Err(self.watched.session.refuse(error.into()).await)),
        }
    }
}

/// The polled watchers of all sandboxes.
#[derive(Clone, Default)]
pub(crate) struct Watchers(Arc<Mutex<HashMap<SandboxId, OfOne>>>);

type OfOne = HashMap<String, Arc<Collected>>;

struct Collected {
    events: Mutex<VecDeque<FilesystemEvent>>,
    news: Notify,
    stop: CancellationToken,
}

impl Watchers {
    /// Starts to collect; answers the id for polling.
    pub(crate) fn add(&self, watched: Watched, watcher: Watcher) -> Result<String, ConnectError> {
        let sandbox = watched.session.agent.sandbox().clone();
        let id = format!("w{}", hex::encode(rand::random::<[u8; 12]>()));
        let collected = Arc::new(Collected {
            events: Mutex::default(),
            news: Notify::new(),
            stop: sandbox.ended().child_token(),
        });
        {
            let mut all = self.lock();
            let own = all.entry(sandbox.id.clone()).or_default();
            if own.len() >= WATCHERS_MAX {
                return Err(ConnectError::failed_precondition(format!(
                    "more than {WATCHERS_MAX} watchers in one sandbox"
                )));
            }
            own.insert(id.clone(), Arc::clone(&collected));
        }
        let watchers = self.clone();
        tokio::spawn(async move {
            collected.fill(&watched, watcher).await;
            if sandbox.ended().is_cancelled() {
                watchers.lock().remove(&sandbox.id);
            }
        });
        Ok(id)
    }

    /// Takes what was collected.
    pub(crate) async fn take(
        &self,
        sandbox: &SandboxId,
        id: &str,
    ) -> Result<Vec<FilesystemEvent>, ConnectError> {
        let collected = self.lock().get(sandbox).and_then(|own| own.get(id)).cloned();
        let collected = collected.ok_or_else(|| unknown(id))?;
        let latest = Instant::now() + POLL_TIME;
        while Instant::now() < latest && tokio::time::timeout(QUIET, collected.news.notified()).await.is_ok()
        {
        }
        Ok(collected.lock().drain(..).collect())
    }

    /// Ends a watcher.
    pub(crate) fn remove(&self, sandbox: &SandboxId, id: &str) -> Result<(), ConnectError> {
        let mut all = self.lock();
        let own = all.get_mut(sandbox).ok_or_else(|| unknown(id))?;
        own.remove(id).ok_or_else(|| unknown(id))?.stop.cancel();
        if own.is_empty() {
            all.remove(sandbox);
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SandboxId, OfOne>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(id: &str) -> ConnectError {
    ConnectError::not_found(format!("watcher with id {id} not found"))
}

impl Collected {
    async fn fill(&self, watched: &Watched, mut watcher: Watcher) {
        loop {
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                event = watcher.next() => event,
            };
            let Ok(Some(event)) = event else { return };
            let event = watched.event(event).await;
            let mut events = self.lock();
            if events.len() >= EVENTS_MAX {
                events.pop_front();
            }
            events.push_back(event);
            drop(events);
            self.news.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<FilesystemEvent>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
