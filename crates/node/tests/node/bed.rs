//! A data directory, nodes that run on it as processes of their own, and a look at what is left of sandboxes.

use crate::client::Client;
use cofferdam_core::{Resources, SandboxId, SandboxSpec, TemplateInfo, Timestamp};
use cofferdam_node::NodeConfig;
use cofferdam_node::isolation::container::LauncherCommand;
use cofferdam_proto::node::{Answer, ImportFormat, ImportTemplate, Request};
use cofferdam_sys::helper;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Shells and sandboxes that a node makes ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) parked: u32,
    pub(crate) warm: u32,
}

pub(crate) const SIZES: Sizes = Sizes { parked: 2, warm: 2 };
pub(crate) const NO_POOL: Sizes = Sizes { parked: 0, warm: 0 };

pub(crate) struct Bed {
    directory: tempfile::TempDir,
    node: Option<Child>,
    template: Option<TemplateInfo>,
    probe: PathBuf,
}

/// The process of a node: `node INSTANCE PARKED WARM`, in the data directory.
pub(crate) fn run_node(arguments: &[String]) {
    let [instance, parked, warm] = arguments else { panic!("node INSTANCE PARKED WARM") };
    let launcher =
        LauncherCommand { program: std::env::current_exe().unwrap(), arguments: vec!["launcher".into()] };
    let config = NodeConfig {
        sandboxes_max: 64,
        parked: parked.parse().unwrap(),
        warm: warm.parse().unwrap(),
        default_template: "test".into(),
        disk_image_bytes: 4 << 30,
        ..NodeConfig::new(instance.clone(), launcher)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let result = runtime.block_on(cofferdam_node::run(config, || (), async {
        let mut signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        signal.recv().await;
    }));
    if let Err(error) = result {
        println!("node: {error:?}");
        std::process::exit(3);
    }
}

fn instance() -> String {
    format!("nodetest{}", std::process::id())
}

pub(crate) fn id(number: usize) -> SandboxId {
    format!("i{number}").parse().unwrap()
}

pub(crate) fn in_seconds(seconds: u64) -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_micros(i64::try_from(now.as_micros()).unwrap()).plus_millis(seconds * 1000)
}

