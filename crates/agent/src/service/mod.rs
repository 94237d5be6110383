//! Owns accepting connections and handing each to the file of its operation. One thread a connection, one operation a
//! connection.

mod attach;
mod configure;
mod dial;
mod exec;
mod processes;
mod watch;

use crate::agent::{Agent, thread};
use crate::connection::Connection;
use crate::failure::{failure, invalid};
use crate::files;
use crate::sync::lock;
use cofferdam_core::ErrorKind;
use cofferdam_core::limits::GUEST_CONNECTIONS_MAX;
use cofferdam_proto::guest::{self, Call, Failure, Reply, Request};
use std::io;
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Calls up to this size are decoded without waiting for others.
const SMALL_CALL_BYTES: usize = 32 * 1024;
/// After an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Threads that wait for a connection while nothing happens: whoever gets one serves it itself, which saves a change of
/// threads, and there must be another to take the next.
const WAITING_MIN: usize = 2;

/// So many connections at once leave memory behind that is worth giving back.
const BURST: usize = 8;

/// The place where connections arrive.
#[derive(Debug)]
pub(crate) struct Entrance {
    listener: UnixListener,
    waiting: Mutex<usize>,
}

impl Entrance {
    /// Serves for ever, together with the threads that this one makes.
    pub(crate) fn open(agent: &Arc<Agent>, listener: UnixListener) -> io::Result<()> {
        listener.set_nonblocking(false)?;
        let entrance = Arc::new(Self { listener, waiting: Mutex::new(0) });
        for _ in 1..WAITING_MIN {
            entrance.widen(agent)?;
        }
        loop {
            *lock(&entrance.waiting) += 1;
            entrance.admit(agent);
        }
    }

    /// One more thread, which stays as long as it is needed.
    fn widen(self: &Arc<Self>, agent: &Arc<Agent>) -> io::Result<()> {
        let (entrance, agent) = (Arc::clone(self), Arc::clone(agent));
        thread(move || {
            while entrance.is_short() {
                entrance.admit(&agent);
            }
        })
    }

    /// True when the caller is to wait; it counts as waiting from now on.
    fn is_short(&self) -> bool {
        let mut waiting = lock(&self.waiting);
        let is_short = *waiting < WAITING_MIN;
        *waiting += usize::from(is_short);
        is_short
    }

    fn admit(self: &Arc<Self>, agent: &Arc<Agent>) {
        let accepted = self.listener.accept();
        let others = {
            let mut waiting = lock(&self.waiting);
            *waiting -= 1;
            *waiting
        };
        let Ok((stream, _)) = accepted else {
            // Out of descriptors or memory: the connection waits in the queue until others have ended.
            return std::thread::sleep(ACCEPT_PAUSE);
        };
        let Ok(connection) = Connection::new(stream) else { return };
        let connection = Arc::new(connection);
        let place = Place::take(agent);
        // Somebody must be left to take the next one before this one is served.
        if place.number > GUEST_CONNECTIONS_MAX || (others == 0 && self.widen(agent).is_err()) {
            return refuse(&connection);
        }
        serve(agent, &connection);
    }
}

/// The place of a connection among all.
struct Place<'a> {
    agent: &'a Agent,
    number: usize,
}

impl<'a> Place<'a> {
    fn take(agent: &'a Agent) -> Self {
        let number = agent.connections.fetch_add(1, Ordering::Relaxed) + 1;
        if number >= BURST {
            agent.burst.store(true, Ordering::Relaxed);
        }
        Self { agent, number }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let left = self.agent.connections.fetch_sub(1, Ordering::Relaxed) - 1;
        if left == 0 && self.agent.burst.swap(false, Ordering::Relaxed) {
            cofferdam_sys::itself::trim_heap();
        }
    }
}

fn refuse(connection: &Connection) {
    let full = failure(ErrorKind::ResourceExhausted, "too many requests are served in this sandbox");
    connection.try_reply(&Reply::Error(full));
}

fn serve(agent: &Arc<Agent>, connection: &Arc<Connection>) {
    // A caller that is cut off before it said anything, or that said what cannot be, learns nothing.
    let Ok(Some(length)) = connection.read_call_length() else { return };
    let large = (length > SMALL_CALL_BYTES).then(|| lock(&agent.large_call));
    let Ok(payload) = connection.read_payload(length) else { return };
    if connection.wait_for_ever().is_err() {
        return;
    }
    let done = parse(&payload).and_then(|request| {
        drop(payload);
        dispatch(agent, connection, request, large)
    });
    if let Err(failure) = done {
        connection.try_reply(&Reply::Error(failure));
    }
}

