//! `run`: a new sandbox, one command in it with its streams here, its exit code as ours, and the sandbox gone
//! afterwards, whichever way it ended.
//!
//! While the command runs, the sandbox lives on a short lease that is renewed; if this process dies, the lease ends it.

use super::{Session, Verb, parse};
use crate::args;
use crate::attach::{self, Attachment, Ended};
use crate::client::Client;
use crate::commands::exec::StreamArgs;
use crate::console::Console;
use crate::error::Error;
use crate::terminal::Interrupts;
use clap::Args;
use cofferdam_core::SandboxId;
use cofferdam_proto::api::{CreateSandbox, ExecRequest, ResourceOverrides, Sandbox};
use std::time::Duration;

pub(super) const VERB: Verb = Verb {
    name: "run",
    about: "Run a command in a new sandbox",
    augment: RunArgs::augment_args,
    perform: |session, matches| Box::pin(async move { run(session, parse(matches)?).await }),
    own_failure: Some(125),
};

/// Life of the sandbox between two renewals, in seconds.
const LEASE_SECONDS: u64 = 300;
const RENEWAL: Duration = Duration::from_secs(100);
/// How much longer than its command a sandbox with a time limit lives, in seconds.
const GRACE_SECONDS: u64 = 60;

#[derive(Debug, Args)]
struct RunArgs {
    /// Template to start from
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// CPUs, for example 2 or 0.5
    #[arg(long, value_name = "CPUS", value_parser = args::cpu_millis)]
    cpu: Option<u32>,
    /// Memory, for example 512M or 2G
    #[arg(long, value_name = "SIZE", value_parser = args::mebibytes)]
    memory: Option<u32>,
    /// Writable disk, for example 512M or 2G
    #[arg(long, value_name = "SIZE", value_parser = args::mebibytes)]
    disk: Option<u32>,
    /// Processes and threads
    #[arg(long, value_name = "COUNT")]
    processes: Option<u32>,
    /// Kill the command after this time (exit code 124), for example 90s or 5m; with --keep also the life of the sandbox
    #[arg(long, value_name = "TIME", value_parser = args::seconds)]
    timeout: Option<u64>,
    /// Label the sandbox
    #[arg(long, value_name = "KEY=VALUE", value_parser = args::pair)]
    metadata: Vec<(String, String)>,
    /// Leave the sandbox running and print its id on standard error
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    stream: StreamArgs,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    argv: Vec<String>,
}

async fn run(session: Session<'_>, args: RunArgs) -> Result<u8, Error> {
    args.stream.check()?;
    let client = session.client()?;
    let mut interrupts = Interrupts::watch()?;
    perform(&client, session.console, &mut interrupts, args).await
}

async fn perform(
    client: &Client,
    console: &mut Console,
    interrupts: &mut Interrupts,
    args: RunArgs,
) -> Result<u8, Error> {
    // Creating is never given up half-way: a sandbox that exists must be known here to be killed.
    let sandbox = client.create(&creation(&args)).await?;
    let ended = match interrupts.pending() {
        Some(number) => Ok(Ended::Interrupted(number)),
        None => attached(client, &sandbox, (console, interrupts), &args).await,
    };
    let interrupted = matches!(ended, Ok(Ended::Interrupted(_)) | Err(_));
    if args.keep && !interrupted {
        keep(client, console, &sandbox.id, args.timeout).await;
    } else if let Err(error) = client.kill(&sandbox.id).await
        && !error.is_not_found()
    {
        console.error(&error);
        console.note(&format!("sandbox {} may still run; its lease ends it", sandbox.id));
    }
    let (code, error) = attach::exit_code(ended?);
    if let Some(error) = error {
        console.error(&error);
    }
    Ok(code)
}

async fn attached(
    client: &Client,
    sandbox: &Sandbox,
    (console, interrupts): (&mut Console, &mut Interrupts),
    args: &RunArgs,
) -> Result<Ended, Error> {
    let request = ExecRequest {
        timeout_ms: args.timeout.map(|seconds| seconds.saturating_mul(1000)),
        ..args.stream.request(&args.argv)
    };
    let lease = args.timeout.is_none().then(|| renew(client.clone(), sandbox.id.clone()));
    let attachment =
        Attachment { client, sandbox: &sandbox.id, request: &request, input: args.stream.interactive };
    let ended = attachment.run(console, interrupts).await;
    if let Some(lease) = lease {
        lease.abort();
    }
    ended
}

/// Extends the life of the sandbox again and again. A renewal that fails is tried again at the next turn.
fn renew(client: Client, id: SandboxId) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let mut turns = tokio::time::interval_at(tokio::time::Instant::now() + RENEWAL, RENEWAL);
        loop {
            turns.tick().await;
            client.set_timeout(&id, LEASE_SECONDS).await.unwrap_or_default();
        }
    })
}

