//! Owns what passes between the supervisor and a role: the orders, one JSON line, and the role's word back.
//!
//! A role's stdout is one end of a Unix stream pair. The supervisor writes the orders; the role says when it is ready. The
//! end of the stream tells either side that the other is gone, whatever killed it. The api role's stdin is the listening
//! TCP socket, which the supervisor opened, so that a restart of the role refuses no connection.

use crate::config::Config;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// What a role is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// The configuration in force.
    pub config: Config,
    /// Name that sets apart what several data directories make in the kernel.
    pub instance: String,
    /// The first key, hashed; only until the first start is complete.
    pub initial_key: Option<InitialKey>,
}

/// What a role tells the supervisor, one JSON line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub(crate) enum Word {
    /// It does its work.
    Ready,
    /// It cannot, and ends.
    Failed {
        /// Why, in one line for the operator.
        message: String,
    },
}

/// A key whose text stays with the supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct InitialKey {
    /// SHA-256 of the key's text, hex.
    pub sha256: String,
    /// What may be shown.
    pub masked: String,
}

/// Longest orders line that a role reads.
const ORDERS_BYTES_MAX: u64 = 1024 * 1024;

/// Gives a role its orders.
pub(crate) fn send(stream: &mut UnixStream, orders: &Orders) -> Result<()> {
    let mut line = serde_json::to_vec(orders).context("encode the orders")?;
    line.push(b'\n');
    stream.write_all(&line).context("hand the orders over")
}

/// Takes the orders from the supervisor.
pub(crate) fn receive() -> Result<(Orders, UnixStream)> {
    let stream = UnixStream::from(owned(std::io::stdout())?);
    let mut line = String::new();
    let limited =
        std::io::Read::take(stream.try_clone().context("share the supervisor's stream")?, ORDERS_BYTES_MAX);
    BufReader::with_capacity(1, limited).read_line(&mut line).context("read the orders")?;
    if line.is_empty() {
        bail!("the supervisor ended before it gave orders");
    }
    Ok((serde_json::from_str(&line).context("decode the orders")?, stream))
}

/// Tells the supervisor something; it may be gone, and then the role is about to end anyway.
pub(crate) fn tell(mut stream: &UnixStream, word: &Word) {
    let sent = serde_json::to_vec(word).map_err(std::io::Error::from).and_then(|mut line| {
        line.push(b'\n');
        stream.write_all(&line)
    });
    if let Err(error) = sent {
        tracing::debug!(%error, "the supervisor did not hear");
    }
}

/// The listening socket that the supervisor opened.
pub(crate) fn inherited_listener() -> Result<std::net::TcpListener> {
    Ok(std::net::TcpListener::from(owned(std::io::stdin())?))
}

fn owned(stream: impl AsFd) -> Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned().context("take over an inherited descriptor")
}
