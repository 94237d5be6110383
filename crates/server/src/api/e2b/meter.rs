//! Owns the figures of a running sandbox in the units of this surface.

use crate::app::{Agent, AppError};
use cofferdam_core::Timestamp;
use std::time::Duration;

/// Time between the two readings that a CPU share is made of.
const CPU_WINDOW: Duration = Duration::from_millis(100);
const MIB: u64 = 1024 * 1024;

/// What a sandbox uses and may use.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at: Timestamp,
    /// Virtual CPUs, at least one.
    pub(crate) cpu_count: u32,
    /// 0 to 100 over all of them, two decimals.
    pub(crate) cpu_used_pct: f64,
    pub(crate) mem_total: u64,
    pub(crate) mem_used: u64,
    pub(crate) mem_cache: u64,
    pub(crate) disk_used: u64,
    pub(crate) disk_total: u64,
}

/// Measures. Takes a moment, because a CPU share needs two readings.
pub(crate) async fn sample(agent: &Agent) -> Result<Sample, AppError> {
    let first = agent.usage().await?;
    let ended = agent.sandbox().ended();
    if tokio::time::timeout(CPU_WINDOW, ended.cancelled()).await.is_ok() {
        return Err(AppError::SandboxNotFound(agent.sandbox().id.to_string()));
    }
    let last = agent.usage().await?;
    let resources = agent.sandbox().resources;
    Ok(Sample {
        at: last.at,
        cpu_count: cpu_count(resources.cpu_millis),
        cpu_used_pct: cpu_share(
            last.cpu_us.saturating_sub(first.cpu_us),
            last.at.as_micros() - first.at.as_micros(),
            resources.cpu_millis,
        ),
        mem_total: u64::from(resources.memory_mib) * MIB,
        mem_used: last.memory_used,
        mem_cache: last.memory_cache,
        disk_used: last.disk_used,
        disk_total: u64::from(resources.disk_mib) * MIB,
    })
}

/// Whole CPUs for clients that know no fractions.
pub(crate) fn cpu_count(cpu_millis: u32) -> u32 {
    cpu_millis.div_ceil(1000).max(1)
}

#[expect(clippy::cast_precision_loss, reason = "a share with two decimals needs no more than 52 bits")]
fn cpu_share(used_us: u64, span_us: i64, cpu_millis: u32) -> f64 {
    let available = (span_us.max(1) as f64) * f64::from(cpu_millis) / 1000.0;
    let percent = (used_us as f64 / available * 100.0).clamp(0.0, 100.0);
    (percent * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_what_the_sandbox_may_use() {
        assert_eq!(cpu_share(50_000, 100_000, 1000), 50.0);
        assert_eq!(cpu_share(50_000, 100_000, 2000), 25.0);
        assert_eq!(cpu_share(500_000, 100_000, 1000), 100.0);
        assert_eq!(cpu_share(1, 0, 1000), 100.0);
    }

    #[test]
    fn fractions_of_a_cpu_count_as_one() {
        assert_eq!((cpu_count(50), cpu_count(1000), cpu_count(1001)), (1, 1, 2));
    }
}
