//! Owns which templates exist and which trees are needed: a tree stays while a template lists it or a lease holds it, and
//! goes with the last of them. What a crash leaves is found at the start.

use crate::clock::Clock;
use crate::host::failure;
use crate::templates::error::ImportError;
use crate::templates::import::{self, Built, Progress};
use crate::templates::stream::PipeReader;
use crate::templates::trees::Trees;
use cofferdam_core::{Digest, ErrorKind, TemplateId, TemplateInfo, ids};
use cofferdam_proto::guest::Failure;
use cofferdam_proto::node::{ImportFormat, ImportTemplate};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read, Write};
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Imports at the same time; each may keep a core busy.
const IMPORTS_MAX: usize = 2;
/// How long another import waits for its turn.
const IMPORT_WAIT: Duration = Duration::from_secs(60);
/// Longest description of a template, so that a page of them fits into a message.
const INFO_BYTES_MAX: usize = 48 * 1024;

#[derive(Default)]
struct State {
    listed: BTreeMap<TemplateId, TemplateInfo>,
    users: HashMap<Digest, usize>,
    serial: u64,
    /// The node stops, its sandboxes do not: leases that fall now say nothing about who needs a tree.
    closed: bool,
    /// What the node builds by itself at the moment, for those who ask for it too early.
    building: Option<String>,
}

/// See the module.
pub(crate) struct TemplateStore {
    trees: Arc<dyn Trees>,
    /// Descriptions, one file a template.
    dir: PathBuf,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    imports: Semaphore,
    /// Ends imports that wait for bytes.
    stopping: CancellationToken,
    /// Descriptions are replaced one after the other.
    publishing: tokio::sync::Mutex<()>,
}

/// Holds a tree in place.
pub(crate) struct Lease {
    digest: Digest,
    root: PathBuf,
    store: Arc<TemplateStore>,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lease").field(&self.digest).finish()
    }
}

impl Lease {
    pub(crate) fn digest(&self) -> &Digest {
        &self.digest
    }

    /// The root file system.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.store.release(&self.digest);
    }
}

/// Two names for one import: the tree, and what is thrown away.
struct Names {
    tree: String,
    scratch: String,
}

