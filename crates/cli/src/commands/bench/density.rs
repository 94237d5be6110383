//! `bench density`: what many idle sandboxes cost, and whether making one more stays as cheap. Reads the memory of this
//! machine, so it must run on the host of the server.

use super::contest::{self, Contestant, Load, Report};
use super::create::Cycle;
use super::stats::{Samples, Summary};
use super::surface::{self, Surface, Wanted};
use crate::client::Client;
use crate::console::Console;
use crate::error::Error;
use crate::output::{self, Format};
use crate::progress::Progress;
use crate::terminal::Interrupts;
use clap::Args;
use cofferdam_core::SandboxId;
use futures::StreamExt as _;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;

/// Life of the sandboxes, in seconds.
const LIFE_SECONDS: u64 = 3600;

/// What `/proc/meminfo` calls the kinds of memory that sandboxes use.
const KINDS: [&str; 8] = [
    "MemAvailable",
    "AnonPages",
    "Shmem",
    "SUnreclaim",
    "SReclaimable",
    "KernelStack",
    "PageTables",
    "Percpu",
];

#[derive(Debug, Args)]
pub(super) struct DensityArgs {
    /// Idle sandboxes
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 500)]
    n: usize,
    /// Measure after so many more
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    step: usize,
    /// Create, run and kill so many at each step
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    probes: usize,
    /// How many idle ones are made at once
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    width: usize,
    /// Template to start from
    #[arg(long, value_name = "NAME", default_value = "base")]
    template: String,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Serialize)]
struct Density {
    sandboxes: usize,
    failures: usize,
    /// Fall of MemAvailable for each sandbox, the server's growth included.
    kib_per_sandbox: f64,
    /// Growth of the server's processes for each sandbox, part of the number above.
    server_kib_per_sandbox: f64,
    /// Growth of each kind of memory for each sandbox.
    kinds_kib_per_sandbox: BTreeMap<&'static str, f64>,
    steps: Vec<Step>,
}

#[derive(Debug, Serialize)]
struct Step {
    live: usize,
    mem_available_kib: u64,
    server_rss_kib: u64,
    create: Summary,
    #[serde(skip)]
    kinds: BTreeMap<&'static str, u64>,
}

pub(super) async fn density(client: Client, console: &mut Console, args: DensityArgs) -> Result<u8, Error> {
    let mut interrupts = Interrupts::watch()?;
    let wanted = Wanted { template: args.template.clone(), timeout_seconds: LIFE_SECONDS };
    let cycle = Cycle { client: client.clone(), surface: Surface::Native, wanted: wanted.clone() };
    let probe: [Box<dyn Contestant>; 1] = [Box::new(cycle)];
    contest::run(&probe, Load { count: args.probes, concurrency: 1 }).await;

    let width = args.width.max(1);
    let mut crowd = Crowd { client, wanted, ids: Vec::new(), errors: Vec::new() };
    let progress = Progress::steps(console, "idle sandboxes");
    let mut steps = vec![measure(&probe, &args, 0).await];
    while crowd.attempts() < args.n && interrupts.pending().is_none() {
        let more = args.step.max(1).min(args.n - crowd.attempts());
        crowd.grow(more, width).await;
        progress.step("idle sandboxes", crowd.ids.len() as u64, None);
        steps.push(measure(&probe, &args, crowd.ids.len()).await);
    }
    progress.finish();
    let report = summary(&crowd, steps);
    let stays = crowd.leave(width).await;
    show(console, args.format.json, &Report::new("density", report))?;
    for error in crowd.errors.iter().chain(&stays).take(5) {
        console.note(&output::printable(error));
    }
    Ok(u8::from(!crowd.errors.is_empty() || !stays.is_empty()))
}

/// The idle sandboxes.
struct Crowd {
    client: Client,
    wanted: Wanted,
    ids: Vec<SandboxId>,
    errors: Vec<String>,
}

impl Crowd {
    fn attempts(&self) -> usize {
        self.ids.len() + self.errors.len()
    }

