//! Owns the list of end-to-end suites, the environments they run in (made under the target directory, out of pinned
//! packages), and running one.

use super::Context;
use super::counts::{self, Counts};
use crate::run::{Job, Log};
use crate::server::Server;
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};

/// A suite.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suite {
    /// Its name in `--only e2e/NAME`.
    pub(crate) name: &'static str,
    runner: Runner,
    path: &'static str,
    seconds: u32,
}

/// What runs it, with which version of the SDK.
#[derive(Debug, Clone, Copy)]
enum Runner {
    /// Pytest in the environment of `requirements-<sdk>.txt`, in so many processes.
    Pytest { sdk: &'static str, workers: u8 },
    /// Node's own test runner; `sdk` is the name of the package in `js/package.json`.
    Node { sdk: &'static str },
}

const PINNED: &str = "e2b-2.45";
const NEWEST: &str = "e2b-newest";

const fn pytest(
    name: &'static str,
    sdk: &'static str,
    path: &'static str,
    workers: u8,
    seconds: u32,
) -> Suite {
    Suite { name, runner: Runner::Pytest { sdk, workers }, path, seconds }
}

const fn node(name: &'static str, sdk: &'static str, path: &'static str, seconds: u32) -> Suite {
    Suite { name, runner: Runner::Node { sdk }, path, seconds }
}

/// Every suite, in order: what breaks the most roles comes last.
pub(crate) const SUITES: &[Suite] = &[
    pytest("python-2.45", PINNED, "sdk", 3, 600),
    pytest("python-newest", NEWEST, "sdk", 3, 600),
    node("js-2.45", "e2b-pinned", "js", 600),
    node("js-newest", "e2b-newest", "js", 600),
    pytest("api", NEWEST, "api", 2, 600),
    pytest("cli", NEWEST, "cli", 2, 300),
    pytest("escape", NEWEST, "escape", 1, 900),
    pytest("chaos", NEWEST, "chaos", 1, 1200),
];

/// Runs a suite against a server. Also answers the names of the tests that skipped.
pub(crate) fn run(
    context: &Context,
    suite: &Suite,
    server: &Server,
    log: &mut Log,
) -> Result<(Counts, Vec<String>)> {
    match suite.runner {
        Runner::Pytest { sdk, workers } => run_pytest(context, suite, server, log, (sdk, workers)),
        Runner::Node { sdk } => run_node(context, suite, server, log, sdk),
    }
}

fn run_pytest(
    context: &Context,
    suite: &Suite,
    server: &Server,
    log: &mut Log,
    (sdk, workers): (&str, u8),
) -> Result<(Counts, Vec<String>)> {
    let python = virtual_environment(context, sdk, log)?;
    let report = context.target.join("e2e").join(format!("{}.report", suite.name));
    std::fs::write(&report, "").with_context(|| format!("write {}", report.display()))?;
    let mut args = vec!["-m".to_owned(), "pytest".to_owned(), "-p".to_owned(), "no:cacheprovider".to_owned()];
    if workers > 1 {
        args.extend(["-n".to_owned(), workers.to_string()]);
    }
    args.push(suite.path.to_owned());
    let job = Job::new(python, suite.seconds)
        .args(args)
        .dir(&context.root.join("e2e"))
        .env("COFFERDAM_E2E_REPORT", &report)
        .env("COFFERDAM_E2E_CHAOS_CYCLES", context.options.chaos_cycles.to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let ended_well = log.run(with_server(job, server)?)?;
    let text = std::fs::read_to_string(&report).with_context(|| format!("read {}", report.display()))?;
    let (counts, skips) = counts::of_report(&text);
    Ok((counts.settle(ended_well), skips))
}

fn run_node(
    context: &Context,
    suite: &Suite,
    server: &Server,
    log: &mut Log,
    sdk: &str,
) -> Result<(Counts, Vec<String>)> {
    let dir = node_environment(context, suite, log)?;
    let job = Job::new("node", suite.seconds)
        .args(["--test", "--test-reporter=tap"])
        .dir(&dir)
        .env("COFFERDAM_E2E_SDK", sdk);
    let mut own = context.log(&format!("e2e-{}-tap", suite.name))?;
    let ended_well = own.run(with_server(job, server)?)?;
    let text = own.text()?;
    log.note(&text)?;
    let (counts, skips) = counts::of_tap(&text);
    Ok((counts.settle(ended_well), skips))
}

/// Tells a suite where the server is: for the SDKs in their own words, for our tests in ours.
fn with_server(job: Job, server: &Server) -> Result<Job> {
    let config = &server.config;
    let key = std::fs::read_to_string(&config.key_file)
        .with_context(|| format!("read the key at {}", config.key_file.display()))?;
    Ok(job
        .env("E2B_API_URL", config.url())
        .env("E2B_SANDBOX_URL", config.url())
        .env("E2B_API_KEY", key.trim())
        .env("COFFERDAM_E2E_DOMAIN", &config.domain)
        .env("COFFERDAM_E2E_DATA_DIR", &config.data_dir)
        .env("COFFERDAM_E2E_BINARY", &config.binary)
        .env("COFFERDAM_E2E_PID", server.pid().to_string()))
}

/// Python with the packages of `requirements-<sdk>.txt`; made anew when that file changes.
fn virtual_environment(context: &Context, sdk: &str, log: &mut Log) -> Result<PathBuf> {
    let requirements = context.root.join(format!("e2e/requirements-{sdk}.txt"));
    let dir = context.target.join("e2e").join(format!("venv-{sdk}"));
    let python = dir.join("bin/python");
    if is_fresh(&dir, &[&requirements])? {
        return Ok(python);
    }
    log.must(Job::new("python3", 300).args(["-m", "venv", "--clear"]).args([&dir]))?;
    let install = ["-m", "pip", "install", "--quiet", "--no-input", "--requirement"];
    log.must(Job::new(&python, 600).args(install).args([&requirements]))?;
    mark_fresh(&dir, &[&requirements])?;
    Ok(python)
}

/// A copy of the suite beside its packages.
fn node_environment(context: &Context, suite: &Suite, log: &mut Log) -> Result<PathBuf> {
    let source = context.root.join("e2e").join(suite.path);
    let dir = context.target.join("e2e").join(suite.path);
    std::fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
    log.must(Job::new("cp", 60).args(["-R", "--"]).args([source.join("."), dir.clone()]))?;
    let manifests = [source.join("package.json"), source.join("package-lock.json")];
    let manifests = [manifests[0].as_path(), manifests[1].as_path()];
    if !is_fresh(&dir, &manifests)? {
        log.must(Job::new("npm", 600).args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).dir(&dir))?;
        mark_fresh(&dir, &manifests)?;
    }
    Ok(dir)
}

fn stamp(dir: &Path) -> PathBuf {
    dir.join("made-of")
}

fn contents(files: &[&Path]) -> Result<String> {
    let read =
        |file: &&Path| std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()));
    files.iter().map(read).collect()
}

fn is_fresh(dir: &Path, files: &[&Path]) -> Result<bool> {
    Ok(std::fs::read_to_string(stamp(dir)).is_ok_and(|old| contents(files).is_ok_and(|new| old == new)))
}

fn mark_fresh(dir: &Path, files: &[&Path]) -> Result<()> {
    std::fs::write(stamp(dir), contents(files)?).with_context(|| format!("write {}", stamp(dir).display()))
}
