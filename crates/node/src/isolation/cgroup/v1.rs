//! Owns cgroups of version 1: one tree per controller, in which a group may hold processes beside its children. The agent
//! is in `s<n>` itself and everything else in `s<n>/work`, so that most controllers need two groups a slot and the one
//! that only counts needs one.

use super::{
    AGENT_MEMORY_BYTES, AGENT_THREADS, CPU_PERIOD_US, Counted, Hierarchy, JoinFiles, SPAWNERS, file,
};
use crate::isolation::Slot;
use cofferdam_core::Resources;
use std::io;
use std::path::{Path, PathBuf};

/// Controllers that limit, each with a group for the slot and one for `work`.
const LIMITING: [&str; 4] = ["cpu", "memory", "pids", "freezer"];
/// The controller that only counts.
const COUNTING: &str = "cpuacct";

#[derive(Debug)]
pub(super) struct Legacy {
    cpu: PathBuf,
    memory: PathBuf,
    pids: PathBuf,
    freezer: PathBuf,
    cpuacct: PathBuf,
    name: String,
    has_swap_limit: bool,
}

fn root<'a>(mounts: &'a [(PathBuf, Vec<String>)], controller: &str) -> io::Result<&'a Path> {
    let mount = mounts.iter().find(|(_, options)| options.iter().any(|option| option == controller));
    let missing =
        || io::Error::new(io::ErrorKind::Unsupported, format!("no cgroup controller `{controller}`"));
    mount.map(|(root, _)| root.as_path()).ok_or_else(missing)
}

/// Whether every controller is there.
pub(super) fn check(mounts: &[(PathBuf, Vec<String>)]) -> io::Result<()> {
    LIMITING.iter().chain([&COUNTING]).try_for_each(|controller| root(mounts, controller).map(drop))
}

impl Legacy {
    pub(super) fn open(mounts: &[(PathBuf, Vec<String>)], name: &str) -> io::Result<Self> {
        let shared = |controller: &str| {
            let shared = root(mounts, controller)?.join(name);
            file::make(&shared)?;
            Ok::<_, io::Error>(shared)
        };
        let [cpu, memory, pids, freezer] = LIMITING.map(shared);
        let memory = memory?;
        let has_swap_limit = memory.join("memory.memsw.limit_in_bytes").exists();
        Ok(Self {
            cpu: cpu?,
            memory,
            pids: pids?,
            freezer: freezer?,
            cpuacct: shared(COUNTING)?,
            name: name.to_owned(),
            has_swap_limit,
        })
    }

    fn limiting(&self) -> [&Path; 4] {
        [&self.cpu, &self.memory, &self.pids, &self.freezer]
    }

    /// Every directory that is shared by all slots, each once: `cpu` and `cpuacct` are one tree on many hosts.
    fn shared(&self) -> Vec<&Path> {
        let mut all = self.limiting().to_vec();
        all.push(&self.cpuacct);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The two limits must never cross: with swap may not be below without.
    fn limit_memory(&self, group: &Path, bytes: u64) -> io::Result<()> {
        let (plain, swap) = (group.join("memory.limit_in_bytes"), group.join("memory.memsw.limit_in_bytes"));
        if !self.has_swap_limit {
            return file::write(&plain, bytes);
        }
        if file::read_number(&swap)? >= bytes {
            file::write(&plain, bytes)?;
            file::write(&swap, bytes)
        } else {
            file::write(&swap, bytes)?;
            file::write(&plain, bytes)
        }
    }
}

fn work(shared: &Path, slot: Slot) -> PathBuf {
    shared.join(slot.name()).join("work")
}

impl Hierarchy for Legacy {
    fn version(&self) -> &'static str {
        "v1"
    }

    fn create(&self, slot: Slot) -> io::Result<()> {
        for shared in self.shared() {
            file::make(&shared.join(slot.name()))?;
        }
        for shared in self.limiting() {
            file::make(&work(shared, slot))?;
        }
        Ok(())
    }

    fn join_files(&self, slot: Slot) -> io::Result<JoinFiles> {
        let name = slot.name();
        let agent = self
            .shared()
            .iter()
            .map(|shared| file::open_join(&shared.join(&name)))
            .collect::<Result<_, _>>()?;
        let work = self
            .limiting()
            .iter()
            .map(|shared| file::open_join(&work(shared, slot)))
            .collect::<Result<_, _>>()?;
        Ok(JoinFiles { agent, work })
    }

