//! The one binary: `serve` and its roles, and every verb of the command line.
//!
//! Owns the configuration, the supervisor and the wiring of the roles. Contains no logic of theirs.

mod config;
mod data_dir;
mod handover;
mod keeper;
mod roles;
mod serve;
mod supervisor;

use clap::{Args as _, Command, FromArgMatches as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = command().get_matches();
    match matches.subcommand() {
        Some(("serve", rest)) => match serve::Serve::from_arg_matches(rest) {
            Ok(args) => finish(serve::run(&args)),
            Err(error) => error.exit(),
        },
        Some(("config", rest)) => match rest.subcommand() {
            Some(("show", rest)) => match config::Flags::from_arg_matches(rest) {
                Ok(flags) => finish(serve::show_config(&flags)),
                Err(error) => error.exit(),
            },
            _ => ExitCode::from(2),
        },
        Some(("launcher", _)) => roles::launcher(),
        _ => cofferdam_cli::main(&matches, command),
    }
}

/// The whole command line.
fn command() -> Command {
    let serve = Command::new("serve")
        .about("Run the server: makes the data directory on first start and says `ready` on stdout");
    let show = Command::new("show").about("Print the configuration in force");
    let config = Command::new("config")
        .about("Look at the configuration")
        .subcommand_required(true)
        .subcommand(config::Flags::augment_args(show));
    cofferdam_cli::command()
        .subcommand(serve::Serve::augment_args(serve))
        .subcommand(config)
        .subcommand(Command::new("launcher").hide(true))
}

/// One clear line on stderr and status 1 when it cannot.
fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::debug!(?error, "ended with an error");
            roles::complain(&format!("cofferdam: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
