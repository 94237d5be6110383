//! The driver with a template that holds nothing but the probe, and a small client of the agent.

use cofferdam_core::Resources;
use cofferdam_node::isolation::container::{AGENT, ContainerConfig, ContainerDriver, LauncherCommand};
use cofferdam_node::isolation::{Driver, DriverError, Fill, Live, Slot};
use cofferdam_node::storage::VolumeConfig;
use cofferdam_proto::frame::{self, Channel};
use cofferdam_proto::guest::{self, Exec, Reply, Request, Stdio, User};
use cofferdam_sys::helper;
use std::ffi::OsStr;
use std::fs;
use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;

pub(crate) struct Host {
    pub(crate) driver: ContainerDriver,
    runtime: Runtime,
    directory: tempfile::TempDir,
}

/// What came of a command inside.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) output: String,
    pub(crate) signal: Option<u8>,
}

impl Host {
    pub(crate) fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("cofferdam-isolation-").tempdir().unwrap();
        // Before any thread: all of them are to be in it.
        cofferdam_sys::clone::unshare_mounts().unwrap();
        let probe = build_probe(directory.path());
        std::env::set_current_dir(directory.path()).unwrap();
        make_template(Path::new("template"), &probe);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let config = ContainerConfig {
            instance: format!("test{}", std::process::id()),
            volume: VolumeConfig {
                image: "node/data.btrfs".into(),
                mount_point: "node/data".into(),
                size_bytes: 4 << 30,
            },
            launcher: LauncherCommand {
                program: std::env::current_exe().unwrap(),
                arguments: vec!["launcher".into()],
            },
            agent: AGENT,
        };
        let driver = runtime.block_on(ContainerDriver::start(config)).unwrap();
        Self { driver, runtime, directory }
    }

    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn template(&self) -> PathBuf {
        self.directory.path().join("template")
    }

    pub(crate) fn fill(&self, resources: Resources) -> Fill {
        Fill { template_root: "template".into(), resources }
    }

    pub(crate) fn make(&self, slot: u32) -> Live {
        self.make_with(slot, small())
    }

    pub(crate) fn make_with(&self, slot: u32, resources: Resources) -> Live {
        self.try_make(slot, self.fill(resources)).unwrap()
    }

    pub(crate) fn try_make(&self, slot: u32, fill: Fill) -> Result<Live, DriverError> {
        self.wait(async {
            let parked = self.driver.park(Slot::new(slot).unwrap()).await?;
            self.driver.fill(parked, fill).await
        })
    }

    pub(crate) fn destroy(&self, slot: u32) {
        self.wait(self.driver.destroy(Slot::new(slot).unwrap())).unwrap();
    }

    pub(crate) fn destroy_all(&self) {
        for slot in self.driver.slots().unwrap() {
            self.wait(self.driver.destroy(slot)).unwrap();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.destroy_all();
        self.driver.remove_shared();
        std::env::set_current_dir("/").unwrap();
        cofferdam_sys::mount::detach(&self.directory.path().join("node/data")).unwrap();
    }
}

/// Limits that are reached quickly.
pub(crate) fn small() -> Resources {
    Resources { cpu_millis: 2000, memory_mib: 64, disk_mib: 32, processes: 64, open_files: 256 }
}

fn build_probe(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sys/probe/probe.rs");
    let program = directory.join("probe");
    let cargo = std::env::var("CARGO").expect("run by cargo");
    let compiler = Path::new(&cargo).with_file_name("rustc");
    let arguments = ["--edition=2024", "-O", "-Cstrip=symbols", "-Ctarget-feature=+crt-static", "--target"];
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    arguments.extend([OsStr::new(&target), OsStr::new("-o"), program.as_os_str(), source.as_os_str()]);
    let output = helper::run(compiler.to_str().unwrap(), &arguments).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn make_template(root: &Path, probe: &Path) {
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::create_dir_all(root.join("home/user")).unwrap();
    fs::copy(probe, root.join("probe")).unwrap();
    let accounts = "root:x:0:0::/:/probe\nuser:x:1000:1000::/home/user:/probe\n";
    fs::write(root.join("etc/passwd"), accounts).unwrap();
    std::os::unix::fs::chown(root.join("home/user"), Some(1000), Some(1000)).unwrap();
}

fn connect(live: &Live, request: Request) -> UnixStream {
    let mut socket = UnixStream::connect(live.agent_socket()).unwrap();
    let call = guest::Call { version: guest::VERSION, request };
    socket.write_all(&frame::encode(Channel::Control, &guest::encode(&call)).unwrap()).unwrap();
    socket
}

fn next(socket: &mut UnixStream) -> (Channel, Vec<u8>) {
    let mut header = [0; frame::HEADER_BYTES];
    socket.read_exact(&mut header).unwrap();
    let (channel, length) = frame::parse_header(header).unwrap();
    let mut payload = vec![0; length];
    socket.read_exact(&mut payload).unwrap();
    (channel, payload)
}

/// The agent answers.
pub(crate) fn ping(live: &Live) {
    let (_, payload) = next(&mut connect(live, Request::Ping));
    assert_eq!(guest::decode::<Reply>("reply", &payload).unwrap(), Reply::Ok);
}

fn exec(user: &str, arguments: &[&str], stdio: Stdio) -> Request {
    Request::Exec(Exec {
        cmd: "/probe".into(),
        args: arguments.iter().map(|text| (*text).to_owned()).collect(),
        env: Default::default(),
        cwd: Some("/".into()),
        user: User::Named(user.into()),
        stdio,
        tag: None,
        timeout_ms: Some(60_000),
        kill_on_disconnect: false,
    })
}

/// Runs the probe inside to its end.
pub(crate) fn probe(live: &Live, user: &str, arguments: &[&str]) -> Ran {
    let mut socket = connect(live, exec(user, arguments, Stdio::NoInput));
    let mut output = Vec::new();
    loop {
        let (channel, payload) = next(&mut socket);
        if channel != Channel::Control {
            output.extend(payload);
            continue;
        }
        match guest::decode::<Reply>("reply", &payload).unwrap() {
            Reply::Started { .. } => {}
            Reply::Exited(exit) => {
                let output = String::from_utf8_lossy(&output).into_owned();
                return Ran { output, signal: exit.signal };
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Starts a probe that waits, and returns when it does. It goes on when the connection is closed.
pub(crate) fn start_waiting(live: &Live) -> UnixStream {
    start(live, "wait", "waiting\n")
}

/// Starts a probe and returns when it has said all of `text`.
pub(crate) fn start(live: &Live, command: &str, text: &str) -> UnixStream {
    let mut socket = connect(live, exec("user", &[command], Stdio::Pipes));
    let mut output = Vec::new();
    while output != text.as_bytes() {
        let (channel, payload) = next(&mut socket);
        if channel == Channel::Stdout {
            output.extend(payload);
            assert!(text.as_bytes().starts_with(&output), "{}", String::from_utf8_lossy(&output));
        } else {
            assert!(matches!(guest::decode::<Reply>("reply", &payload).unwrap(), Reply::Started { .. }));
        }
    }
    socket
}
