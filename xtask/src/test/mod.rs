//! Owns `cargo xtask test`: everything that must pass, as stages, cheap first. Says how long each took, shows the end
//! of the log of what failed, and closes with one line that counts.

mod cargo;
mod counts;
mod e2e;
mod fuzz;
mod leftovers;
mod suites;

use crate::run::Log;
use crate::{print, run};
use anyhow::{Context as _, Result, bail};
use counts::Counts;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Runs only this stage (may be given several times); `e2e/NAME` is one suite of the stage `e2e`.
    #[arg(long, value_name = "STAGE")]
    only: Vec<String>,
    /// Lists the stages and ends.
    #[arg(long)]
    list: bool,
    /// Goes on after a stage that failed.
    #[arg(long)]
    keep_going: bool,
    /// Uses and keeps this data directory for the stage `e2e`, so that the template `base` is made only once.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Cycles of the chaos suite.
    #[arg(long, default_value_t = 60)]
    chaos_cycles: u32,
    /// Seconds that each fuzz target runs.
    #[arg(long, default_value_t = 4)]
    fuzz_seconds: u32,
}

/// What the stages share.
#[derive(Debug)]
struct Context<'a> {
    root: &'a Path,
    target: PathBuf,
    options: &'a Options,
}

impl Context<'_> {
    /// The program that the end-to-end suites use.
    fn binary(&self) -> PathBuf {
        self.target.join("release/cofferdam")
    }

    /// An empty log of that name.
    fn log(&self, name: &str) -> Result<Log> {
        Log::create(&self.target.join("xtask-logs").join(format!("{}.log", name.replace('/', "-"))))
    }
}

type Run = fn(&Context, &mut Log) -> Result<Counts>;

/// Every stage, in order.
const STAGES: &[(&str, Run)] = &[
    ("fmt", cargo::fmt),
    ("tidy", cargo::tidy),
    ("clippy", cargo::clippy),
    ("unit", cargo::unit),
    ("doc", cargo::doc),
    ("fuzz", fuzz::run),
    ("release", cargo::release),
    ("e2e", e2e::run),
];

/// `cargo xtask test`.
pub(crate) fn main(root: &Path, options: &Options) -> Result<ExitCode> {
    if options.list {
        list();
        return Ok(ExitCode::SUCCESS);
    }
    check_names(&options.only)?;
    let context = Context { root, target: target_directory(root)?, options };
    let start = Instant::now();
    let mut total = Counts::default();
    for (name, stage) in STAGES.iter().filter(|(name, _)| is_wanted(&options.only, name)) {
        let counts = run_stage(&context, name, *stage)?;
        let failed = counts.failed > 0;
        total.add(counts);
        if failed && !options.keep_going {
            break;
        }
    }
    print::line(&format!("took {} s", start.elapsed().as_secs()));
    print::line(&total.to_string());
    Ok(if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_stage(context: &Context, name: &str, stage: Run) -> Result<Counts> {
    let start = Instant::now();
    let mut log = context.log(name)?;
    print::line(&format!("── {name} ({})", log.path().display()));
    let counts = stage(context, &mut log).unwrap_or_else(|error| {
        print::error(&format!("{name}: {error:#}"));
        Counts::one_failed()
    });
    if counts.failed > 0 {
        print::line(&log.tail(80)?);
    }
    print::line(&format!("── {name}: {counts} in {} s", start.elapsed().as_secs()));
    Ok(counts)
}

fn list() {
    for (name, _) in STAGES {
        print::line(name);
    }
    for suite in suites::SUITES {
        print::line(&format!("e2e/{}", suite.name));
    }
}

fn check_names(only: &[String]) -> Result<()> {
    for name in only {
        let suite = name.strip_prefix("e2e/");
        let known = STAGES.iter().any(|(stage, _)| stage == name)
            || suite.is_some_and(|suite| suites::SUITES.iter().any(|known| known.name == suite));
        if !known {
            bail!("no stage `{name}`: see `cargo xtask test --list`");
        }
    }
    Ok(())
}

/// A suite asks for its stage; a suite asked for by its name also wants the release program fresh.
fn is_wanted(only: &[String], stage: &str) -> bool {
    only.is_empty()
        || only.iter().any(|name| name == stage)
        || only.iter().any(|name| name.starts_with("e2e/") && (stage == "e2e" || stage == "release"))
}

#[derive(Debug, Deserialize)]
struct Metadata {
    target_directory: PathBuf,
}

pub(crate) fn target_directory(root: &Path) -> Result<PathBuf> {
    let json = run::capture(root, "cargo", &["metadata", "--format-version=1", "--no-deps"])?;
    let metadata: Metadata = serde_json::from_str(&json).context("read cargo metadata")?;
    Ok(metadata.target_directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str]) -> Vec<String> {
        only.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn everything_runs_unless_something_is_asked_for() {
        assert!(STAGES.iter().all(|(stage, _)| is_wanted(&[], stage)));
        assert!(is_wanted(&names(&["tidy"]), "tidy"));
        assert!(!is_wanted(&names(&["tidy"]), "fmt"));
    }

    #[test]
    fn a_suite_brings_its_stage_and_a_fresh_program() {
        let only = names(&["e2e/escape"]);
        assert!(is_wanted(&only, "e2e") && is_wanted(&only, "release") && !is_wanted(&only, "unit"));
        assert!(check_names(&only).is_ok());
    }

    #[test]
    fn an_unknown_stage_is_refused() {
        assert!(check_names(&names(&["e3e"])).is_err());
        assert!(check_names(&names(&["e2e/none"])).is_err());
    }
}
