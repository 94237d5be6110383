//! Owns how things look: tables for people, JSON for programs, sizes and spans of time in words.

use crate::console::Console;
use crate::error::Error;
use cofferdam_core::Timestamp;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

/// Flag of every verb that prints a table.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Format {
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints a value as JSON.
pub(crate) fn json<T: Serialize>(console: &Console, value: &T) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).expect("answers have string keys");
    console.say(&text)
}

/// Prints rows under a heading; nothing but the heading when there are none.
pub(crate) fn table<const N: usize>(
    console: &Console,
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), Error> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(heading);
    for row in rows {
        table.add_row(row);
    }
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    let text = table.to_string();
    let lines = text.lines().map(str::trim_end).collect::<Vec<_>>();
    console.say(&lines.join("\n"))
}

/// A number of bytes in words.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A number of seconds in words, the two largest units.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// The time now, from the clock of this machine.
pub(crate) fn now() -> Timestamp {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_micros());
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// How long ago an instant was.
pub(crate) fn ago(instant: &str, now: Timestamp) -> String {
    match Timestamp::parse_rfc3339(instant) {
        Ok(at) => format!("{} ago", span(now.millis_since(at) / 1000)),
        Err(_) => instant.to_owned(),
    }
}

/// How far away an instant is.
pub(crate) fn until(instant: &str, now: Timestamp) -> String {
    match Timestamp::parse_rfc3339(instant) {
        Ok(at) if at <= now => "now".to_owned(),
        Ok(at) => format!("in {}", span(at.millis_since(now) / 1000)),
        Err(_) => instant.to_owned(),
    }
}

/// `KEY=VALUE` pairs in one cell.
pub(crate) fn pairs<'a>(pairs: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    let all = pairs.into_iter().map(|(key, value)| format!("{key}={value}"));
    printable(&all.collect::<Vec<_>>().join(" "))
}

/// Text that came from elsewhere, made harmless for a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_in_words() {
        for (count, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536 * 1024, "1.5 MiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(bytes(count), expected);
        }
    }

    #[test]
    fn spans_in_words() {
        for (seconds, expected) in [(0, "0s"), (61, "1m01s"), (3660, "1h01m"), (90_000, "1d01h")] {
            assert_eq!(span(seconds), expected);
        }
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\u{9b}"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
