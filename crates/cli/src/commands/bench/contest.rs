//! Owns running contestants side by side: in blocks that take turns, so that whatever else the machine does hits all of
//! them alike; and the report about it.

use super::stats::{Samples, Summary};
use crate::console::Console;
use crate::error::Error;
use crate::output;
use futures::StreamExt as _;
use serde::Serialize;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Turns that each contestant gets.
const TURNS: usize = 10;

pub(super) type Attempt<'a> = Pin<Box<dyn Future<Output = Result<Duration, String>> + 'a>>;

/// Something that can be done again and again.
pub(super) trait Contestant {
    /// Who it is, in the report.
    fn name(&self) -> &str;
    /// Does it once and tells how long the part that counts took. Cleans up.
    fn once(&self) -> Attempt<'_>;
}

/// How much to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) count: usize,
    pub(super) concurrency: usize,
}

/// One line of a report.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) who: String,
    pub(super) concurrency: usize,
    #[serde(flatten)]
    pub(super) summary: Summary,
    /// Its p50 as a multiple of the first contestant's.
    pub(super) p50_ratio: f64,
}

/// What was measured, and where.
#[derive(Debug, Serialize)]
pub(super) struct Report<T> {
    pub(super) bench: &'static str,
    pub(super) kernel: String,
    pub(super) cpus: usize,
    pub(super) results: T,
}

impl<T: Serialize> Report<T> {
    pub(super) fn new(bench: &'static str, results: T) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { bench, kernel: kernel.trim().to_owned(), cpus, results }
    }
}

/// Lets all contestants do the same load.
pub(super) async fn run(contestants: &[Box<dyn Contestant>], load: Load) -> Vec<Row> {
    let mut all: Vec<Samples> = contestants.iter().map(|_| Samples::default()).collect();
    let block = load.count.div_ceil(TURNS).max(load.concurrency).max(1);
    let mut left = load.count;
    while left > 0 {
        let count = block.min(left);
        left -= count;
        for (contestant, samples) in contestants.iter().zip(&mut all) {
            turn(contestant.as_ref(), Load { count, ..load }, samples).await;
        }
    }
    let summaries: Vec<Summary> = all.into_iter().map(Samples::summary).collect();
    let base = summaries.first().map_or(0.0, |summary| summary.p50_ms);
    let rows = contestants.iter().zip(summaries).map(|(contestant, summary)| Row {
        who: contestant.name().to_owned(),
        concurrency: load.concurrency,
        p50_ratio: if base > 0.0 { summary.p50_ms / base } else { 0.0 },
        summary,
    });
    rows.collect()
}

async fn turn(contestant: &dyn Contestant, load: Load, samples: &mut Samples) {
    let start = Instant::now();
    let mut attempts =
        futures::stream::iter(0..load.count).map(|_| contestant.once()).buffer_unordered(load.concurrency);
    while let Some(outcome) = attempts.next().await {
        samples.add(outcome);
    }
    drop(attempts);
    samples.add_wall(start.elapsed());
}

/// Shows rows as a table or JSON; the exit code says whether all attempts of ours worked.
pub(super) fn show(console: &Console, json: bool, report: &Report<Vec<Row>>) -> Result<u8, Error> {
    if json {
        output::json(console, report)?;
    } else {
        let heading =
            ["WHO", "AT ONCE", "COUNT", "FAILED", "P50 MS", "P95 MS", "P99 MS", "PER S", "P50 RATIO"];
        output::table(console, heading, report.results.iter().map(cells))?;
    }
    for row in &report.results {
        for error in &row.summary.errors {
            console.note(&format!("{}: {}", row.who, output::printable(error)));
        }
    }
    let failed =
        report.results.iter().any(|row| row.who.starts_with("cofferdam") && row.summary.failures > 0);
    Ok(u8::from(failed))
}

fn cells(row: &Row) -> [String; 9] {
    let summary = &row.summary;
    [
        row.who.clone(),
        row.concurrency.to_string(),
        summary.count.to_string(),
        summary.failures.to_string(),
        format!("{:.2}", summary.p50_ms),
        format!("{:.2}", summary.p95_ms),
        format!("{:.2}", summary.p99_ms),
        format!("{:.1}", summary.per_second),
        format!("{:.2}x", row.p50_ratio),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(&'static str, u64);

    impl Contestant for Fixed {
        fn name(&self) -> &str {
            self.0
        }

        fn once(&self) -> Attempt<'_> {
            Box::pin(async { Ok(Duration::from_millis(self.1)) })
        }
    }

    #[tokio::test]
    async fn every_contestant_does_the_whole_load_and_is_compared_with_the_first() {
        let contestants: [Box<dyn Contestant>; 2] = [Box::new(Fixed("a", 2)), Box::new(Fixed("b", 5))];
        let rows = run(&contestants, Load { count: 23, concurrency: 4 }).await;
        let found: Vec<_> =
            rows.iter().map(|row| (row.who.as_str(), row.summary.count, row.p50_ratio)).collect();
        assert_eq!(found, [("a", 23, 1.0), ("b", 23, 2.5)]);
    }
}
