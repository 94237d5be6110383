//! `ps`: the sandboxes of the caller.

use super::{Session, Verb, parse};
use crate::args;
use crate::error::Error;
use crate::output::{self, Format};
use clap::Args;
use cofferdam_proto::api::Sandbox;

pub(super) const VERB: Verb = Verb {
    name: "ps",
    about: "List sandboxes",
    augment: PsArgs::augment_args,
    perform: |session, matches| Box::pin(async move { ps(session, parse(matches)?).await }),
    own_failure: None,
};

#[derive(Debug, Args)]
struct PsArgs {
    /// Show those that ended, too
    #[arg(long, short = 'a')]
    all: bool,
    /// Print ids only
    #[arg(long, short = 'q', conflicts_with = "json")]
    quiet: bool,
    /// Show only what matches: state=STATE, template=NAME, or KEY=VALUE of the metadata; all must match
    #[arg(long, value_name = "KEY=VALUE", value_parser = args::pair)]
    filter: Vec<(String, String)>,
    #[command(flatten)]
    format: Format,
}

async fn ps(session: Session<'_>, args: PsArgs) -> Result<u8, Error> {
    let mut found = session.client()?.sandboxes(args.all).await?;
    found.retain(|sandbox| {
        (args.all || !sandbox.state.is_final()) && args.filter.iter().all(|filter| matches(sandbox, filter))
    });
    if args.format.json {
        output::json(session.console, &found)?;
    } else if args.quiet {
        found.iter().try_for_each(|sandbox| session.console.say(sandbox.id.as_str()))?;
    } else {
        let now = output::now();
        let heading = ["ID", "STATE", "TEMPLATE", "CPU", "MEMORY", "STARTED", "EXPIRES", "METADATA"];
        output::table(session.console, heading, found.iter().map(|sandbox| row(sandbox, now)))?;
    }
    Ok(0)
}

fn matches(sandbox: &Sandbox, (key, value): &(String, String)) -> bool {
    match key.as_str() {
        "state" => sandbox.state.as_str() == value,
        "template" => sandbox.template == *value,
        _ => sandbox.metadata.get(key) == Some(value),
    }
}

fn row(sandbox: &Sandbox, now: cofferdam_core::Timestamp) -> [String; 8] {
    let expires = if sandbox.state.is_final() {
        sandbox.reason.as_deref().map_or_else(String::new, output::printable)
    } else {
        output::until(&sandbox.expires_at, now)
    };
    [
        sandbox.id.to_string(),
        sandbox.state.as_str().to_owned(),
        sandbox.template.clone(),
        format!("{}", f64::from(sandbox.resources.cpu_millis) / 1000.0),
        output::bytes(u64::from(sandbox.resources.memory_mib) * 1024 * 1024),
        output::ago(&sandbox.started_at, now),
        expires,
        output::pairs(&sandbox.metadata),
    ]
}
