//! Owns the chores of the repository: `tidy` (rules that no compiler checks), `test` (everything that must pass) and
//! `quickstart` (from a fresh clone to a running server). Never part of what is shipped.

mod debian;
mod print;
mod quickstart;
mod run;
mod server;
mod test;
mod tidy;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Chores of the repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks the rules of the house that no compiler checks.
    Tidy,
    /// Runs everything that must pass, cheap first.
    Test(test::Options),
    /// Installs what is missing, builds, starts a server and runs a first sandbox.
    Quickstart(quickstart::Options),
}

fn main() -> ExitCode {
    match execute(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            print::error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Result<ExitCode> {
    let root = root();
    match command {
        Command::Tidy => tidy::main(&root),
        Command::Test(options) => test::main(&root, &options),
        Command::Quickstart(options) => quickstart::main(&root, &options),
    }
}

/// The root of the repository: the parent of this crate.
fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}