    fn limit(&self, slot: Slot, resources: &Resources) -> io::Result<()> {
        let memory = u64::from(resources.memory_mib) << 20;
        let cpu = u64::from(resources.cpu_millis);
        let processes = u64::from(resources.processes) + SPAWNERS;
        self.limit_memory(&work(&self.memory, slot), memory)?;
        self.limit_memory(&self.memory.join(slot.name()), memory + AGENT_MEMORY_BYTES)?;
        file::write(&work(&self.cpu, slot).join("cpu.cfs_quota_us"), cpu * CPU_PERIOD_US / 1000)?;
        let shares = (cpu * 1024 / 1000).clamp(2, 262_144);
        file::write(&self.cpu.join(slot.name()).join("cpu.shares"), shares)?;
        file::write(&work(&self.pids, slot).join("pids.max"), processes)?;
        file::write(&self.pids.join(slot.name()).join("pids.max"), processes + AGENT_THREADS)
    }

    fn counted(&self, slot: Slot) -> io::Result<Counted> {
        let name = slot.name();
        let memory = self.memory.join(&name);
        let [inactive, active] =
            file::read_keys(&memory.join("memory.stat"), ["total_inactive_file", "total_active_file"])?;
        let cache = inactive + active;
        let [oom_kills] =
            file::read_keys(&work(&self.memory, slot).join("memory.oom_control"), ["oom_kill"])?;
        let [refusals] = file::read_keys(&work(&self.pids, slot).join("pids.events"), ["max"])?;
        let processes = file::read_number(&work(&self.pids, slot).join("pids.current"))?;
        Ok(Counted {
            cpu_us: file::read_number(&self.cpuacct.join(&name).join("cpuacct.usage"))? / 1000,
            memory_used: file::read_number(&memory.join("memory.usage_in_bytes"))?.saturating_sub(cache),
            memory_cache: cache,
            memory_peak: file::read_number(&memory.join("memory.max_usage_in_bytes"))?,
            processes: processes.saturating_sub(SPAWNERS),
            oom_kills,
            process_refusals: refusals,
        })
    }

    fn holds(&self, slot: Slot, proc_cgroup: &str) -> bool {
        let group = format!("/{}/{}", self.name, slot.name());
        let is_ours =
            |path: &str| path.strip_prefix(&group).is_some_and(|rest| rest.is_empty() || rest == "/work");
        proc_cgroup.lines().any(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next().unwrap_or_default();
            controllers.split(',').any(|c| c == "pids") && parts.next().is_some_and(is_ours)
        })
    }

    fn set_frozen(&self, slot: Slot, frozen: bool) -> io::Result<()> {
        let state = if frozen { "FROZEN" } else { "THAWED" };
        file::write(&work(&self.freezer, slot).join("freezer.state"), state)
    }

    fn is_frozen(&self, slot: Slot) -> io::Result<bool> {
        let state = std::fs::read_to_string(work(&self.freezer, slot).join("freezer.state"))?;
        Ok(state.trim() == "FROZEN")
    }

    fn release(&self, slot: Slot) -> io::Result<()> {
        match self.set_frozen(slot, false) {
            Err(error) if file::is_missing(&error) => Ok(()),
            other => other,
        }
    }

    fn processes(&self, slot: Slot) -> io::Result<Vec<u32>> {
        let mut pids = Vec::new();
        for shared in self.shared() {
            file::read_processes(&shared.join(slot.name()), &mut pids)?;
            file::read_processes(&work(shared, slot), &mut pids)?;
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    fn remove(&self, slot: Slot) -> io::Result<()> {
        for shared in self.shared() {
            file::remove(&work(shared, slot))?;
            file::remove(&shared.join(slot.name()))?;
        }
        Ok(())
    }

    fn slots(&self) -> io::Result<Vec<Slot>> {
        let mut found = Vec::new();
        for shared in self.shared() {
            file::slots(shared, &mut found)?;
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    fn remove_shared(&self) {
        for shared in self.shared() {
            if let Err(error) = file::remove(shared) {
                tracing::debug!(%error, "cgroups stay");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_by_its_group_and_not_by_a_group_with_a_longer_name() {
        let legacy = Legacy {
            cpu: PathBuf::new(),
            memory: PathBuf::new(),
            pids: PathBuf::new(),
            freezer: PathBuf::new(),
            cpuacct: PathBuf::new(),
            name: "cofferdam-ab".into(),
            has_swap_limit: false,
        };
        let slot = Slot::new(1).unwrap();
        let text =
            |group: &str| format!("9:name=systemd:/\n8:pids:{group}\n4:memory:/cofferdam-ab/s1\n0::/\n");
        assert!(legacy.holds(slot, &text("/cofferdam-ab/s1/work")));
        assert!(legacy.holds(slot, &text("/cofferdam-ab/s1")));
        for group in ["/cofferdam-ab/s12", "/cofferdam-abc/s1", "/x/cofferdam-ab/s1", "/"] {
            assert!(!legacy.holds(slot, &text(group)), "{group}");
        }
    }
}