    async fn grow(&mut self, count: usize, width: usize) {
        let made: Vec<_> = futures::stream::iter(0..count)
            .map(|_| surface::create(&self.client, Surface::Native, &self.wanted))
            .buffer_unordered(width)
            .collect()
            .await;
        for outcome in made {
            match outcome {
                Ok(subject) => self.ids.push(subject.id),
                Err(error) => self.errors.push(surface::in_full(error)),
            }
        }
    }

    /// Kills them all; gives the errors of those that stay.
    async fn leave(&mut self, width: usize) -> Vec<String> {
        let ids = std::mem::take(&mut self.ids);
        let client = &self.client;
        let ends = futures::stream::iter(&ids).map(|id| client.kill(id)).buffer_unordered(width);
        ends.filter_map(|end| async { end.err().map(surface::in_full) }).collect().await
    }
}

async fn measure(probe: &[Box<dyn Contestant>], args: &DensityArgs, live: usize) -> Step {
    let rows = contest::run(probe, Load { count: args.probes, concurrency: 1 }).await;
    let create = rows.into_iter().next().map(|row| row.summary);
    let create = create.unwrap_or_else(|| Samples::default().summary());
    let kinds = memory();
    let mem_available_kib = kinds.get("MemAvailable").copied().unwrap_or_default();
    Step { live, mem_available_kib, server_rss_kib: server_rss_kib(), create, kinds }
}

#[expect(clippy::cast_precision_loss, reason = "KiB of one machine")]
fn summary(crowd: &Crowd, steps: Vec<Step>) -> Density {
    let count = crowd.ids.len().max(1) as f64;
    let each = |before: u64, after: u64| (after as f64 - before as f64) / count;
    let mut density = Density {
        sandboxes: crowd.ids.len(),
        failures: crowd.errors.len(),
        kib_per_sandbox: 0.0,
        server_kib_per_sandbox: 0.0,
        kinds_kib_per_sandbox: BTreeMap::new(),
        steps,
    };
    if let [first, .., last] = density.steps.as_slice() {
        density.kib_per_sandbox = each(last.mem_available_kib, first.mem_available_kib);
        density.server_kib_per_sandbox = each(first.server_rss_kib, last.server_rss_kib);
        for (kind, before) in &first.kinds {
            let after = last.kinds.get(kind).copied().unwrap_or_default();
            density.kinds_kib_per_sandbox.insert(*kind, each(*before, after));
        }
    }
    density
}

fn show(console: &Console, json: bool, report: &Report<Density>) -> Result<(), Error> {
    if json {
        return output::json(console, report);
    }
    let density = &report.results;
    let rows = density.steps.iter().map(|step| {
        [
            step.live.to_string(),
            format!("{:.2}", step.create.p50_ms),
            format!("{:.2}", step.create.p95_ms),
            step.create.failures.to_string(),
            output::bytes(step.mem_available_kib * 1024),
            output::bytes(step.server_rss_kib * 1024),
        ]
    });
    let heading = ["LIVE", "CREATE P50 MS", "P95 MS", "FAILED", "MEMORY AVAILABLE", "SERVER"];
    output::table(console, heading, rows)?;
    console.say(&format!(
        "{:.0} KiB for each of {} sandboxes ({:.0} of it in the server); {} failed",
        density.kib_per_sandbox, density.sandboxes, density.server_kib_per_sandbox, density.failures
    ))
}

/// The memory of this machine by kind, in KiB.
fn memory() -> BTreeMap<&'static str, u64> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let kind = KINDS.into_iter().find(|kind| *kind == name)?;
        Some((kind, rest.split_whitespace().next()?.parse().ok()?))
    });
    lines.collect()
}

/// Resident memory of the server's processes on this machine, in KiB.
fn server_rss_kib() -> u64 {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let processes = entries.flatten().filter_map(|entry| {
        let arguments = fs::read(entry.path().join("cmdline")).ok()?;
        let mut arguments = arguments.split(|byte| *byte == 0);
        let ours =
            arguments.next()?.ends_with(b"cofferdam") && matches!(arguments.next()?, b"serve" | b"launcher");
        let status = fs::read_to_string(entry.path().join("status")).ok().filter(|_| ours)?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    processes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_machine_is_found() {
        let found = memory();
        assert!(found["MemAvailable"] > 0);
        assert!(found.contains_key("Percpu"));
    }
}
