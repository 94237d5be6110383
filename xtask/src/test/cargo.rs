//! Owns the stages that are cargo commands.

use super::Context;
use super::counts::{self, Counts};
use crate::debian;
use crate::run::{self, Job, Log};
use anyhow::Result;

/// Longest time of one command of cargo, from an empty target directory.
pub(super) const CARGO_SECONDS: u32 = 1800;

fn cargo(context: &Context, args: &[&str]) -> Job {
    Job::new("cargo", CARGO_SECONDS).args(args).dir(context.root).env("CARGO_TERM_COLOR", "never")
}

/// Nothing to reformat.
pub(super) fn fmt(context: &Context, log: &mut Log) -> Result<Counts> {
    Ok(Counts::of(log.run(cargo(context, &["fmt", "--all", "--", "--check"]))?))
}

/// The rules of the house.
pub(super) fn tidy(context: &Context, log: &mut Log) -> Result<Counts> {
    Ok(Counts::of(log.run(Job::new(std::env::current_exe()?, 120).args(["tidy"]).dir(context.root))?))
}

/// No warning in any target.
pub(super) fn clippy(context: &Context, log: &mut Log) -> Result<Counts> {
    debian::install(&[debian::SERVER])?;
    let args = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    Ok(Counts::of(log.run(cargo(context, &args))?))
}

/// The tests of every crate.
pub(super) fn unit(context: &Context, log: &mut Log) -> Result<Counts> {
    debian::install(&[debian::SERVER])?;
    let nextest = run::succeeds("cargo", &["nextest", "--version"]);
    let args: &[&str] = if nextest {
        &["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]
    } else {
        &["test", "--workspace", "--locked", "--no-fail-fast", "--lib", "--bins", "--tests"]
    };
    let ended_well = log.run(cargo(context, args))?;
    Ok(counts::of_cargo(&log.text()?).settle(ended_well))
}

/// The examples in the documentation.
pub(super) fn doc(context: &Context, log: &mut Log) -> Result<Counts> {
    let ended_well = log.run(cargo(context, &["test", "--workspace", "--locked", "--doc"]))?;
    let counts = counts::of_cargo(&log.text()?);
    Ok(if ended_well { counts } else { counts.settle(false) })
}

/// The program as it is shipped.
pub(super) fn release(context: &Context, log: &mut Log) -> Result<Counts> {
    debian::install(&[debian::SERVER])?;
    Ok(Counts::of(log.run(cargo(context, &["build", "--release", "--locked", "--package", "cofferdam"]))?))
}
