//! Owns the start of the api role: opens what it needs, in order, and serves until it is told to stop.

use crate::api::native;
use crate::app::{App, Parts, Settings};
use crate::cluster::NodeLink;
use crate::gateway;
use crate::store::{InitialKey, Store, StoreError};
use cofferdam_audit::{Entry, Event, Journal};
use cofferdam_core::{Resources, Timestamp, limits};
use cofferdam_policy::Quota;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio_util::sync::CancellationToken;

/// Everything the api role needs to know. Passed by value, never changed.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The database.
    pub store: PathBuf,
    /// Directory of the record; it exists.
    pub audit_dir: PathBuf,
    /// Where the node listens.
    pub node_socket: PathBuf,
    /// Name under which sandboxes are reached, `NAME[:PORT]`.
    pub domain: Option<String>,
    /// Limits of a sandbox whose request names none.
    pub resources: Resources,
    /// What the first tenant may use at one time.
    pub quota: Quota,
    /// The first key. It counts only while the store has no key at all, so giving it again does no harm.
    pub initial_key: Option<InitialKey>,
}

/// The api role cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The database does not open.
    #[error("open the store `{}`", .path.display())]
    Store {
        /// Its file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: StoreError,
    },
    /// The record does not open.
    #[error("open the record")]
    Journal(#[source] cofferdam_audit::OpenError),
    /// The making of the first key could not be recorded.
    #[error("record the first key")]
    Record(#[source] cofferdam_audit::AppendError),
    /// What has not ended could not be loaded.
    #[error("load the sandboxes: {0}")]
    Load(String),
    /// The listening socket is not usable.
    #[error("use the listening socket")]
    Listener(#[source] io::Error),
}

/// How long after the signal open requests may still take.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves clients on `listener` until `stop` fires. `ready` is called once, when requests are answered and the node is
/// connected.
pub async fn run(
    config: ServerConfig,
    listener: TcpListener,
    ready: impl FnOnce() + Send + 'static,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    listener.set_nonblocking(true).map_err(ServeError::Listener)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(ServeError::Listener)?;
    let journal = Journal::open(&config.audit_dir, cofferdam_audit::Settings::default(), now())
        .map_err(ServeError::Journal)?;
    let store = open_store(&config, &journal).await?;
    let (link, events) = NodeLink::start(config.node_socket, stop.clone());
    let settings = Settings {
        domain: config.domain,
        resources: config.resources,
        timeout_seconds_max: limits::TIMEOUT_SECONDS_MAX,
        clock: Arc::new(now),
    };
    let parts = Parts { store, journal, link: link.clone(), events };
    let app =
        App::start(settings, parts, stop.clone()).await.map_err(|error| ServeError::Load(error.log()))?;
    let native = native::router(app.clone());
    let serving = tokio::spawn(gateway::serve(app, native, listener, stop.clone()));
    tokio::select! {
        () = link.connected() => ready(),
        () = stop.cancelled() => {}
    }
    stop.cancelled().await;
    if tokio::time::timeout(DRAIN, serving).await.is_err() {
        tracing::warn!("requests that had not ended are cut off");
    }
    Ok(())
}

/// Opens the store; a new one gets the first tenant and key.
async fn open_store(config: &ServerConfig, journal: &Journal) -> Result<Store, ServeError> {
    let in_store = |source| ServeError::Store { path: config.store.clone(), source };
    let store = Store::open(&config.store).map_err(in_store)?;
    if let Some(key) = &config.initial_key {
        let entropy = [rand::random(), rand::random()];
        let made = store.bootstrap(key.clone(), config.quota, now(), entropy).await.map_err(in_store)?;
        if let Some(key) = made {
            let entry = Entry { by: "server".to_owned(), tenant: Some(key.tenant), ..Entry::default() };
            let event = Event::KeyCreated { intent: 0, key: key.id.to_string() };
            journal.append(now(), &entry, &event).map_err(ServeError::Record)?;
        }
    }
    Ok(store)
}

/// The clock of the server.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
