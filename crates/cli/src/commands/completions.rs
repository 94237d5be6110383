//! `completions`: a script that teaches a shell our verbs.

use super::{Session, Verb, parse};
use crate::error::Error;
use clap::Args;
use clap_complete::Shell;

pub(super) const VERB: Verb = Verb {
    name: "completions",
    about: "Print a completion script for a shell",
    augment: CompletionsArgs::augment_args,
    perform: |session, matches| Box::pin(async move { completions(&session, parse(matches)?) }),
    own_failure: None,
};

#[derive(Debug, Args)]
struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

fn completions(session: &Session<'_>, args: CompletionsArgs) -> Result<u8, Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut (session.root)(), "cofferdam", &mut script);
    session.console.out.write(&script).map_err(Error::local("write to standard output"))?;
    Ok(0)
}
