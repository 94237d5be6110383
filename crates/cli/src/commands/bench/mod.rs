//! `bench`: how fast it is, measured from outside through the API, beside other programs in the same run when asked.
//!
//! Owns the list of measurements. All samples are kept; percentiles are exact (nearest rank).

mod connect;
mod contest;
mod create;
mod density;
mod exec;
mod files;
mod loopback;
mod peers;
mod stats;
mod surface;

use super::{Session, Verb};
use crate::error::Error;
use clap::{FromArgMatches as _, Subcommand};

pub(super) const VERB: Verb = Verb {
    name: "bench",
    about: "Measure how fast it is",
    augment: |command| BenchCommand::augment_subcommands(command).subcommand_required(true),
    perform: |session, matches| {
        Box::pin(async move {
            let parsed = BenchCommand::from_arg_matches(matches);
            perform(session, parsed.map_err(|error| Error::Usage(error.to_string()))?).await
        })
    },
    own_failure: None,
};

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// From the request to create until the first command has finished
    Create(create::CreateArgs),
    /// Commands in a sandbox that runs
    Exec(exec::ExecArgs),
    /// Memory and speed with many idle sandboxes; run it on the host of the server
    Density(density::DensityArgs),
    /// Upload and download of a large file
    Files(files::FilesArgs),
}

async fn perform(session: Session<'_>, command: BenchCommand) -> Result<u8, Error> {
    let client = session.client()?;
    match command {
        BenchCommand::Create(args) => create::create(client, session.console, args).await,
        BenchCommand::Exec(args) => exec::exec(client, session.console, args).await,
        BenchCommand::Density(args) => density::density(client, session.console, args).await,
        BenchCommand::Files(args) => files::files(client, session.console, args).await,
    }
}
