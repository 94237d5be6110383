//! Owns `cargo xtask quickstart`: from a fresh clone to a running server and a printed `hello`. Doing it again changes
//! nothing that is there and starts the server only when it does not run.

use crate::run::{Job, Log};
use crate::server::Config;
use crate::{debian, print, server};
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const READY: Duration = Duration::from_secs(30 * 60);

/// Options of `cargo xtask quickstart`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where the server keeps everything.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cofferdam")]
    data_dir: PathBuf,
    /// Address and port of the server.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3000")]
    listen: String,
    /// Installs and builds, but starts nothing.
    #[arg(long)]
    no_start: bool,
}

/// The files beside the data directory.
#[derive(Debug)]
struct Place {
    config: Config,
    log: PathBuf,
    pid: PathBuf,
}

/// `cargo xtask quickstart`.
pub(crate) fn main(root: &Path, options: &Options) -> Result<ExitCode> {
    debian::install(&[debian::SERVER])?;
    let binary = build(root)?;
    if options.no_start {
        print::line(&format!("built {}", binary.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let place = Place::of(binary, options)?;
    if running_pid(&place).is_some() {
        print::line(&format!("a server runs already in {}", place.config.data_dir.display()));
    } else {
        start(&place)?;
    }
    let key = read_key(&place.config.key_file)?;
    first_sandbox(&place.config, &key)?;
    explain(&place, &key);
    Ok(ExitCode::SUCCESS)
}

impl Place {
    fn of(binary: PathBuf, options: &Options) -> Result<Self> {
        let data_dir = std::path::absolute(&options.data_dir)
            .with_context(|| format!("resolve {}", options.data_dir.display()))?;
        let port = options.listen.rsplit(':').next().unwrap_or_default().to_owned();
        let beside = |ending: &str| data_dir.with_extension(ending);
        let config = Config {
            binary,
            listen: options.listen.clone(),
            key_file: beside("key"),
            domain: format!("e2b.localhost:{port}"),
            data_dir: data_dir.clone(),
        };
        Ok(Self { config, log: beside("log"), pid: beside("pid") })
    }
}

fn build(root: &Path) -> Result<PathBuf> {
    print::line("building (the first time takes some minutes)");
    let target = super::test::target_directory(root)?;
    let mut log = Log::create(&target.join("xtask-logs/quickstart-build.log"))?;
    let job =
        Job::new("cargo", 3600).args(["build", "--release", "--locked", "--package", "cofferdam"]).dir(root);
    if !log.run(job)? {
        bail!("the build failed:\n{}", log.tail(40)?);
    }
    Ok(target.join("release/cofferdam"))
}

/// The pid of our server, if it runs.
fn running_pid(place: &Place) -> Option<u32> {
    let pid = std::fs::read_to_string(&place.pid).ok()?.trim().parse::<u32>().ok()?;
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let is_ours = String::from_utf8_lossy(&command).contains(&place.config.data_dir.display().to_string());
    is_ours.then_some(pid)
}

/// Starts the server in a session of its own and shows what it says until it is ready.
fn start(place: &Place) -> Result<()> {
    print::line(&format!("starting the server, log in {}", place.log.display()));
    let output = File::create(&place.log).with_context(|| format!("open {}", place.log.display()))?;
    let mut command = debian::as_root("setsid");
    command.arg(&place.config.binary).args(place.config.args()).stdin(Stdio::null());
    command.stdout(output.try_clone().context("share the log")?).stderr(output);
    let mut child = command.spawn().context("start the server")?;
    std::fs::write(&place.pid, child.id().to_string())
        .with_context(|| format!("write {}", place.pid.display()))?;
    let deadline = Instant::now() + READY;
    let mut follower = Follower::of(&place.log)?;
    while Instant::now() < deadline {
        for line in follower.lines()? {
            if line == "ready" {
                return Ok(());
            }
            print::line(&format!("   {line}"));
        }
        if let Some(status) = child.try_wait().context("wait for the server")? {
            bail!("the server ended before it was ready: {status}; see {}", place.log.display());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    server::signal("TERM", child.id())?;
    bail!("the server was not ready within {} s; see {}", READY.as_secs(), place.log.display())
}

/// Reads the lines that a growing file gets.
#[derive(Debug)]
struct Follower {
    file: File,
    at: u64,
    rest: String,
}

impl Follower {
    fn of(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
        Ok(Self { file, at: 0, rest: String::new() })
    }

    fn lines(&mut self) -> Result<Vec<String>> {
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(self.at)).context("follow the log")?;
        self.at += self.file.read_to_end(&mut bytes).context("follow the log")? as u64;
        self.rest.push_str(&String::from_utf8_lossy(&bytes).replace('\r', "\n"));
        let mut lines: Vec<String> = self.rest.split('\n').map(|line| line.trim_end().to_owned()).collect();
        self.rest = lines.pop().unwrap_or_default();
        lines.retain(|line| !line.is_empty());
        Ok(lines)
    }
}

fn read_key(file: &Path) -> Result<String> {
    if let Ok(key) = std::fs::read_to_string(file) {
        return Ok(key.trim().to_owned());
    }
    let output = debian::as_root("cat").arg(file).output().context("start cat")?;
    if !output.status.success() {
        bail!("no key at {}: it is written on the first start only", file.display());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn first_sandbox(config: &Config, key: &str) -> Result<()> {
    let mut command = Command::new(&config.binary);
    command.args(["run", "--", "echo", "hello"]).stdin(Stdio::null());
    command.env("COFFERDAM_URL", config.url()).env("COFFERDAM_API_KEY", key);
    let output = command.output().context("start the first sandbox")?;
    if !output.status.success() {
        bail!("the first sandbox failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    print::line(String::from_utf8_lossy(&output.stdout).trim_end());
    Ok(())
}

fn explain(place: &Place, key: &str) {
    let url = place.config.url();
    print::line("");
    print::line(&format!("export E2B_API_URL={url}"));
    print::line(&format!("export E2B_SANDBOX_URL={url}"));
    print::line(&format!("export E2B_API_KEY={key}"));
    print::line("");
    let pid = running_pid(place).map_or_else(|| place.pid.display().to_string(), |pid| pid.to_string());
    let sudo = if debian::is_root() { "" } else { "sudo " };
    print::line(&format!("log: {}", place.log.display()));
    print::line(&format!("stop: {sudo}kill {pid}"));
    print::line(&format!("remove everything: {sudo}rm -r {}", place.config.data_dir.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_log_is_read_line_by_line() {
        let path = std::env::temp_dir().join(format!("xtask-follow-{}", std::process::id()));
        std::fs::write(&path, "one\ntw").unwrap();
        let mut follower = Follower::of(&path).unwrap();
        assert_eq!(follower.lines().unwrap(), ["one"]);
        std::fs::write(&path, "one\ntwo\rready\n").unwrap();
        assert_eq!(follower.lines().unwrap(), ["two", "ready"]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn everything_of_a_server_lies_beside_its_data() {
        let options =
            Options { data_dir: "/var/lib/x".into(), listen: "127.0.0.1:4000".to_owned(), no_start: false };
        let place = Place::of("cofferdam".into(), &options).unwrap();
        assert_eq!(place.config.key_file, Path::new("/var/lib/x.key"));
        assert_eq!(place.config.domain, "e2b.localhost:4000");
        assert!(running_pid(&place).is_none());
    }
}