async fn keep(client: &Client, console: &Console, id: &SandboxId, timeout: Option<u64>) {
    if let Some(seconds) = timeout
        && let Err(error) = client.set_timeout(id, seconds).await
    {
        console.error(&error);
    }
    console.note(&format!("kept sandbox {id}; `cofferdam kill {id}` ends it"));
}

fn creation(args: &RunArgs) -> CreateSandbox {
    let life = args.timeout.map_or(LEASE_SECONDS, |seconds| seconds.saturating_add(GRACE_SECONDS));
    CreateSandbox {
        template: args.template.clone(),
        timeout_seconds: Some(life),
        resources: ResourceOverrides {
            cpu_millis: args.cpu,
            memory_mib: args.memory,
            disk_mib: args.disk,
            processes: args.processes,
            open_files: None,
        },
        env: args.stream.env.iter().cloned().collect(),
        metadata: args.metadata.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Captured, Fake, Script};
    use clap::{Command, FromArgMatches as _};

    fn parsed(line: &[&str]) -> RunArgs {
        let command = RunArgs::augment_args(Command::new("run"));
        let matches = command.try_get_matches_from(std::iter::once(&"run").chain(line)).unwrap();
        RunArgs::from_arg_matches(&matches).unwrap()
    }

    #[tokio::test]
    async fn output_and_exit_code_are_those_of_the_command_and_the_sandbox_is_killed() {
        let fake = Fake::start(Script::prints("out\n", "err\n").exits(7)).await;
        let (mut console, captured) = Captured::new(b"");
        let (_signals, mut interrupts) = Interrupts::fake();
        let code = perform(
            &fake.client(),
            &mut console,
            &mut interrupts,
            parsed(&["--env", "A=1", "--", "sh", "-c", "x"]),
        )
        .await;
        assert_eq!(code.unwrap(), 7);
        assert_eq!(captured.out(), "out\n");
        assert_eq!(captured.err(), "err\n");
        let seen = fake.seen();
        assert!(seen.contains(&"DELETE /v1/sandboxes/iabc".to_owned()), "{seen:?}");
        let first = fake.first_message();
        assert_eq!(first.argv, ["sh", "-c", "x"]);
        assert_eq!(first.timeout_ms, None);
    }

    #[tokio::test]
    async fn keep_leaves_the_sandbox_and_tells_its_id() {
        let fake = Fake::start(Script::prints("", "").exits(0)).await;
        let (mut console, captured) = Captured::new(b"");
        let (_signals, mut interrupts) = Interrupts::fake();
        let args = parsed(&["--keep", "--timeout", "1m", "true"]);
        assert_eq!(perform(&fake.client(), &mut console, &mut interrupts, args).await.unwrap(), 0);
        assert!(captured.err().contains("kept sandbox iabc"));
        assert!(!fake.seen().iter().any(|line| line.starts_with("DELETE")));
        assert_eq!(fake.first_message().timeout_ms, Some(60_000));
    }

    #[tokio::test]
    async fn the_first_interrupt_reaches_the_command_and_the_second_kills_the_sandbox() {
        let fake = Fake::start(Script::prints("up\n", "").ignores_signals()).await;
        let (mut console, captured) = Captured::new(b"");
        let (signals, mut interrupts) = Interrupts::fake();
        let client = fake.client();
        let running = perform(&client, &mut console, &mut interrupts, parsed(&["sleep", "9"]));
        let pressing = async {
            captured.wait_for_out("up\n").await;
            signals.send(2).unwrap();
            fake.wait_for_signal().await;
            signals.send(2).unwrap();
        };
        let (code, ()) = tokio::join!(running, pressing);
        assert_eq!(code.unwrap(), 130);
        assert!(fake.seen().contains(&"DELETE /v1/sandboxes/iabc".to_owned()));
    }

    #[tokio::test]
    async fn a_broken_stream_still_kills_the_sandbox() {
        let fake = Fake::start(Script::prints("x", "").breaks()).await;
        let (mut console, _captured) = Captured::new(b"");
        let (_signals, mut interrupts) = Interrupts::fake();
        let args = parsed(&["--keep", "true"]);
        let error = perform(&fake.client(), &mut console, &mut interrupts, args).await.unwrap_err();
        assert_eq!(VERB.failure_code(&error), 125);
        assert!(fake.seen().contains(&"DELETE /v1/sandboxes/iabc".to_owned()));
    }

    #[tokio::test]
    async fn input_is_forwarded_only_when_asked_for() {
        for (flags, expected) in [(&["-i", "cat"][..], "hello"), (&["cat"][..], "")] {
            let fake = Fake::start(Script::echoes()).await;
            let (mut console, captured) = Captured::new(b"hello");
            let (_signals, mut interrupts) = Interrupts::fake();
            let code = perform(&fake.client(), &mut console, &mut interrupts, parsed(flags)).await;
            assert_eq!(code.unwrap(), 0);
            assert_eq!(captured.out(), expected);
        }
    }
}
