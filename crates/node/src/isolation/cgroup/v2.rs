//! Owns cgroups of version 2: one tree, in which only leaves hold processes: `s<n>/agent` and `s<n>/work`.

use super::{
    AGENT_MEMORY_BYTES, AGENT_THREADS, CPU_PERIOD_US, Counted, Hierarchy, JoinFiles, SPAWNERS, file,
};
use crate::isolation::Slot;
use cofferdam_core::Resources;
use std::io;
use std::path::{Path, PathBuf};

/// Controllers without which a sandbox would have no limits.
pub(super) const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
const ENABLE: &str = "+cpu +memory +pids";
/// The agent is heard while `work` burns all it has: ten times the default weight.
const AGENT_WEIGHT: u64 = 1000;

#[derive(Debug)]
pub(super) struct Unified {
    shared: PathBuf,
    name: String,
}

impl Unified {
    pub(super) fn open(root: &Path, name: &str) -> io::Result<Self> {
        file::write(&root.join("cgroup.subtree_control"), ENABLE)?;
        let shared = root.join(name);
        file::make(&shared)?;
        file::write(&shared.join("cgroup.subtree_control"), ENABLE)?;
        Ok(Self { shared, name: name.to_owned() })
    }

    fn slot(&self, slot: Slot) -> PathBuf {
        self.shared.join(slot.name())
    }
}

/// Weights have no unit; a whole CPU is the default weight.
fn weight(cpu_millis: u32) -> u64 {
    (u64::from(cpu_millis) / 10).clamp(1, 10_000)
}

impl Hierarchy for Unified {
    fn version(&self) -> &'static str {
        "v2"
    }

    fn create(&self, slot: Slot) -> io::Result<()> {
        let group = self.slot(slot);
        file::make(&group)?;
        file::write(&group.join("cgroup.subtree_control"), ENABLE)?;
        file::make(&group.join("agent"))?;
        file::make(&group.join("work"))?;
        file::write(&group.join("agent/cpu.weight"), AGENT_WEIGHT)
    }

    fn join_files(&self, slot: Slot) -> io::Result<JoinFiles> {
        let group = self.slot(slot);
        let agent = vec![file::open_join(&group.join("agent"))?];
        let work = vec![file::open_join(&group.join("work"))?];
        Ok(JoinFiles { agent, work })
    }

    fn limit(&self, slot: Slot, resources: &Resources) -> io::Result<()> {
        let group = self.slot(slot);
        let memory = u64::from(resources.memory_mib) << 20;
        let quota = u64::from(resources.cpu_millis) * CPU_PERIOD_US / 1000;
        file::write(&group.join("work/memory.max"), memory)?;
        file::write(&group.join("memory.max"), memory + AGENT_MEMORY_BYTES)?;
        match file::write(&group.join("memory.swap.max"), 0) {
            // A kernel without swap accounting has no swap to limit.
            Err(error) if file::is_missing(&error) => {}
            other => other?,
        }
        file::write(&group.join("work/cpu.max"), format!("{quota} {CPU_PERIOD_US}"))?;
        file::write(&group.join("cpu.weight"), weight(resources.cpu_millis))?;
        file::write(&group.join("agent/pids.max"), AGENT_THREADS)?;
        file::write(&group.join("work/pids.max"), u64::from(resources.processes) + SPAWNERS)
    }

    fn counted(&self, slot: Slot) -> io::Result<Counted> {
        let group = self.slot(slot);
        let [inactive, active] =
            file::read_keys(&group.join("memory.stat"), ["inactive_file", "active_file"])?;
        let cache = inactive + active;
        let [cpu_us] = file::read_keys(&group.join("cpu.stat"), ["usage_usec"])?;
        let [oom_kills] = file::read_keys(&group.join("memory.events"), ["oom_kill"])?;
        let [refusals] = file::read_keys(&group.join("work/pids.events"), ["max"])?;
        let current = file::read_number(&group.join("memory.current"))?;
        let peak = match file::read_number(&group.join("memory.peak")) {
            Err(error) if file::is_missing(&error) => current,
            other => other?,
        };
        Ok(Counted {
            cpu_us,
            memory_used: current.saturating_sub(cache),
            memory_cache: cache,
            memory_peak: peak,
            processes: file::read_number(&group.join("work/pids.current"))?.saturating_sub(SPAWNERS),
            oom_kills,
            process_refusals: refusals,
        })
    }

    fn holds(&self, slot: Slot, proc_cgroup: &str) -> bool {
        let group = format!("/{}/{}", self.name, slot.name());
        let unified = proc_cgroup.lines().find_map(|line| line.strip_prefix("0::"));
        unified
            .and_then(|path| path.strip_prefix(&group))
            .is_some_and(|rest| rest == "/agent" || rest == "/work")
    }

    fn set_frozen(&self, slot: Slot, frozen: bool) -> io::Result<()> {
        file::write(&self.slot(slot).join("work/cgroup.freeze"), u8::from(frozen))
    }

    fn is_frozen(&self, slot: Slot) -> io::Result<bool> {
        let [frozen] = file::read_keys(&self.slot(slot).join("work/cgroup.events"), ["frozen"])?;
        Ok(frozen == 1)
    }

    fn release(&self, slot: Slot) -> io::Result<()> {
        match file::write(&self.slot(slot).join("cgroup.kill"), 1) {
            // No group, or a kernel before 5.14: then each process is killed, and the freezer lets it die.
            Err(error) if file::is_missing(&error) => Ok(()),
            other => other,
        }
    }

    fn processes(&self, slot: Slot) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        file::read_processes(&self.slot(slot).join("agent"), &mut pids)?;
        file::read_processes(&self.slot(slot).join("work"), &mut pids)?;
        Ok(pids)
    }

    fn remove(&self, slot: Slot) -> io::Result<()> {
        let group = self.slot(slot);
        file::remove(&group.join("work"))?;
        file::remove(&group.join("agent"))?;
        file::remove(&group)
    }

    fn slots(&self) -> io::Result<Vec<Slot>> {
        let mut found = Vec::new();
        file::slots(&self.shared, &mut found)?;
        found.sort_unstable();
        Ok(found)
    }

    fn remove_shared(&self) {
        if let Err(error) = file::remove(&self.shared) {
            tracing::debug!(%error, "cgroups stay");
        }
    }
}

#[cfg(test)]
mod tests;
