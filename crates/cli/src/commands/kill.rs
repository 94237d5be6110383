//! `kill`: ends sandboxes.

use super::{Session, Verb, parse};
use crate::args;
use crate::client::Client;
use crate::error::Error;
use clap::Args;
use cofferdam_core::SandboxId;
use futures::StreamExt as _;

pub(super) const VERB: Verb = Verb {
    name: "kill",
    about: "End sandboxes",
    augment: KillArgs::augment_args,
    perform: |session, matches| Box::pin(async move { kill(session, parse(matches)?).await }),
    own_failure: None,
};

/// Sandboxes that are ended at the same time.
const WIDTH: usize = 8;

#[derive(Debug, Args)]
struct KillArgs {
    /// The sandboxes
    #[arg(value_name = "SANDBOX", value_parser = args::sandbox, required_unless_present = "all", conflicts_with = "all")]
    sandboxes: Vec<SandboxId>,
    /// End all sandboxes of the caller
    #[arg(long)]
    all: bool,
}

async fn kill(session: Session<'_>, args: KillArgs) -> Result<u8, Error> {
    let client = session.client()?;
    let ids = if args.all { running(&client).await? } else { args.sandboxes };
    let total = ids.len();
    let mut ends =
        futures::stream::iter(ids).map(|id| async { (client.kill(&id).await, id) }).buffered(WIDTH);
    let mut failures = Vec::new();
    while let Some((result, id)) = ends.next().await {
        match result {
            Ok(()) => session.console.say(id.as_str())?,
            // With --all it may have ended by itself in between.
            Err(error) if args.all && error.is_not_found() => {}
            Err(error) => failures.push(error),
        }
    }
    if total == 1
        && let Some(error) = failures.pop()
    {
        return Err(error);
    }
    failures.iter().for_each(|error| session.console.error(error));
    match failures.len() {
        0 => Ok(0),
        failed => Err(Error::Partly { what: "kill".into(), failed, total }),
    }
}

async fn running(client: &Client) -> Result<Vec<SandboxId>, Error> {
    let all = client.sandboxes(false).await?;
    Ok(all.into_iter().filter(|sandbox| !sandbox.state.is_final()).map(|sandbox| sandbox.id).collect())
}
