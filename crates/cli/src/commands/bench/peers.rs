//! Owns the other programs that can be measured beside: what each is called with, and the shells that call them.
//!
//! A peer is started by a shell that already runs (a fork and an exec, nothing more), in a private mount namespace where
//! the peer needs one. What is left of a peer is removed when it is dropped.

use super::contest::{Attempt, Contestant};
use crate::console::Console;
use crate::error::Error;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

#[derive(Debug, Args)]
pub(super) struct PeerArgs {
    /// Measure crun, runc, bwrap, podman and docker too, those that are installed
    #[arg(long, requires = "peer_rootfs")]
    peers: bool,
    /// Directory with the root file system that peers use
    #[arg(long, value_name = "DIR")]
    peer_rootfs: Option<PathBuf>,
    /// Image that docker uses; it is left out without one
    #[arg(long, value_name = "IMAGE")]
    peer_image: Option<String>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A new container and one command.
    Run,
    /// One more command in a container that runs.
    Exec,
}

/// How one program is called. `{id}` is a fresh name, `{bundle}` an OCI bundle, `{rootfs}` and `{image}` what was given.
struct Recipe {
    program: &'static str,
    /// Before anything else; when not empty, in a mount namespace of the shell's own.
    prepare: &'static str,
    run: &'static str,
    start: &'static str,
    exec: &'static str,
    stop: &'static str,
}

/// crun (which podman uses, too) refuses a hybrid hierarchy, so it gets one without the unified part.
const NO_HYBRID: &str = "if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi";

/// Every peer. podman would raise its limits beyond what a host may grant.
const RECIPES: &[Recipe] = &[
    Recipe {
        program: "crun",
        prepare: NO_HYBRID,
        run: "crun run --bundle {bundle} {id}",
        start: "crun run --detach --bundle {bundle} {id}",
        exec: "crun exec {id} /bin/true",
        stop: "crun delete --force {id}",
    },
    Recipe {
        program: "runc",
        prepare: "",
        run: "runc run --bundle {bundle} {id}",
        start: "runc run --detach --bundle {bundle} {id}",
        exec: "runc exec {id} /bin/true",
        stop: "runc delete --force {id}",
    },
    Recipe {
        program: "bwrap",
        prepare: "",
        run: "bwrap --unshare-all --die-with-parent --ro-bind {rootfs} / --proc /proc --dev /dev --tmpfs /tmp /bin/true",
        start: "",
        exec: "",
        stop: "",
    },
    Recipe {
        program: "podman",
        prepare: NO_HYBRID,
        run: "podman run --rm --network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
              --rootfs {rootfs}:O /bin/true",
        start: "podman run --detach --network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 \
                --name {id} --rootfs {rootfs}:O /bin/sleep infinity",
        exec: "podman exec {id} /bin/true",
        stop: "podman rm --force --time 0 {id}",
    },
    Recipe {
        program: "docker",
        prepare: "",
        run: "docker run --rm --network none {image} /bin/true",
        start: "docker run --detach --network none --name {id} {image} /bin/sleep infinity",
        exec: "docker exec {id} /bin/true",
        stop: "docker rm --force {id}",
    },
];

/// The peers that are installed and work here; the others are named on standard error.
pub(super) async fn contestants(
    args: &PeerArgs,
    work: Work,
    console: &Console,
) -> Result<Vec<Box<dyn Contestant>>, Error> {
    let Some(rootfs) = args.peer_rootfs.as_deref().filter(|_| args.peers) else { return Ok(Vec::new()) };
    let rootfs = rootfs.canonicalize().map_err(Error::local(format!("read `{}`", rootfs.display())))?;
    let given = Given { rootfs: &rootfs, image: args.peer_image.as_deref() };
    let mut found: Vec<Box<dyn Contestant>> = Vec::new();
    for recipe in RECIPES {
        match Peer::prepare(recipe, work, given).await {
            Ok(peer) => found.push(Box::new(peer)),
            Err(why) => console.note(&format!("without {}: {}", recipe.program, why.trim())),
        }
    }
    Ok(found)
}

#[derive(Clone, Copy)]
struct Given<'a> {
    rootfs: &'a Path,
    image: Option<&'a str>,
}

impl Given<'_> {
    fn fill(self, text: &str, bundle: &Path) -> String {
        text.replace("{bundle}", &quoted(&bundle.display().to_string()))
            .replace("{rootfs}", &quoted(&self.rootfs.display().to_string()))
            .replace("{image}", &quoted(self.image.unwrap_or_default()))
    }
}

