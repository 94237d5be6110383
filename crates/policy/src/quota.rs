//! Owns the quota decision: may a tenant that uses this much have that much more.

use cofferdam_core::Resources;
use std::fmt;

/// What a tenant may have at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Sandboxes that have not ended.
    pub sandboxes_max: u64,
    /// Sum of their CPU shares, in thousandths of a CPU.
    pub cpu_millis_max: u64,
    /// Sum of their memory limits, in MiB.
    pub memory_mib_max: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self { sandboxes_max: 2000, cpu_millis_max: 4_000_000, memory_mib_max: 4 * 1024 * 1024 }
    }
}

/// What a tenant has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InUse {
    /// Sandboxes that have not ended.
    pub sandboxes: u64,
    /// Sum of their CPU shares, in thousandths of a CPU.
    pub cpu_millis: u64,
    /// Sum of their memory limits, in MiB.
    pub memory_mib: u64,
}

/// Proof that [`admit`] said yes; whoever inserts the sandbox demands it.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub struct Admitted {
    /// What is in use once the sandbox exists.
    pub after: InUse,
}

/// Which number of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaKind {
    /// Number of sandboxes.
    Sandboxes,
    /// CPU, in thousandths.
    CpuMillis,
    /// Memory, in MiB.
    MemoryMib,
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandboxes => "number of sandboxes",
            Self::CpuMillis => "CPU (thousandths)",
            Self::MemoryMib => "memory (MiB)",
        })
    }
}

/// The quota does not leave room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("quota reached: {kind}: {requested} more would exceed {configured}, {in_use} in use")]
pub struct QuotaExceeded {
    /// Which number.
    pub kind: QuotaKind,
    /// What the quota allows.
    pub configured: u64,
    /// What is in use.
    pub in_use: u64,
    /// What was asked for on top.
    pub requested: u64,
}

/// Decides whether a sandbox with these limits fits.
pub fn admit(in_use: InUse, request: &Resources, quota: &Quota) -> Result<Admitted, QuotaExceeded> {
    let fits = |kind, in_use: u64, requested: u64, configured: u64| {
        let after = in_use.checked_add(requested).filter(|after| *after <= configured);
        after.ok_or(QuotaExceeded { kind, configured, in_use, requested })
    };
    let cpu = u64::from(request.cpu_millis);
    let memory = u64::from(request.memory_mib);
    let after = InUse {
        sandboxes: fits(QuotaKind::Sandboxes, in_use.sandboxes, 1, quota.sandboxes_max)?,
        cpu_millis: fits(QuotaKind::CpuMillis, in_use.cpu_millis, cpu, quota.cpu_millis_max)?,
        memory_mib: fits(QuotaKind::MemoryMib, in_use.memory_mib, memory, quota.memory_mib_max)?,
    };
    Ok(Admitted { after })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const QUOTA: Quota = Quota { sandboxes_max: 2, cpu_millis_max: 4000, memory_mib_max: 1024 };

    #[track_caller]
    fn check(in_use: (u64, u64, u64), expected: Result<(), QuotaKind>) {
        let in_use = InUse { sandboxes: in_use.0, cpu_millis: in_use.1, memory_mib: in_use.2 };
        let verdict = admit(in_use, &Resources::default(), &QUOTA);
        assert_eq!(verdict.map(|_| ()).map_err(|e| e.kind), expected);
    }

    #[test]
    fn the_last_place_is_given_and_the_next_is_not() {
        check((1, 2000, 512), Ok(()));
        check((2, 0, 0), Err(QuotaKind::Sandboxes));
        check((1, 2001, 0), Err(QuotaKind::CpuMillis));
        check((1, 0, 513), Err(QuotaKind::MemoryMib));
        check((u64::MAX, 0, 0), Err(QuotaKind::Sandboxes));
    }

    proptest! {
        #[test]
        fn a_larger_quota_never_denies_more(used in 0_u64..20, cpu in 0_u64..9000, small in 0_u64..20, extra in 0_u64..20) {
            let in_use = InUse { sandboxes: used, cpu_millis: cpu, memory_mib: used * 512 };
            let quota = |n: u64| Quota { sandboxes_max: n, cpu_millis_max: n * 1000, memory_mib_max: n * 512 };
            if admit(in_use, &Resources::default(), &quota(small)).is_ok() {
                prop_assert!(admit(in_use, &Resources::default(), &quota(small + extra)).is_ok());
            }
        }

        #[test]
        fn what_is_admitted_stays_within_the_quota(count in 0_usize..10) {
            let mut in_use = InUse::default();
            for _ in 0..count {
                if let Ok(admitted) = admit(in_use, &Resources::default(), &QUOTA) {
                    in_use = admitted.after;
                }
            }
            prop_assert!(in_use.sandboxes <= QUOTA.sandboxes_max);
            prop_assert!(in_use.cpu_millis <= QUOTA.cpu_millis_max);
            prop_assert!(in_use.memory_mib <= QUOTA.memory_mib_max);
        }
    }
}
