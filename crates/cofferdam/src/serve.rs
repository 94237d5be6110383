//! Owns the verbs `serve` and `config show`: which process this one becomes.

use crate::config::{Config, Flags};
use crate::{handover, roles, supervisor};
use anyhow::{Context, Result, ensure};
use std::io::Write as _;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    flags: Flags,
    /// Run one role alone instead of all of them under a supervisor
    #[arg(long, value_enum)]
    role: Option<Role>,
    /// The supervisor hands the configuration over on stdout
    #[arg(long, hide = true, requires = "role")]
    supervised: bool,
}

/// The roles of the server; each is a process of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    /// Unprivileged: speaks with clients
    Api,
    /// Privileged: makes sandboxes
    Node,
}

impl Role {
    /// Its name on the command line, in logs and of its pid file.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Node => "node",
        }
    }
}

/// Becomes the supervisor or one role, and returns when it ends.
pub(crate) fn run(args: &Serve) -> Result<()> {
    roles::start_logging();
    match (args.role, args.supervised) {
        (None, _) => supervisor::run(Config::load(&args.flags)?),
        (Some(role), true) => {
            let (orders, supervisor) = handover::receive()?;
            roles::run(role, orders, supervisor)
        }
        (Some(role), false) => roles::run_alone(role, Config::load(&args.flags)?),
    }
}

/// Prints the configuration in force; it holds no secret.
pub(crate) fn show_config(flags: &Flags) -> Result<()> {
    let config = Config::load(flags)?;
    let text = toml::to_string(&config).context("print the configuration")?;
    ensure!(!text.contains("e2b_"), "the configuration holds an API key; keys do not belong there");
    std::io::stdout().write_all(text.as_bytes()).context("write to stdout")
}