fn parse(payload: &[u8]) -> Result<Request, Failure> {
    let call: Call = guest::decode("call", payload).map_err(|error| invalid(error.to_string()))?;
    if call.version == guest::VERSION {
        Ok(call.request)
    } else {
        Err(failure(ErrorKind::Unsupported, format!("version {} of the agent protocol", call.version)))
    }
}

/// Does what is asked; the failure that it gives is the last thing the caller gets.
fn dispatch(
    agent: &Arc<Agent>,
    connection: &Arc<Connection>,
    request: Request,
    large: Option<MutexGuard<'_, ()>>,
) -> Result<(), Failure> {
    let reply = match request {
        Request::Ping => Reply::Ok,
        Request::Exec(exec) => return exec::run(agent, connection, exec, large),
        Request::Attach { process } => return attach::run(agent, connection, &process),
        Request::Watch { path, recursive } => return watch::run(agent, connection, &path, recursive),
        Request::Dial { port } => return dial::run(connection, port),
        Request::ListDir { path, depth } => return files::list::run(agent, connection, &path, depth),
        Request::Read { path, offset, length } => {
            return files::read::run(agent, connection, &path, (offset, length));
        }
        Request::Write { path, metadata, mode } => {
            return files::write::run(agent, connection, &path, (metadata, mode));
        }
        Request::Compose { sources, destination } => {
            return files::compose::run(agent, connection, &sources, &destination);
        }
        Request::Move { source, destination } => {
            return files::rename::run(agent, connection, &source, &destination);
        }
        Request::Configure(configure) => configure::run(agent, configure)?,
        Request::List => Reply::Processes { processes: agent.table.list() },
        Request::Signal { process, signal, scope } => {
            agent.table.running(&process)?.signal(signal, scope)?;
            Reply::Ok
        }
        Request::Input { process, pty } => processes::input(agent, connection, &process, pty)?,
        Request::CloseStdin { process } => {
            agent.table.running(&process)?.close_input()?;
            Reply::Ok
        }
        Request::Resize { process, size } => {
            agent.table.running(&process)?.resize(size)?;
            Reply::Ok
        }
        Request::Stat { path } => files::stat(agent, &path)?,
        Request::MakeDir { path } => files::make_dir(agent, &path)?,
        Request::Remove { path } => files::remove::run(agent, &path)?,
        Request::Stats => configure::stats()?,
    };
    connection.try_reply(&reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_proto::frame::{self, Channel};
    use proptest::prelude::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// What `serve` makes of what a caller sends, up to the request itself.
    fn receive(bytes: &[u8]) -> Option<Result<Request, Failure>> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let connection = Connection::new(ours).unwrap();
        theirs.write_all(bytes).unwrap();
        drop(theirs);
        let length = connection.read_call_length().ok()??;
        let request = parse(&connection.read_payload(length).ok()?);
        while let Ok(Some(_)) = connection.read_frame() {}
        Some(request)
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            receive(&bytes);
        }

        #[test]
        fn arbitrary_calls_never_panic(text in r#"\{"version":1,"op":"(exec|read|write|list|signal|x)"(,"[a-z]{1,8}":[\[\]{}0-9a-z",:]{0,20}){0,4}\}"#,
                                       rest in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut bytes = frame::encode(Channel::Control, text.as_bytes()).unwrap();
            bytes.extend(rest);
            prop_assert!(receive(&bytes).is_some());
        }

        #[test]
        fn a_damaged_call_never_panics(at in 0usize..200, byte in any::<u8>(), cut in 0usize..200) {
            let call = br#"{"version":1,"op":"write","path":{"path":"~/x","user":{"named":"root"}},"metadata":{"a":"b"},"mode":420}"#;
            let mut bytes = frame::encode(Channel::Control, call).unwrap();
            if let Some(target) = bytes.get_mut(at) {
                *target = byte;
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            receive(&bytes);
        }
    }

    #[test]
    fn another_version_is_refused() {
        let refused = parse(br#"{"version":2,"op":"ping"}"#).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Unsupported);
    }

    #[test]
    fn deep_nesting_ends_in_an_error_within_a_small_stack() {
        let bomb = format!(r#"{{"version":1,"op":"ping","x":{}"#, "[".repeat(900_000));
        let (sender, receiver) = std::sync::mpsc::channel();
        thread(move || sender.send(parse(bomb.as_bytes()).is_err()).unwrap()).unwrap();
        assert!(receiver.recv().unwrap());
    }
}
