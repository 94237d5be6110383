//! Owns a node without a kernel behind it: a driver, agents and a clock that tests command, and a template to start from.

mod fakes;

pub(crate) use fakes::{FakeClock, FakeDriver, FakeGuest, Fault};

use crate::node::{Node, Parts, Sizes};
use crate::pool::PoolSize;
use crate::records::Records;
use crate::templates::{PlainTrees, TemplateStore};
use cofferdam_core::{Resources, SandboxId, SandboxSpec, TemplateInfo};
use cofferdam_proto::guest::Failure;
use cofferdam_proto::node::{Answer, EndReason, ImportFormat, ImportTemplate, Request, SandboxRecord};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A node on a directory of its own. What the fakes hold outlives a restart of the node, as sandboxes do.
pub(crate) struct Bed {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) driver: Arc<FakeDriver>,
    pub(crate) guest: Arc<FakeGuest>,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) template: TemplateInfo,
    pub(crate) sizes: Sizes,
    pub(crate) node: Option<Node>,
}

/// A tar with one file.
pub(crate) fn archive(content: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    builder.append_data(&mut header, "etc/content", content.as_bytes()).unwrap();
    builder.into_inner().unwrap()
}

pub(crate) fn id(number: usize) -> SandboxId {
    format!("i{number}").parse().unwrap()
}

impl Bed {
    pub(crate) async fn new(pool: PoolSize) -> Self {
        Self::with_max(pool, 16).await
    }

    pub(crate) async fn with_max(pool: PoolSize, sandboxes_max: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("trees")).unwrap();
        let clock = Arc::new(FakeClock::new());
        let store = open_store(&dir, &clock);
        let template = import(&store, "base", "first").await;
        drop(store);
        let sizes =
            Sizes { sandboxes_max, pool, template: "base".into(), data_dir: dir.path().to_path_buf() };
        let (driver, guest) = (Arc::new(FakeDriver::default()), Arc::new(FakeGuest::default()));
        let mut bed = Self { dir, driver, guest, clock, template, sizes, node: None };
        bed.start();
        bed
    }

    pub(crate) fn start(&mut self) {
        let parts = Parts {
            driver: self.driver.clone(),
            guest: self.guest.clone(),
            clock: self.clock.clone(),
            templates: open_store(&self.dir, &self.clock),
            records: Records::open(self.dir.path().join("slots")).unwrap(),
            leftovers: self.driver.held(),
            incarnation: "test".into(),
        };
        self.node = Some(Node::start(parts, self.sizes.clone()).unwrap());
    }

    /// As by `kill -9`: nothing gets a chance to clean up. Tasks of the old node are cut off where they are.
    pub(crate) async fn crash(&mut self) {
        if let Some(node) = self.node.take() {
            node.service.host.stop();
        }
        // Threads that were writing come to their end, as they may before a signal arrives.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    pub(crate) fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    pub(crate) fn spec(&self, number: usize) -> SandboxSpec {
        SandboxSpec {
            id: id(number),
            tenant: "n1".parse().unwrap(),
            template: self.template.id.clone(),
            digest: self.template.digest.clone(),
            resources: Resources::default(),
            env: BTreeMap::from([("SECRET".into(), "hush".into())]),
            files: BTreeMap::from([("/.note".into(), "hi".into())]),
            hostname: "box".into(),
            expires_at: self.clock.after(Duration::from_secs(300)),
        }
    }

    pub(crate) async fn ask(&self, request: Request) -> Result<Answer, Failure> {
        match self.node().service.handle(request, None, Arc::new(|_| ())).await.answer {
            Answer::Failed(failure) => Err(failure),
            answer => Ok(answer),
        }
    }

    pub(crate) async fn create(&self, spec: SandboxSpec) -> Result<SandboxRecord, Failure> {
        match self.ask(Request::Create(Box::new(spec))).await? {
            Answer::Sandbox(record) => Ok(record),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn kill(&self, number: usize) -> Result<(), Failure> {
        self.ask(Request::Kill { sandbox: id(number) }).await.map(drop)
    }

    pub(crate) async fn list(&self) -> Vec<SandboxRecord> {
        match self.ask(Request::List { after: None }).await.unwrap() {
            Answer::Sandboxes { sandboxes } => sandboxes,
            other => panic!("{other:?}"),
        }
    }

    /// Events that were published since the last call, while nobody listened.
    pub(crate) fn events(&self) -> Vec<(SandboxId, EndReason)> {
        let mut queue = self.node().service.host.events.listen();
        std::iter::from_fn(|| queue.try_recv().ok().map(|event| (event.sandbox, event.reason))).collect()
    }

    /// Slots that hold anything, and records of slots.
    pub(crate) fn left(&self) -> (usize, usize) {
        let records = std::fs::read_dir(self.dir.path().join("slots")).unwrap().count();
        (self.driver.slots(), records)
    }

    /// Waits until something holds, in the time of the test.
    pub(crate) async fn eventually(&self, what: &'static str, mut holds: impl FnMut(&Self) -> bool) {
        for _ in 0..10_000 {
            if holds(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never: {what}");
    }
}

fn open_store(dir: &tempfile::TempDir, clock: &Arc<FakeClock>) -> Arc<TemplateStore> {
    let trees = PlainTrees { directory: dir.path().join("trees") };
    TemplateStore::open(dir.path().join("templates"), Arc::new(trees), clock.clone()).unwrap()
}

pub(crate) async fn import(store: &Arc<TemplateStore>, name: &str, content: &str) -> TemplateInfo {
    let request =
        ImportTemplate { template: name.parse().unwrap(), name: name.into(), format: ImportFormat::Rootfs };
    let bytes = std::io::Cursor::new(archive(content));
    store.import_from(request, bytes, Arc::new(|_| ())).await.unwrap()
}