impl TemplateStore {
    /// Reads the list. Trees are collected later, when it is known which of them sandboxes still use.
    pub(crate) fn open(dir: PathBuf, trees: Arc<dyn Trees>, clock: Arc<dyn Clock>) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(&dir)?;
        let listed = read_list(&dir, trees.directory())?;
        // Names of an earlier process may still be on their way out.
        let serial = clock.now().as_micros().unsigned_abs();
        Ok(Arc::new(Self {
            trees,
            dir,
            clock,
            state: Mutex::new(State { listed, serial, ..State::default() }),
            imports: Semaphore::new(IMPORTS_MAX),
            stopping: CancellationToken::new(),
            publishing: tokio::sync::Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At most `count` templates in order of id, after the given one.
    pub(crate) fn list(&self, after: Option<&TemplateId>, count: usize) -> Vec<TemplateInfo> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.state();
        let page = state.listed.range::<TemplateId, _>((start, Bound::Unbounded)).take(count);
        page.map(|(_, info)| info.clone()).collect()
    }

    /// The template with this id, or else the newest of this name.
    pub(crate) fn current(&self, name: &str) -> Option<TemplateInfo> {
        let state = self.state();
        let by_id = name.parse::<TemplateId>().ok().and_then(|id| state.listed.get(&id));
        let named = state.listed.values().filter(|info| info.name == name);
        by_id.or_else(|| named.max_by_key(|info| info.created_at)).cloned()
    }

    /// Holds the tree of [`TemplateStore::current`].
    pub(crate) fn lease_current(self: &Arc<Self>, name: &str) -> Option<Lease> {
        let info = self.current(name)?;
        self.lease(&info.id, &info.digest).ok().map(|(_, lease)| lease)
    }

    /// Holds the tree of a template.
    pub(crate) fn lease(
        self: &Arc<Self>,
        id: &TemplateId,
        digest: &Digest,
    ) -> Result<(TemplateInfo, Lease), Failure> {
        let mut state = self.state();
        let Some(info) = state.listed.get(id) else {
            let (kind, message) = match &state.building {
                Some(step) => (ErrorKind::Unavailable, format!("template {id} is being built: {step}")),
                None => (ErrorKind::NotFound, format!("template {id} does not exist on this node")),
            };
            return Err(failure(kind, message));
        };
        if info.digest != *digest {
            let message = format!("template {id} has another build now, {}", info.digest);
            return Err(failure(ErrorKind::NotFound, message));
        }
        let info = info.clone();
        *state.users.entry(digest.clone()).or_default() += 1;
        drop(state);
        Ok((info, self.held(digest)))
    }

    /// Holds the tree of a sandbox that runs already, listed or not.
    pub(crate) fn adopt(self: &Arc<Self>, digest: &Digest) -> Lease {
        *self.state().users.entry(digest.clone()).or_default() += 1;
        self.held(digest)
    }

    fn held(self: &Arc<Self>, digest: &Digest) -> Lease {
        let root = self.trees.directory().join(digest.hex());
        Lease { digest: digest.clone(), root, store: Arc::clone(self) }
    }

    fn release(&self, digest: &Digest) {
        let mut state = self.state();
        if let Some(users) = state.users.get_mut(digest) {
            *users -= 1;
            if *users == 0 {
                state.users.remove(digest);
            }
        }
        self.collect(&mut state, digest);
    }

    /// Removes a tree that nobody needs. It gets another name first, under the lock, so that the same tree can come
    /// back while the bytes of this one are still going.
    fn collect(&self, state: &mut State, digest: &Digest) {
        let listed = state.listed.values().any(|info| info.digest == *digest);
        if state.closed || listed || state.users.contains_key(digest) {
            return;
        }
        state.serial += 1;
        let name = format!(".removed-{}", state.serial);
        let directory = self.trees.directory();
        match std::fs::rename(directory.join(digest.hex()), directory.join(&name)) {
            Ok(()) => self.remove_tree(name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::error!(%digest, %error, "cannot remove an unused template"),
        }
    }

    fn remove_tree(&self, name: String) {
        let trees = Arc::clone(&self.trees);
        let remove = move || match trees.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::error!(name, %error, "cannot remove a tree; the next start tries again");
            }
            Ok(()) | Err(_) => {}
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }

    /// Removes every tree that no template lists and no lease holds. Once, after running sandboxes were adopted.
    pub(crate) fn collect_garbage(&self) -> io::Result<()> {
        let state = self.state();
        let mut needed: Vec<&str> = state.listed.values().map(|info| info.digest.hex()).collect();
        needed.extend(state.users.keys().map(Digest::hex));
        for entry in std::fs::read_dir(self.trees.directory())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !needed.contains(&name.as_str()) {
                tracing::info!(name, "removing a tree that no template needs");
                self.remove_tree(name);
            }
        }
        Ok(())
    }

    /// Forgets a template. Its tree goes with the last sandbox that uses it.
    pub(crate) async fn remove(&self, id: &TemplateId) -> io::Result<()> {
        let _publishing = self.publishing.lock().await;
        match std::fs::remove_file(self.description(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut state = self.state();
        if let Some(info) = state.listed.remove(id) {
            self.collect(&mut state, &info.digest);
        }
        Ok(())
    }

    /// Keeps every tree from now on, because the node stops and its sandboxes go on.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.stopping.cancel();
    }

    /// Says what the node is building, to those who ask for it too early.
    pub(crate) fn set_building(&self, step: Option<String>) {
        self.state().building = step;
    }

    /// Makes a template of what comes out of a pipe.
    pub(crate) async fn import(
        self: &Arc<Self>,
        request: ImportTemplate,
        pipe: OwnedFd,
        progress: Progress,
    ) -> Result<TemplateInfo, ImportError> {
        let reader = PipeReader::new(pipe, self.stopping.clone())
            .map_err(|source| ImportError::Host { doing: "open the pipe of an import", source })?;
        self.import_from(request, reader, progress).await
    }

    /// Makes a template of a byte stream. Nothing is left when it fails.
    pub(crate) async fn import_from(
        self: &Arc<Self>,
        request: ImportTemplate,
        source: impl Read + Send + 'static,
        progress: Progress,
    ) -> Result<TemplateInfo, ImportError> {
        if !ids::is_template_name(&request.name) {
            return Err(ImportError::Name);
        }
        let permit = timeout(IMPORT_WAIT, self.imports.acquire()).await;
        let _permit = permit.ok().and_then(Result::ok).ok_or(ImportError::Busy)?;
        let names = self.reserve_names();
        let (trees, format) = (Arc::clone(&self.trees), request.format);
        let (tree, scratch) = (names.tree.clone(), names.scratch.clone());
        let work = move || build(&*trees, source, format, (&tree, &scratch), &progress);
        let built = match tokio::task::spawn_blocking(work).await {
            Ok(built) => built,
            Err(error) => Err(ImportError::Host { doing: "unpack", source: io::Error::other(error) }),
        };
        let result = match built {
            Ok(built) => self.publish(&request, &names.tree, built).await,
            Err(error) => Err(error),
        };
        // After a success the tree has another name already, or was not needed.
        for name in [names.tree, names.scratch] {
            if self.trees.directory().join(&name).exists() {
                self.remove_tree(name);
            }
        }
        result
    }

    fn reserve_names(&self) -> Names {
        let mut state = self.state();
        state.serial += 1;
        Names { tree: format!(".incoming-{}", state.serial), scratch: format!(".scratch-{}", state.serial) }
    }

    async fn publish(
        self: &Arc<Self>,
        request: &ImportTemplate,
        tree: &str,
        built: Built,
    ) -> Result<TemplateInfo, ImportError> {
        let _publishing = self.publishing.lock().await;
        let Built { described, defaults } = built;
        let info = TemplateInfo {
            id: request.template.clone(),
            name: request.name.clone(),
            digest: described.digest,
            created_at: self.clock.now(),
            size_bytes: described.size_bytes,
            default_user: defaults.user,
            default_workdir: defaults.workdir,
            env: defaults.env,
        };
        // Held until it is listed, so that nothing collects it in between.
        let held = self.put_tree(tree, &info.digest)?;
        self.write_description(&info)?;
        let mut state = self.state();
        let before = state.listed.insert(info.id.clone(), info.clone());
        if let Some(before) = before {
            self.collect(&mut state, &before.digest);
        }
        drop(state);
        drop(held);
        tracing::info!(template = %info.id, name = info.name, digest = %info.digest, "template imported");
        Ok(info)
    }

    fn put_tree(self: &Arc<Self>, tree: &str, digest: &Digest) -> Result<Lease, ImportError> {
        let directory = self.trees.directory();
        let mut state = self.state();
        let place = directory.join(digest.hex());
        if !place.exists() {
            let put = || {
                self.trees.seal(tree)?;
                std::fs::rename(directory.join(tree), &place)
            };
            put()
                .map_err(|source| ImportError::Host { doing: "put the new template in its place", source })?;
        }
        *state.users.entry(digest.clone()).or_default() += 1;
        drop(state);
        Ok(self.held(digest))
    }

    fn description(&self, id: &TemplateId) -> PathBuf {
        self.dir.join(format!("{id}.json"))
    }

    fn write_description(&self, info: &TemplateInfo) -> Result<(), ImportError> {
        let bytes = serde_json::to_vec(info).expect("descriptions have string keys");
        if bytes.len() > INFO_BYTES_MAX {
            let problem = format!("its environment exceeds {INFO_BYTES_MAX} bytes");
            return Err(ImportError::Layout { problem });
        }
        let temporary = self.dir.join(format!("{}.tmp", info.id));
        let write = || {
            let mut file = std::fs::File::create(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&temporary, self.description(&info.id))
        };
        write().map_err(|source| ImportError::Host { doing: "write the description of the template", source })
    }
}

fn build(
    trees: &dyn Trees,
    source: impl Read,
    format: ImportFormat,
    (tree, scratch): (&str, &str),
    progress: &Progress,
) -> Result<Built, ImportError> {
    let make = |name| {
        trees
            .create(name)
            .map_err(|source| ImportError::Host { doing: "make a tree on the data volume", source })
    };
    make(tree)?;
    if format == ImportFormat::OciLayout {
        make(scratch)?;
    }
    let directory = trees.directory();
    import::build(source, format, &directory.join(tree), &directory.join(scratch), progress)
}

fn read_list(dir: &Path, trees: &Path) -> io::Result<BTreeMap<TemplateId, TemplateInfo>> {
    let mut listed = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let parsed = std::fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
        let info: TemplateInfo = match parsed {
            Ok(info) => info,
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "unreadable description of a template");
                continue;
            }
        };
        if trees.join(info.digest.hex()).is_dir() {
            listed.insert(info.id.clone(), info);
        } else {
            tracing::error!(template = %info.id, digest = %info.digest, "the tree of a template is gone");
        }
    }
    Ok(listed)
}
