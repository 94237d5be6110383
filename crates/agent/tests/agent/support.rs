//! Owns an agent for a test, and a caller that speaks its protocol.

use cofferdam_proto::frame::{self, Channel};
use cofferdam_proto::guest::{
    self, Call, Entry, Exec, Exit, Failure, Path as GuestPath, Reply, Request, Selector, Stdio, User,
};
use cofferdam_sys::{spawn, wait};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running agent; dropping it ends it and everything it started.
pub(crate) struct Sandbox {
    unshare: u32,
    socket: PathBuf,
    directory: TempDir,
}

impl Sandbox {
    /// Starts one, or tells that this machine does not allow pid namespaces.
    pub(crate) fn start() -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let socket = directory.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let agent = CString::new(env!("CARGO_BIN_EXE_cofferdam-agent")).unwrap();
        let arguments: [&CStr; 9] = [
            c"unshare",
            c"--pid",
            c"--fork",
            c"--kill-child",
            c"--mount-proc",
            c"--",
            &agent,
            c"--work-cgroups",
            c"0",
        ];
        let Ok(binary) = File::open("/usr/bin/unshare") else { return skip("there is no unshare(1)") };
        let unshare = spawn::start_binary(binary.as_fd(), &arguments, &[listener.as_fd()]).unwrap();
        drop(listener);
        let sandbox = Self { unshare, socket, directory };
        let mut caller = sandbox.connect();
        // A connection that nobody will ever accept is reset when the only listener is gone.
        caller.call(Request::Ping);
        match caller.try_next() {
            Some(Message::Reply(Reply::Ok)) => Some(sandbox),
            _ => skip("pid namespaces are not allowed"),
        }
    }

    /// A path of the host's file system that goes when the test ends.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The same as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn connect(&self) -> Caller {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Caller { stream }
    }

    /// Sends a request on a connection of its own.
    pub(crate) fn open(&self, request: Request) -> Caller {
        let mut caller = self.connect();
        caller.call(request);
        caller
    }

    /// The one answer to a request.
    pub(crate) fn ask(&self, request: Request) -> Reply {
        self.open(request).reply()
    }

    #[track_caller]
    pub(crate) fn ok(&self, request: Request) {
        assert_eq!(self.ask(request), Reply::Ok);
    }

    #[track_caller]
    pub(crate) fn entry(&self, request: Request) -> Entry {
        match self.ask(request) {
            Reply::Entry { entry } => entry,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn failure(&self, request: Request) -> Failure {
        match self.ask(request) {
            Reply::Error(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    /// Runs a process to its end.
    #[track_caller]
    pub(crate) fn run(&self, exec: Exec) -> Outcome {
        self.open(Request::Exec(exec)).outcome()
    }

    /// Runs a shell command as root.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> Outcome {
        self.run(sh(script))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        wait::kill(self.unshare, 9).unwrap();
        wait::reap(self.unshare).unwrap();
    }
}

#[expect(clippy::print_stderr, reason = "whoever runs the tests should know")]
fn skip<T>(why: &str) -> Option<T> {
    eprintln!("skipped: {why}");
    None
}

/// Something from the agent.
#[derive(Debug, PartialEq)]
pub(crate) enum Message {
    Reply(Reply),
    Data(Channel, Vec<u8>),
}

pub(crate) struct Caller {
    stream: UnixStream,
}

impl Caller {
    pub(crate) fn call(&mut self, request: Request) {
        self.control(&Call { version: guest::VERSION, request });
    }

    pub(crate) fn control<T: serde_like::Message>(&mut self, message: &T) {
        self.send(Channel::Control, &message.encode());
    }

    pub(crate) fn send(&mut self, channel: Channel, payload: &[u8]) {
        self.raw(&frame::encode(channel, payload).unwrap());
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// `None` when the agent closed the connection.
    pub(crate) fn try_next(&mut self) -> Option<Message> {
        let mut header = [0; frame::HEADER_BYTES];
        self.stream.read_exact(&mut header).ok()?;
        let (channel, length) = frame::parse_header(header).unwrap();
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).ok()?;
        Some(match channel {
            Channel::Control => Message::Reply(guest::decode("reply", &payload).unwrap()),
            channel => Message::Data(channel, payload),
        })
    }

    #[track_caller]
    pub(crate) fn next(&mut self) -> Message {
        self.try_next().expect("the agent should not have closed the connection")
    }

    #[track_caller]
    pub(crate) fn reply(&mut self) -> Reply {
        match self.next() {
            Message::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn started(&mut self) -> u32 {
        match self.reply() {
            Reply::Started { pid } => pid,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until `needle` was among the output.
    #[track_caller]
    pub(crate) fn until(&mut self, needle: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.next() {
                Message::Data(_, bytes) => seen.extend(bytes),
                other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&seen)),
            }
            let text = String::from_utf8_lossy(&seen).into_owned();
            if text.contains(needle) {
                return text;
            }
        }
    }

    /// Everything from the start to the end.
    #[track_caller]
    pub(crate) fn outcome(&mut self) -> Outcome {
        self.started();
        self.rest()
    }

    /// Everything after the start.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Outcome {
        let (mut stdout, mut stderr, mut pty) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            match self.next() {
                Message::Data(Channel::Stdout, bytes) => stdout.extend(bytes),
                Message::Data(Channel::Stderr, bytes) => stderr.extend(bytes),
                Message::Data(Channel::Pty, bytes) => pty.extend(bytes),
                Message::Reply(Reply::Exited(exit)) => {
                    assert_eq!(self.try_next(), None, "nothing follows the end");
                    return Outcome { stdout, stderr, pty, exit };
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// What came of a process.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) pty: Vec<u8>,
    pub(crate) exit: Exit,
}

impl Outcome {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) -> String {
        assert_eq!(
            (self.exit.code, self.exit.signal),
            (Some(0), None),
            "{}",
            String::from_utf8_lossy(&self.stderr)
        );
        self.text()
    }
}

mod serde_like {
    use cofferdam_proto::guest::{self, Call, Input};

    /// What a caller says.
    pub(crate) trait Message {
        fn encode(&self) -> Vec<u8>;
    }

    impl Message for Call {
        fn encode(&self) -> Vec<u8> {
            guest::encode(self)
        }
    }

    impl Message for Input {
        fn encode(&self) -> Vec<u8> {
            guest::encode(self)
        }
    }
}

/// A process that runs as root with three pipes.
pub(crate) fn exec(cmd: &str, args: &[&str]) -> Exec {
    Exec {
        cmd: cmd.to_owned(),
        args: args.iter().map(|&text| text.to_owned()).collect(),
        env: BTreeMap::new(),
        cwd: Some("/".to_owned()),
        user: User::Named("root".to_owned()),
        stdio: Stdio::Pipes,
        tag: None,
        timeout_ms: None,
        kill_on_disconnect: false,
    }
}

pub(crate) fn sh(script: &str) -> Exec {
    exec("/bin/sh", &["-c", script])
}

pub(crate) fn pid(pid: u32) -> Selector {
    Selector::Pid(pid)
}

pub(crate) fn at(path: impl Into<PathBuf>) -> GuestPath {
    GuestPath { path: path.into().to_str().unwrap().to_owned(), user: User::Named("root".to_owned()) }
}

/// Waits until `holds`, for what the kernel does in its own time.
#[track_caller]
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came to hold");
        std::thread::sleep(Duration::from_millis(5));
    }
}
