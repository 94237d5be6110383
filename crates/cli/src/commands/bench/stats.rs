//! Owns samples and what is said about them.

use serde::Serialize;
use std::time::Duration;

/// Error texts that are kept.
const ERRORS_MAX: usize = 5;

/// What one contestant did at one concurrency.
#[derive(Debug, Default)]
pub(super) struct Samples {
    times: Vec<Duration>,
    errors: Vec<String>,
    failures: usize,
    wall: Duration,
}

impl Samples {
    pub(super) fn add(&mut self, outcome: Result<Duration, String>) {
        match outcome {
            Ok(time) => self.times.push(time),
            Err(error) => {
                self.failures += 1;
                if self.errors.len() < ERRORS_MAX && !self.errors.contains(&error) {
                    self.errors.push(error);
                }
            }
        }
    }

    /// So much more time passed, clean-up included.
    pub(super) fn add_wall(&mut self, wall: Duration) {
        self.wall += wall;
    }

    pub(super) fn summary(mut self) -> Summary {
        self.times.sort_unstable();
        let done = self.times.len();
        let seconds = self.wall.as_secs_f64();
        let sum: Duration = self.times.iter().sum();
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let count = done as f64;
        Summary {
            count: done + self.failures,
            failures: self.failures,
            p50_ms: percentile(&self.times, 50),
            p95_ms: percentile(&self.times, 95),
            p99_ms: percentile(&self.times, 99),
            min_ms: percentile(&self.times, 0),
            max_ms: percentile(&self.times, 100),
            mean_ms: if done == 0 { 0.0 } else { millis(sum) / count },
            per_second: if seconds > 0.0 { count / seconds } else { 0.0 },
            errors: self.errors,
        }
    }
}

/// The numbers of [`Samples`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Summary {
    /// Attempts.
    pub(super) count: usize,
    /// Attempts that failed; they are in no other number.
    pub(super) failures: usize,
    pub(super) p50_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) min_ms: f64,
    pub(super) max_ms: f64,
    pub(super) mean_ms: f64,
    /// Successes a second of wall-clock time, clean-up included.
    pub(super) per_second: f64,
    /// The first few different errors.
    pub(super) errors: Vec<String>,
}

/// The smallest sample that at least `percent` of all samples do not exceed, in milliseconds.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map_or(0.0, |time| millis(*time))
}

/// Milliseconds, to the microsecond.
fn millis(time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a benchmark")]
    let micros = time.as_micros() as f64;
    micros / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact() {
        let mut samples = Samples::default();
        for millis in (1..=100).rev() {
            samples.add(Ok(Duration::from_millis(millis)));
        }
        samples.add(Err("no".into()));
        samples.add_wall(Duration::from_secs(2));
        let summary = samples.summary();
        let found = (summary.p50_ms, summary.p95_ms, summary.p99_ms, summary.min_ms, summary.max_ms);
        assert_eq!(found, (50.0, 95.0, 99.0, 1.0, 100.0));
        assert_eq!((summary.count, summary.failures, summary.per_second), (101, 1, 50.0));
    }

    #[test]
    fn nothing_measured_is_no_panic() {
        let summary = Samples::default().summary();
        assert_eq!((summary.p50_ms, summary.per_second), (0.0, 0.0));
    }
}
