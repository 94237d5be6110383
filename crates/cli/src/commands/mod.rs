//! Owns the list of verbs. Adding one is a file here and a line in [`COMMANDS`].

mod bench;
mod completions;
mod cp;
mod doctor;
mod exec;
mod key;
mod kill;
mod logs;
mod ps;
mod run;
mod template;

use crate::client::Client;
use crate::connection::ConnectionArgs;
use crate::console::Console;
use crate::error::Error;
use clap::{ArgMatches, Args, Command};
use std::pin::Pin;

/// Every verb that talks to a server, in the order of the help text.
pub const COMMANDS: &[Verb] = &[
    run::VERB,
    exec::VERB,
    ps::VERB,
    cp::VERB,
    logs::VERB,
    kill::VERB,
    template::VERB,
    key::VERB,
    doctor::VERB,
    bench::VERB,
    completions::VERB,
];

type Performing<'a> = Pin<Box<dyn Future<Output = Result<u8, Error>> + 'a>>;

/// One verb.
pub struct Verb {
    /// What the user types.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    augment: fn(Command) -> Command,
    perform: for<'a> fn(Session<'a>, &'a ArgMatches) -> Performing<'a>,
    /// Exit code of failures of our own, for verbs whose exit code otherwise is a command's.
    own_failure: Option<u8>,
}

impl Verb {
    /// Its part of the command line.
    pub fn command(&self) -> Command {
        // After the arguments: those that are shared between verbs would put their own description there.
        (self.augment)(Command::new(self.name)).about(self.about)
    }

    pub(crate) fn perform<'a>(&self, session: Session<'a>, matches: &'a ArgMatches) -> Performing<'a> {
        (self.perform)(session, matches)
    }

    pub(crate) fn failure_code(&self, error: &Error) -> u8 {
        match self.own_failure {
            Some(code) if !matches!(error, Error::Usage(_)) => code,
            _ => error.exit_code(),
        }
    }
}

/// What a verb works with.
pub(crate) struct Session<'a> {
    pub(crate) connection: ConnectionArgs,
    pub(crate) console: &'a mut Console,
    pub(crate) root: fn() -> Command,
}

impl Session<'_> {
    pub(crate) fn client(&self) -> Result<Client, Error> {
        Client::new(&self.connection.url(), self.connection.key()?)
    }
}

fn parse<T: Args>(matches: &ArgMatches) -> Result<T, Error> {
    T::from_arg_matches(matches).map_err(|error| Error::Usage(error.to_string()))
}
