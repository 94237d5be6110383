//! `bench exec`: commands in a sandbox that runs.

use super::contest::{self, Attempt, Contestant, Load, Report};
use super::peers::{self, PeerArgs, Work};
use super::surface::{self, Subject, Surface, Wanted};
use crate::client::Client;
use crate::console::Console;
use crate::error::Error;
use crate::output::Format;
use clap::Args;
use std::time::Instant;

/// Life of the sandboxes, in seconds.
const LIFE_SECONDS: u64 = 1800;

#[derive(Debug, Args)]
pub(super) struct ExecArgs {
    /// Commands at each concurrency
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 500)]
    n: usize,
    /// How many at once; several, joined by commas, are measured one after the other
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1")]
    concurrency: Vec<usize>,
    /// Commands before the measurement begins
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    warmup: usize,
    /// Template to start from
    #[arg(long, value_name = "NAME", default_value = "base")]
    template: String,
    /// Which APIs
    #[arg(long, value_name = "API", value_delimiter = ',', default_value = "native,e2b")]
    surface: Vec<Surface>,
    #[command(flatten)]
    peers: PeerArgs,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn exec(client: Client, console: &mut Console, args: ExecArgs) -> Result<u8, Error> {
    let peers = peers::contestants(&args.peers, Work::Exec, console).await?;
    let wanted = Wanted { template: args.template.clone(), timeout_seconds: LIFE_SECONDS };
    let mut made = Vec::new();
    let mut contestants: Vec<Box<dyn Contestant>> = Vec::new();
    let mut failure = None;
    for surface in &args.surface {
        match surface::create(&client, *surface, &wanted).await {
            Ok(subject) => {
                made.push(subject.id.clone());
                contestants.push(Box::new(Command { client: client.clone(), surface: *surface, subject }));
            }
            Err(error) => failure = Some(error),
        }
    }
    contestants.extend(peers);
    let mut rows = Vec::new();
    if failure.is_none() {
        contest::run(&contestants, Load { count: args.warmup, concurrency: 1 }).await;
        for concurrency in args.concurrency {
            let load = Load { count: args.n, concurrency: concurrency.max(1) };
            rows.extend(contest::run(&contestants, load).await);
        }
    }
    for id in made {
        client.kill(&id).await?;
    }
    match failure {
        Some(error) => Err(error),
        None => contest::show(console, args.format.json, &Report::new("exec", rows)),
    }
}

struct Command {
    client: Client,
    surface: Surface,
    subject: Subject,
}

impl Contestant for Command {
    fn name(&self) -> &str {
        self.surface.name()
    }

    fn once(&self) -> Attempt<'_> {
        Box::pin(async {
            let start = Instant::now();
            surface::command(&self.client, self.surface, &self.subject).await?;
            Ok(start.elapsed())
        })
    }
}
