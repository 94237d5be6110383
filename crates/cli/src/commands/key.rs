//! `key`: API keys of the caller's tenant.

use super::{Session, Verb};
use crate::client::query;
use crate::error::Error;
use crate::output::{self, Format};
use clap::{Args, FromArgMatches as _, Subcommand};
use cofferdam_proto::api::{CreateKey, KeyList, NewKey};

pub(super) const VERB: Verb = Verb {
    name: "key",
    about: "Manage API keys",
    augment: |command| KeyCommand::augment_subcommands(command).subcommand_required(true),
    perform: |session, matches| {
        Box::pin(async move {
            let parsed = KeyCommand::from_arg_matches(matches);
            match parsed.map_err(|error| Error::Usage(error.to_string()))? {
                KeyCommand::Create(args) => create(session, args).await,
                KeyCommand::Ls(format) => list(session, format).await,
                KeyCommand::Revoke { id } => revoke(session, &id).await,
            }
        })
    },
    own_failure: None,
};

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Make a key; its text is shown this once
    Create(CreateArgs),
    /// List keys
    Ls(Format),
    /// Make a key worthless
    Revoke {
        /// The id of the key, as `key ls` shows it
        #[arg(value_name = "KEY")]
        id: String,
    },
}

#[derive(Debug, Args)]
struct CreateArgs {
    /// What it is for, in words
    #[arg(long, default_value = "")]
    name: String,
    /// What it may do [default: everything]
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    #[command(flatten)]
    format: Format,
}

async fn create(session: Session<'_>, args: CreateArgs) -> Result<u8, Error> {
    let scopes = (!args.scopes.is_empty()).then_some(args.scopes);
    let made: NewKey = session.client()?.post("/v1/keys", &CreateKey { name: args.name, scopes }).await?;
    if args.format.json {
        output::json(session.console, &made)?;
    } else {
        session
            .console
            .note(&format!("key {} ({}); its text is not shown again:", made.key.id, made.key.name));
        session.console.say(&made.secret)?;
    }
    Ok(0)
}

async fn list(session: Session<'_>, format: Format) -> Result<u8, Error> {
    let list: KeyList = session.client()?.get("/v1/keys").await?;
    if format.json {
        output::json(session.console, &list.keys)?;
        return Ok(0);
    }
    let now = output::now();
    let rows = list.keys.iter().map(|key| {
        [
            key.id.clone(),
            output::printable(&key.name),
            key.masked.clone(),
            key.scopes.join(" "),
            output::ago(&key.created_at, now),
        ]
    });
    output::table(session.console, ["ID", "NAME", "KEY", "SCOPES", "CREATED"], rows)?;
    Ok(0)
}

async fn revoke(session: Session<'_>, id: &str) -> Result<u8, Error> {
    session.client()?.delete(&format!("/v1/keys/{}", query::segment(id))).await?;
    session.console.say(id)?;
    Ok(0)
}