/// Waits for something that must come.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Bed {
    pub(crate) fn make() -> Self {
        let directory = tempfile::Builder::new().prefix("cofferdam-node-").tempdir().unwrap();
        // Before any thread: nodes and sandboxes are all to be in it.
        cofferdam_sys::clone::unshare_mounts().unwrap();
        let probe = build_probe(directory.path());
        let data = directory.path().join("data");
        fs::create_dir(&data).unwrap();
        std::env::set_current_dir(&data).unwrap();
        Self { directory, node: None, template: None, probe }
    }

    /// Starts a node and waits until it takes connections. The first one gets a template.
    pub(crate) fn start(&mut self, sizes: Sizes) {
        self.start_quietly(sizes);
        let child = self.node.as_mut().unwrap();
        eventually("the node answers", || {
            assert_eq!(child.try_wait().unwrap(), None, "the node ended at its start");
            Client::try_connect().is_some()
        });
        if self.template.is_none() {
            self.template = Some(self.import("test"));
        }
        let client = Client::connect();
        eventually("the pool is full", || {
            let Answer::Capacity(capacity) = client.ask(Request::Capacity) else { panic!() };
            (capacity.parked, capacity.warm) == (sizes.parked, sizes.warm)
        });
    }

    /// Starts a node and leaves the first connection to the caller.
    pub(crate) fn start_quietly(&mut self, sizes: Sizes) {
        let arguments = ["node".to_owned(), instance(), sizes.parked.to_string(), sizes.warm.to_string()];
        let program = std::env::current_exe().unwrap();
        self.node = Some(Command::new(program).args(arguments).spawn().unwrap());
    }

    pub(crate) fn import(&self, name: &str) -> TemplateInfo {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let archive = self.archive();
        let feeding = std::thread::spawn(move || writer.write_all(&archive).unwrap());
        let import = ImportTemplate {
            template: name.parse().unwrap(),
            name: name.to_owned(),
            format: ImportFormat::Rootfs,
        };
        let client = Client::connect();
        let answer = client.ask_with(Request::ImportTemplate(import), reader.into());
        feeding.join().unwrap();
        let Answer::Template(info) = answer else { panic!("{answer:?}") };
        *info
    }

    fn archive(&self) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let accounts = "root:x:0:0::/:/probe\nuser:x:1000:1000::/:/probe\n";
        let mut add = |path: &str, mode: u32, content: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(mode);
            header.set_uid(0);
            header.set_gid(0);
            builder.append_data(&mut header, path, content).unwrap();
        };
        add("etc/passwd", 0o644, accounts.as_bytes());
        add("probe", 0o755, &fs::read(&self.probe).unwrap());
        builder.into_inner().unwrap()
    }

    pub(crate) fn spec(&self, number: usize) -> SandboxSpec {
        let template = self.template.as_ref().unwrap();
        SandboxSpec {
            id: id(number),
            tenant: "n1".parse().unwrap(),
            template: template.id.clone(),
            digest: template.digest.clone(),
            resources: Resources { memory_mib: 64, disk_mib: 32, ..Resources::default() },
            env: BTreeMap::from([("GREETING".into(), "hello".into())]),
            files: BTreeMap::new(),
            hostname: format!("box{number}"),
            expires_at: in_seconds(600),
        }
    }

    /// Ends the node without a warning.
    pub(crate) fn kill_node(&mut self) {
        let mut child = self.node.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends the node in good order.
    pub(crate) fn stop_node(&mut self) {
        let mut child = self.node.take().unwrap();
        let pidfd = cofferdam_sys::pidfd::open(child.id()).unwrap();
        helper::run("/bin/kill", &[OsStr::new("-TERM"), OsStr::new(&child.id().to_string())]).unwrap();
        assert!(cofferdam_sys::pidfd::wait_end(&pidfd, Duration::from_secs(30)).unwrap());
        assert!(child.wait().unwrap().success());
    }

    /// A second node on the same directory: what became of it.
    pub(crate) fn second_node(&self) -> Option<i32> {
        let program = std::env::current_exe().unwrap();
        let arguments = ["node".to_owned(), instance(), "0".into(), "0".into()];
        Command::new(program).args(arguments).status().unwrap().code()
    }

    /// Kills every sandbox and looks whether anything is left beside the pool; then stops the node and looks again.
    pub(crate) fn settle(&mut self) {
        if self.node.is_none() {
            self.start(NO_POOL);
        }
        let client = Client::connect();
        for record in client.list() {
            client.kill(&record.id);
        }
        assert_eq!(client.list(), []);
        self.stop_node();
        assert_eq!(left(), Vec::<PathBuf>::new());
    }

    /// Whatever happened, the next test starts on clean ground.
    pub(crate) fn end(&mut self) {
        if self.node.is_some() {
            self.kill_node();
        }
        if !left().is_empty() {
            self.settle();
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        std::env::set_current_dir("/").unwrap();
        if let Err(error) = cofferdam_sys::mount::detach(&self.directory.path().join("data/node/data")) {
            println!("the data volume could not be detached: {error}");
        }
    }
}

/// Everything of sandboxes that is on the host: records, subvolumes, run directories, cgroups.
pub(crate) fn left() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in ["node/slots", "node/data/uppers", "run/s"] {
        found.extend(children(Path::new(directory)));
    }
    for hierarchy in children(Path::new("/sys/fs/cgroup")) {
        let ours = hierarchy.join(format!("cofferdam-{}", instance()));
        let slots = children(&ours).into_iter().filter(|path| path.is_dir());
        let is_slot = |path: &PathBuf| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .strip_prefix('s')
                .is_some_and(|n| n.parse::<u32>().is_ok())
        };
        found.extend(slots.filter(is_slot));
    }
    found
}

fn children(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).map_or(Vec::new(), |list| list.map(|entry| entry.unwrap().path()).collect())
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
