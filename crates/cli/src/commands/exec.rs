//! `exec`: one more command in a sandbox that runs, with its streams here and its exit code as ours.

use super::{Session, Verb, parse};
use crate::args;
use crate::attach::{self, Attachment, Ended};
use crate::error::Error;
use crate::terminal::{self, Interrupts};
use clap::Args;
use cofferdam_core::SandboxId;
use cofferdam_proto::api::ExecRequest;
use std::collections::BTreeMap;

pub(super) const VERB: Verb = Verb {
    name: "exec",
    about: "Run a command in a sandbox that runs",
    augment: ExecArgs::augment_args,
    perform: |session, matches| Box::pin(async move { exec(session, parse(matches)?).await }),
    own_failure: Some(125),
};

/// How a command is run and what is connected to it; the same for `run` and `exec`.
#[derive(Debug, Args)]
pub(super) struct StreamArgs {
    /// Set an environment variable
    #[arg(long, short = 'e', value_name = "KEY=VALUE", value_parser = args::pair)]
    pub(super) env: Vec<(String, String)>,
    /// User to run as
    #[arg(long, short = 'u', value_name = "USER")]
    pub(super) user: Option<String>,
    /// Directory to run in
    #[arg(long, short = 'w', value_name = "DIR")]
    pub(super) workdir: Option<String>,
    /// Forward standard input
    #[arg(long, short = 'i')]
    pub(super) interactive: bool,
    /// Give the command a terminal
    #[arg(long, short = 't')]
    pub(super) tty: bool,
}

impl StreamArgs {
    /// A terminal with input needs one here.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.tty && self.interactive && !terminal::input_is_terminal() {
            return Err(Error::Usage(
                "-it needs standard input to be a terminal; use -i alone for a pipe or file".into(),
            ));
        }
        Ok(())
    }

    pub(super) fn request(&self, argv: &[String]) -> ExecRequest {
        let mut env = BTreeMap::new();
        if self.tty
            && let Ok(term) = std::env::var("TERM")
        {
            env.insert("TERM".to_owned(), term);
        }
        env.extend(self.env.iter().cloned());
        ExecRequest {
            argv: argv.to_vec(),
            env,
            cwd: self.workdir.clone(),
            user: self.user.clone(),
            timeout_ms: None,
            stdin: None,
            pty: self.tty.then(terminal::size),
        }
    }
}

#[derive(Debug, Args)]
struct ExecArgs {
    #[command(flatten)]
    stream: StreamArgs,
    /// Kill the command after this time (exit code 124), for example 90s or 5m
    #[arg(long, value_name = "TIME", value_parser = args::seconds)]
    timeout: Option<u64>,
    /// The sandbox
    #[arg(value_name = "SANDBOX", value_parser = args::sandbox)]
    sandbox: SandboxId,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    argv: Vec<String>,
}

async fn exec(session: Session<'_>, args: ExecArgs) -> Result<u8, Error> {
    args.stream.check()?;
    let client = session.client()?;
    let mut interrupts = Interrupts::watch()?;
    let request = ExecRequest {
        timeout_ms: args.timeout.map(|seconds| seconds.saturating_mul(1000)),
        ..args.stream.request(&args.argv)
    };
    let attachment = Attachment {
        client: &client,
        sandbox: &args.sandbox,
        request: &request,
        input: args.stream.interactive,
    };
    let ended = attachment.run(session.console, &mut interrupts).await?;
    if let Ended::Interrupted(_) = ended {
        session.console.note("left: the command got the signal and may still run in the sandbox");
    }
    let (code, error) = attach::exit_code(ended);
    if let Some(error) = error {
        session.console.error(&error);
    }
    Ok(code)
}