struct Peer {
    name: String,
    command: String,
    stop: Option<String>,
    prepare: &'static str,
    idle: Mutex<Vec<Shell>>,
    scratch: TempDir,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

fn fresh_id() -> String {
    format!("cofferdam-bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Peer {
    async fn prepare(recipe: &'static Recipe, work: Work, given: Given<'_>) -> Result<Self, String> {
        let (verb, template) = match work {
            Work::Run => ("run", recipe.run),
            Work::Exec => ("exec", recipe.exec),
        };
        if template.is_empty() {
            return Err("it has no such command".to_owned());
        }
        if recipe.run.contains("{image}") && given.image.is_none() {
            return Err("no --peer-image was given".to_owned());
        }
        let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
        write_bundle(scratch.path(), given.rootfs, work).map_err(|error| error.to_string())?;
        let mut peer = Self {
            name: format!("{} {verb}", recipe.program),
            command: given.fill(template, scratch.path()),
            stop: None,
            prepare: recipe.prepare,
            idle: Mutex::default(),
            scratch,
        };
        let installed = peer.perform(&format!("command -v {}", recipe.program)).await;
        installed.map_err(|_| "it is not installed".to_owned())?;
        if work == Work::Exec {
            peer.start(recipe, given).await?;
        }
        peer.once().await?;
        Ok(peer)
    }

    /// Starts the container that commands then run in.
    async fn start(&mut self, recipe: &Recipe, given: Given<'_>) -> Result<(), String> {
        let id = fresh_id();
        let named = |text: &str| given.fill(text, self.scratch.path()).replace("{id}", &id);
        let (start, stop) = (named(recipe.start), named(recipe.stop));
        self.stop = Some(stop);
        self.command = self.command.replace("{id}", &id);
        self.perform(&start).await
    }

    /// Runs one command in a shell that nobody else uses meanwhile.
    async fn perform(&self, command: &str) -> Result<(), String> {
        let idle = self.idle.lock().await.pop();
        let mut shell = match idle {
            Some(shell) => shell,
            None => Shell::start(self.prepare).await.map_err(|error| format!("start a shell: {error}"))?,
        };
        let log = self.scratch.path().join(format!("log-{}", shell.number));
        let code =
            shell.perform(command, &log).await.map_err(|error| format!("talk to the shell: {error}"))?;
        self.idle.lock().await.push(shell);
        if code == "0" {
            return Ok(());
        }
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        Err(format!("exit code {code}: {}", said.lines().last().unwrap_or_default()))
    }
}

impl Contestant for Peer {
    fn name(&self) -> &str {
        &self.name
    }

    fn once(&self) -> Attempt<'_> {
        Box::pin(async {
            let command = self.command.replace("{id}", &fresh_id());
            let start = Instant::now();
            self.perform(&command).await?;
            Ok(start.elapsed())
        })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let Some(stop) = &self.stop else { return };
        let mut shell = std::process::Command::new("unshare");
        shell.args(["--mount", "sh", "-c", &format!("{}\n{stop}", self.prepare)]);
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Nothing else can be done about a peer that does not go; its name tells where it came from.
        shell.status().map(drop).unwrap_or_default();
    }
}

/// A shell that takes one command a line.
struct Shell {
    number: u64,
    input: ChildStdin,
    output: tokio::io::Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Shell {
    async fn start(prepare: &str) -> std::io::Result<Self> {
        let mut command = if prepare.is_empty() {
            Command::new("sh")
        } else {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh"]);
            command
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let missing = || std::io::Error::other("the shell has no pipes");
        let mut input = child.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?).lines();
        input.write_all(format!("{prepare}\n").as_bytes()).await?;
        Ok(Self { number: NEXT.fetch_add(1, Ordering::Relaxed), input, output, _child: child })
    }

    async fn perform(&mut self, command: &str, log: &Path) -> std::io::Result<String> {
        let log = quoted(&log.display().to_string());
        let line = format!("{command} </dev/null >/dev/null 2>{log}; echo $?\n");
        self.input.write_all(line.as_bytes()).await?;
        let answer = self.output.next_line().await?;
        answer.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A bundle like the one that `runc spec` makes, read-only and without a terminal.
fn write_bundle(directory: &Path, rootfs: &Path, work: Work) -> std::io::Result<()> {
    let args = match work {
        Work::Run => json!(["/bin/true"]),
        Work::Exec => json!(["/bin/sleep", "infinity"]),
    };
    let kinds = ["pid", "network", "ipc", "uts", "mount"];
    let namespaces: Vec<_> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": args,
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": { "path": rootfs, "readonly": true },
        "hostname": "bench",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            {
                "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                "options": ["nosuid", "mode=755", "size=65536k"],
            },
        ],
        "linux": { "namespaces": namespaces },
    });
    std::fs::write(directory.join("config.json"), config.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAKE: &Recipe = &Recipe {
        program: "true",
        prepare: "",
        run: "test -n {id} && test -f {bundle}/config.json",
        start: "true",
        exec: "false {id}",
        stop: "true",
    };

    #[tokio::test]
    async fn a_peer_that_works_is_measured_and_one_that_fails_says_why() {
        let rootfs = tempfile::tempdir().unwrap();
        let given = Given { rootfs: rootfs.path(), image: None };
        let peer = Peer::prepare(FAKE, Work::Run, given).await.unwrap();
        assert!(peer.once().await.is_ok());
        assert_eq!(peer.name(), "true run");
        let why = Peer::prepare(FAKE, Work::Exec, given).await.err().unwrap();
        assert!(why.starts_with("exit code 1"), "{why}");
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted("a'b c"), r"'a'\''b c'");
    }
}
