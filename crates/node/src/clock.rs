//! Owns the reading of the wall clock, so that tests can have their own.

use cofferdam_core::Timestamp;
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time.
pub(crate) trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// The clock of the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}
