//! `cp`: files and directories between this machine and a sandbox.

use super::{Session, Verb, parse};
use crate::args::{self, Place};
use crate::client::files::Files;
use crate::error::Error;
use crate::transfer::{download, upload};
use clap::Args;

pub(super) const VERB: Verb = Verb {
    name: "cp",
    about: "Copy files and directories into or out of a sandbox",
    augment: CpArgs::augment_args,
    perform: |session, matches| Box::pin(async move { cp(session, parse(matches)?).await }),
    own_failure: None,
};

#[derive(Debug, Args)]
struct CpArgs {
    /// User of the sandbox whom new files belong to, and below whose home relative paths are
    #[arg(long, short = 'u', value_name = "USER")]
    user: Option<String>,
    /// What to copy: PATH here, or SANDBOX:PATH; a directory with `/.` at its end stands for its content
    #[arg(value_name = "FROM", value_parser = args::place)]
    from: Place,
    /// Where to: PATH here, or SANDBOX:PATH; into it when it is a directory
    #[arg(value_name = "TO", value_parser = args::place)]
    to: Place,
}

async fn cp(session: Session<'_>, args: CpArgs) -> Result<u8, Error> {
    let user = args.user;
    let files = |client, sandbox| Files { client, sandbox, user };
    match (args.from, args.to) {
        (Place::Local(from), Place::Sandbox(id, to)) => {
            upload::upload(&files(session.client()?, id), session.console, (&from, &to)).await?;
        }
        (Place::Sandbox(id, from), Place::Local(to)) => {
            download::download(&files(session.client()?, id), session.console, (&from, &to)).await?;
        }
        (Place::Local(_), Place::Local(_)) => {
            return Err(Error::Usage("one side must be SANDBOX:PATH; for local copies there is `cp`".into()));
        }
        (Place::Sandbox(..), Place::Sandbox(..)) => {
            return Err(Error::Usage("one side must be a local path; copy in two steps".into()));
        }
    }
    Ok(0)
}
