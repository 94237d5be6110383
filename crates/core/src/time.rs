//! Owns the one representation of an instant: microseconds since the Unix epoch, as clients compare them.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An instant, microsecond exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// A text that is no RFC 3339 instant, or one outside the supported years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid instant: expected RFC 3339 such as 2026-01-02T03:04:05.678901Z")]
pub struct InvalidTimestamp;

impl Timestamp {
    /// The latest instant that is accepted: the end of the year 9999.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// From microseconds since the Unix epoch; clamped to the years 1970 to 9999.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(0, Self::MAX.0))
    }

    /// Microseconds since the Unix epoch.
    pub fn as_micros(self) -> i64 {
        self.0
    }

    /// This instant and `millis` later; saturates at [`Self::MAX`].
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Self {
        let micros = i64::try_from(millis).unwrap_or(i64::MAX).saturating_mul(1000);
        Self::from_micros(self.0.saturating_add(micros))
    }

    /// Milliseconds from `earlier` to this instant; 0 when it is not later.
    pub fn millis_since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0) / 1000).unwrap_or(0)
    }

    /// Parses RFC 3339 with any offset.
    pub fn parse_rfc3339(text: &str) -> Result<Self, InvalidTimestamp> {
        let instant: jiff::Timestamp = text.parse().map_err(|_| InvalidTimestamp)?;
        let micros = instant.as_microsecond();
        if (0..=Self::MAX.0).contains(&micros) { Ok(Self(micros)) } else { Err(InvalidTimestamp) }
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with six digits of fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(instant) => write!(f, "{instant:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses_to_the_microsecond() {
        let at = Timestamp::from_micros(1_767_323_045_678_901);
        assert_eq!(at.to_string(), "2026-01-02T03:04:05.678901Z");
        assert_eq!(Timestamp::parse_rfc3339("2026-01-02T04:04:05.678901+01:00").unwrap(), at);
    }

    #[test]
    fn absurd_spans_saturate() {
        assert_eq!(Timestamp::from_micros(5).plus_millis(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_micros(5).millis_since(Timestamp::MAX), 0);
        assert!(Timestamp::parse_rfc3339("yesterday").is_err());
    }
}
