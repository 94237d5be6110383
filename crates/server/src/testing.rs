//! Owns what the tests of this crate stand on: a store, a record and use cases in a directory of their own, at a fake
//! node.

use crate::app::{Actor, App, Clock, CreateSandbox, Parts, SandboxView, Settings};
use crate::cluster::NodeLink;
use crate::store::{InitialKey, Store};
use cofferdam_audit::{Journal, Query, Row, Settings as JournalSettings, read};
use cofferdam_core::limits::TIMEOUT_SECONDS_MAX;
use cofferdam_core::secret::ApiKey;
use cofferdam_core::{Resources, SandboxId, Timestamp};
use cofferdam_policy::Quota;
use cofferdam_testkit::fake_node::FakeNode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Everything there is, at a fake node. Dropping it stops it.
pub(crate) struct World {
    pub(crate) app: App,
    pub(crate) node: FakeNode,
    pub(crate) actor: Actor,
    pub(crate) key: ApiKey,
    now_us: Arc<AtomicI64>,
    stop: CancellationToken,
    dir: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_quota(Quota::default()).await
    }

    pub(crate) async fn with_quota(quota: Quota) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = FakeNode::start(dir.path()).unwrap();
        Self::start(dir, node, quota).await
    }

    async fn start(dir: TempDir, node: FakeNode, quota: Quota) -> Self {
        let now_us = Arc::new(AtomicI64::new(1_767_323_045_000_000));
        let clock: Clock = {
            // Each look at the clock is a microsecond later, so that starts have an order.
            let now_us = Arc::clone(&now_us);
            Arc::new(move || Timestamp::from_micros(now_us.fetch_add(1, Ordering::Relaxed)))
        };
        let key = ApiKey::from_entropy([7; 20]);
        let store = Store::open(&dir.path().join("store.db")).unwrap();
        store.bootstrap(InitialKey::from(&key), quota, clock(), [[1; 20], [2; 20]]).await.unwrap();
        let audit = dir.path().join("audit");
        std::fs::create_dir_all(&audit).unwrap();
        // Small enough that each record is a file of its own; `break_record` counts on it.
        let settings = JournalSettings { segment_bytes: 1 };
        let journal = Journal::open(&audit, settings, clock()).unwrap();
        let stop = CancellationToken::new();
        let (link, events) = NodeLink::start(node.path().to_owned(), stop.clone());
        let settings = Settings {
            domain: None,
            resources: Resources::default(),
            timeout_seconds_max: TIMEOUT_SECONDS_MAX,
            clock,
        };
        let app = App::start(settings, Parts { store, journal, link, events }, stop.clone()).await.unwrap();
        let actor = app.authenticate(key.expose()).await.unwrap();
        Self { app, node, actor, key, now_us, stop, dir }
    }

    /// The same directory and node with a new process.
    pub(crate) async fn restart(mut self) -> Self {
        self.stop.cancel();
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        let node = self.node.clone();
        drop(self);
        Self::start(dir, node, Quota::default()).await
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.now_us.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    pub(crate) async fn create(&self) -> SandboxView {
        self.app
            .create_sandbox(&self.actor, CreateSandbox { secure: true, ..CreateSandbox::default() })
            .await
            .unwrap()
    }

    /// The record of a sandbox.
    pub(crate) fn record(&self, sandbox: &SandboxId) -> Vec<Row> {
        let (tenant, sandbox) = (self.actor.tenant.clone(), sandbox.clone());
        let query = Query { tenant, sandbox, after: 0, limit: 1000 };
        read(&self.dir.path().join("audit"), &query).unwrap()
    }

    /// Names of the events in the record of a sandbox.
    pub(crate) fn events(&self, sandbox: &SandboxId) -> Vec<String> {
        self.record(sandbox).into_iter().map(|row| row.event).collect()
    }

    /// Names of all events there are.
    pub(crate) fn all_events(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.dir.path().join("audit")).unwrap();
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        let name = |path: &std::path::PathBuf| {
            let row: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            row["event"].as_str().unwrap().to_owned()
        };
        paths.iter().map(name).collect()
    }

    /// From now on nothing can be recorded.
    pub(crate) fn break_record(&self) {
        let audit = self.dir.path().join("audit");
        let files = std::fs::read_dir(&audit).unwrap().count();
        std::fs::create_dir(audit.join(format!("{:020}.jsonl", files + 1))).unwrap();
    }

    /// The whole record holds.
    pub(crate) fn verify(&self) {
        cofferdam_audit::verify(&self.dir.path().join("audit")).unwrap();
    }
}

/// Waits until `condition` holds; a test that waits in vain fails.
#[track_caller]
pub(crate) fn eventually(condition: impl AsyncFn() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        for _ in 0..2000 {
            if condition().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never came true: {caller}");
    }
}
