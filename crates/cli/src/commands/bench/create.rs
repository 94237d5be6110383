//! `bench create`: from the request to create until the first command has finished. The kill that follows is in the rate
//! but not in the latency.

use super::contest::{self, Attempt, Contestant, Load, Report};
use super::peers::{self, PeerArgs, Work};
use super::surface::{self, Surface, Wanted};
use crate::client::Client;
use crate::console::Console;
use crate::error::Error;
use crate::output::Format;
use clap::Args;
use std::time::Instant;

/// Life of a sandbox whose kill fails, in seconds.
const LIFE_SECONDS: u64 = 300;

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// Sandboxes at each concurrency
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 100)]
    n: usize,
    /// How many at once; several, joined by commas, are measured one after the other
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1,10,50")]
    concurrency: Vec<usize>,
    /// Sandboxes before the measurement begins
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
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

pub(super) async fn create(client: Client, console: &mut Console, args: CreateArgs) -> Result<u8, Error> {
    let wanted = Wanted { template: args.template.clone(), timeout_seconds: LIFE_SECONDS };
    let mut contestants: Vec<Box<dyn Contestant>> = Vec::new();
    for surface in &args.surface {
        let cycle = Cycle { client: client.clone(), surface: *surface, wanted: wanted.clone() };
        contestants.push(Box::new(cycle));
    }
    contestants.extend(peers::contestants(&args.peers, Work::Run, console).await?);
    contest::run(&contestants, Load { count: args.warmup, concurrency: 1 }).await;
    let mut rows = Vec::new();
    for concurrency in args.concurrency {
        let load = Load { count: args.n, concurrency: concurrency.max(1) };
        rows.extend(contest::run(&contestants, load).await);
    }
    contest::show(console, args.format.json, &Report::new("create", rows))
}

/// Create, one command, kill.
pub(super) struct Cycle {
    pub(super) client: Client,
    pub(super) surface: Surface,
    pub(super) wanted: Wanted,
}

impl Contestant for Cycle {
    fn name(&self) -> &str {
        self.surface.name()
    }

    fn once(&self) -> Attempt<'_> {
        Box::pin(async {
            let start = Instant::now();
            let subject = surface::create(&self.client, self.surface, &self.wanted).await;
            let subject = subject.map_err(surface::in_full)?;
            let done = surface::command(&self.client, self.surface, &subject).await;
            let time = start.elapsed();
            let killed = self.client.kill(&subject.id).await.map_err(surface::in_full);
            done.and(killed).map(|()| time)
        })
    }
}
