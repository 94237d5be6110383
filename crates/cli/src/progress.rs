//! Owns what is drawn while long work goes on: a bar on a terminal, and nothing where standard error is no terminal.

use crate::console::Console;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Below this many bytes a transfer is over before a bar could be read.
const WORTH_DRAWING_BYTES: u64 = 8 * 1024 * 1024;

/// The progress of one piece of work.
#[derive(Clone)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// The progress of moving `total` bytes.
    pub(crate) fn bytes(console: &Console, what: &str, total: u64) -> Self {
        let drawn = console.draws && total >= WORTH_DRAWING_BYTES;
        Self::new(drawn, what, Some(total))
    }

    /// The progress of work whose size becomes known on the way.
    pub(crate) fn steps(console: &Console, what: &str) -> Self {
        Self::new(console.draws, what, None)
    }

    fn new(drawn: bool, what: &str, total: Option<u64>) -> Self {
        let target = if drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        bar.set_message(what.to_owned());
        style(&bar, total.is_some());
        if drawn {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self(bar)
    }

    /// So many more bytes were moved.
    pub(crate) fn add(&self, count: u64) {
        self.0.inc(count);
    }

    /// Work is at this step now.
    pub(crate) fn step(&self, what: &str, done: u64, total: Option<u64>) {
        if self.0.message() != what {
            self.0.set_message(what.to_owned());
        }
        match total {
            Some(total) => self.0.set_length(total),
            None => self.0.unset_length(),
        }
        style(&self.0, total.is_some());
        self.0.set_position(done);
    }

    /// The work is over.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

fn style(bar: &ProgressBar, sized: bool) {
    let template = if sized {
        "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}"
    } else {
        "{spinner} {msg} {pos} {elapsed}"
    };
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
}
