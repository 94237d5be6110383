//! Owns every verb of `cofferdam` that talks to a server: parsing, the client of the native `/v1` API, what people and
//! programs see, and the exit codes of `docs/cli.md`.
//!
//! Never links the server and keeps no state of its own: whatever a verb knows, the API told it. The binary adds
//! `serve` to [`command`], and hands everything else to [`main`].

mod args;
mod attach;
mod client;
mod commands;
mod connection;
mod console;
mod error;
mod output;
mod progress;
mod terminal;
mod transfer;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use commands::{COMMANDS, Verb};
pub use connection::ConnectionArgs;
pub use console::Console;
pub use error::Error;

use clap::{ArgMatches, Args as _, Command, FromArgMatches as _};
use commands::Session;
use std::process::ExitCode;

/// The command line with every verb of this crate.
pub fn command() -> Command {
    let root = ConnectionArgs::augment_args(Command::new("cofferdam"))
        .about("A self-hosted sandbox runtime for agents")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true);
    COMMANDS.iter().fold(root, |root, verb| root.subcommand(verb.command()))
}

/// Performs the verb that was parsed, on a runtime of its own. `root` makes the whole command line of the program, for
/// shell completions.
pub fn main(matches: &ArgMatches, root: fn() -> Command) -> ExitCode {
    let mut console = Console::process();
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => ExitCode::from(runtime.block_on(run(matches, root, &mut console))),
        Err(source) => {
            let error = Error::Local { what: "start the event loop".into(), source };
            console.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Performs the verb that was parsed and gives its exit code; errors are shown on the console.
pub async fn run(matches: &ArgMatches, root: fn() -> Command, console: &mut Console) -> u8 {
    let (code, error) = match dispatch(matches, root, console).await {
        Ok(code) => return code,
        Err(failure) => failure,
    };
    console.error(&error);
    code
}

async fn dispatch(
    matches: &ArgMatches,
    root: fn() -> Command,
    console: &mut Console,
) -> Result<u8, (u8, Error)> {
    let found = matches.subcommand().and_then(|(name, rest)| {
        let verb = COMMANDS.iter().find(|verb| verb.name == name)?;
        Some((verb, rest))
    });
    let Some((verb, rest)) = found else {
        return Err((2, Error::Usage("no such command here; see `cofferdam --help`".into())));
    };
    let connection =
        ConnectionArgs::from_arg_matches(matches).map_err(|e| (2, Error::Usage(e.to_string())))?;
    let session = Session { connection, console, root };
    let result = verb.perform(session, rest).await;
    result.map_err(|error| (verb.failure_code(&error), error))
}
