//! Owns the stage that needs root: a real server in a data directory of its own, the suites against it, and the proof
//! that nothing of it is left.

use super::Context;
use super::counts::Counts;
use super::leftovers::Inventory;
use super::suites::{self, SUITES, Suite};
use crate::run::{Job, Log};
use crate::server::{Config, Server};
use crate::tidy::skips;
use crate::{debian, print, run};
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Starts a server, runs the suites, stops it, looks for leftovers.
pub(super) fn run(context: &Context, log: &mut Log) -> Result<Counts> {
    if !debian::is_root() {
        bail!("the end-to-end suites need root");
    }
    debian::install(&[debian::SERVER, debian::TESTS])?;
    let data = DataDir::make(context)?;
    let before = Inventory::take(&data.path)?;
    let server = start(context, &data, log)?;
    let mut counts = Counts::default();
    for suite in SUITES.iter().filter(|suite| is_wanted(&context.options.only, suite)) {
        counts.add(run_suite(context, suite, &server)?);
    }
    counts.add(stop(server, log)?);
    let left = Inventory::take(&data.path)?.beyond(&before);
    for thing in &left {
        print::error(&format!("left behind: {thing}"));
    }
    counts.add(Counts::of(left.is_empty()));
    data.remove()?;
    Ok(counts)
}

fn start(context: &Context, data: &DataDir, log: &mut Log) -> Result<Server> {
    let begin = Instant::now();
    let config = Config::local(&context.binary(), &data.path)?;
    let server = Server::start(config, log, |_| {})?;
    print::line(&format!("   server ready in {} s", begin.elapsed().as_secs()));
    Ok(server)
}

/// Ends what failed tests left running, then the server: it would leave sandboxes to its next start.
fn stop(server: Server, log: &mut Log) -> Result<Counts> {
    let config = &server.config;
    let kill = Job::new(&config.binary, 120)
        .args(["kill", "--all", "--url", &config.url(), "--api-key-file"])
        .args([&config.key_file]);
    if !log.run(kill)? {
        log.note("not every sandbox could be ended")?;
    }
    let ended_well = server.stop()?;
    if !ended_well {
        log.note("the server did not end well")?;
    }
    Ok(Counts::of(ended_well))
}

fn run_suite(context: &Context, suite: &Suite, server: &Server) -> Result<Counts> {
    let begin = Instant::now();
    let mut log = context.log(&format!("e2e-{}", suite.name))?;
    let (mut counts, skipped) = suites::run(context, suite, server, &mut log).unwrap_or_else(|error| {
        print::error(&format!("{}: {error:#}", suite.name));
        (Counts::one_failed(), Vec::new())
    });
    for name in unlisted(&context.root.join(skips::PATH), &skipped)? {
        print::error(&format!("{name} skipped and is not in {}", skips::PATH));
        counts.failed += 1;
    }
    if counts.failed > 0 {
        print::line(&log.tail(80)?);
    }
    print::line(&format!("   e2e/{}: {counts} in {} s", suite.name, begin.elapsed().as_secs()));
    Ok(counts)
}

/// Those that skipped although no list says that they may.
fn unlisted(list: &Path, skipped: &[String]) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(list).with_context(|| format!("read {}", list.display()))?;
    let allowed: Vec<&str> = skips::entries(&text).collect();
    Ok(skipped.iter().filter(|name| !allowed.contains(&name.as_str())).cloned().collect())
}

fn is_wanted(only: &[String], suite: &Suite) -> bool {
    let named: Vec<&str> = only.iter().filter_map(|name| name.strip_prefix("e2e/")).collect();
    named.is_empty() || named.contains(&suite.name)
}

/// The data directory of the stage: on a file system that keeps what is written, and gone afterwards unless it was
/// given.
#[derive(Debug)]
struct DataDir {
    path: PathBuf,
    keep: bool,
}

impl DataDir {
    fn make(context: &Context) -> Result<Self> {
        let (path, keep) = match &context.options.data_dir {
            Some(dir) => (dir.clone(), true),
            None => (scratch(&context.target)?.join(format!("cofferdam-e2e-{}", std::process::id())), false),
        };
        std::fs::create_dir_all(&path).with_context(|| format!("make {}", path.display()))?;
        let path = path.canonicalize().with_context(|| format!("resolve {}", path.display()))?;
        Ok(Self { path, keep })
    }

    fn remove(self) -> Result<()> {
        if self.keep {
            return Ok(());
        }
        std::fs::remove_dir_all(&self.path).with_context(|| format!("remove {}", self.path.display()))?;
        let key = self.path.with_extension("key");
        std::fs::remove_file(&key).with_context(|| format!("remove {}", key.display()))
    }
}

/// A directory on a real disk: the target directory, or else the one for temporary files that survive a reboot.
fn scratch(target: &Path) -> Result<PathBuf> {
    for dir in [target, Path::new("/var/tmp")] {
        let kind = run::capture(Path::new("/"), "stat", &["-f", "-c", "%T", &dir.display().to_string()])?;
        if !matches!(kind.trim(), "tmpfs" | "ramfs" | "overlayfs") {
            return Ok(dir.to_owned());
        }
    }
    bail!("neither {} nor /var/tmp is on a disk", target.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_that_no_list_names_is_found() {
        let list = std::env::temp_dir().join(format!("xtask-skips-{}", std::process::id()));
        std::fs::write(&list, "a.py::x  # no kvm\n").unwrap();
        let skipped = ["a.py::x".to_owned(), "a.py::y".to_owned()];
        assert_eq!(unlisted(&list, &skipped).unwrap(), ["a.py::y"]);
        std::fs::remove_file(list).unwrap();
    }

    #[test]
    fn a_suite_runs_when_nothing_or_it_is_asked_for() {
        let suite = &SUITES[0];
        assert!(is_wanted(&[], suite));
        assert!(is_wanted(&["e2e".to_owned()], suite));
        assert!(is_wanted(&[format!("e2e/{}", suite.name)], suite));
        assert!(!is_wanted(&["e2e/escape".to_owned()], suite));
    }
}
