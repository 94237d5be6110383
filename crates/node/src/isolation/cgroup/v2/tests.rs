//! Runs the driver of version 2 against a tree of plain files with the content that a real kernel showed.

use super::*;
use expect_test::expect;
use std::fs;

/// Files of one slot as a kernel 6.1 shows them after some work; what is written lands in the same files.
const RECORDED: &[(&str, &str)] = &[
    ("cpu.weight", "100\n"),
    ("cpu.stat", "usage_usec 2345678\nuser_usec 2000000\nsystem_usec 345678\nnr_periods 7\n"),
    ("memory.max", "max\n"),
    ("memory.swap.max", "max\n"),
    ("memory.current", "52428800\n"),
    ("memory.peak", "73400320\n"),
    ("memory.stat", "anon 20971520\nfile 31457280\ninactive_file 20971520\nactive_file 1048576\n"),
    ("memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\noom_group_kill 0\n"),
    ("cgroup.kill", ""),
    ("agent/cgroup.procs", "100\n"),
    ("agent/cpu.weight", "100\n"),
    ("agent/pids.max", "max\n"),
    ("work/cgroup.procs", "101\n102\n0\n"),
    ("work/cgroup.freeze", "0\n"),
    ("work/cgroup.events", "populated 1\nfrozen 1\n"),
    ("work/cpu.max", "max 100000\n"),
    ("work/memory.max", "max\n"),
    ("work/pids.max", "max\n"),
    ("work/pids.current", "4\n"),
    ("work/pids.events", "max 9\n"),
];

struct Tree {
    root: tempfile::TempDir,
    unified: Unified,
    slot: Slot,
}

impl Tree {
    fn recorded() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.subtree_control"), "").unwrap();
        let shared = root.path().join("cofferdam-t");
        let slot = Slot::new(3).unwrap();
        for directory in ["s3/agent", "s3/work"] {
            fs::create_dir_all(shared.join(directory)).unwrap();
        }
        for directory in [shared.clone(), shared.join("s3")] {
            fs::write(directory.join("cgroup.subtree_control"), "").unwrap();
        }
        for (name, content) in RECORDED {
            fs::write(shared.join("s3").join(name), content).unwrap();
        }
        let unified = Unified::open(root.path(), "cofferdam-t").unwrap();
        Self { root, unified, slot }
    }

    /// The files that differ from the record, as `name = content`.
    fn written(&self) -> String {
        let read =
            |name: &str| fs::read_to_string(self.root.path().join("cofferdam-t/s3").join(name)).unwrap();
        let changed =
            RECORDED.iter().map(|(name, was)| (name, was, read(name))).filter(|(_, was, is)| is != *was);
        changed
            .map(|(name, _, is)| format!("{name} = {}\n", is.trim_end().lines().next().unwrap_or("")))
            .collect()
    }
}

#[test]
fn limits_go_to_the_group_that_each_is_for() {
    let tree = Tree::recorded();
    let resources =
        Resources { cpu_millis: 1500, memory_mib: 512, disk_mib: 1, processes: 100, open_files: 64 };
    tree.unified.limit(tree.slot, &resources).unwrap();
    expect![[r#"
        cpu.weight = 150
        memory.max = 637534208
        memory.swap.max = 0ax
        agent/pids.max = 2560
        work/cpu.max = 150000 100000
        work/memory.max = 536870912
        work/pids.max = 101
    "#]]
    .assert_eq(&tree.written());
}

#[test]
fn controllers_are_enabled_on_the_way_down() {
    let tree = Tree::recorded();
    tree.unified.create(tree.slot).unwrap();
    for directory in ["", "cofferdam-t", "cofferdam-t/s3"] {
        let path = tree.root.path().join(directory).join("cgroup.subtree_control");
        assert_eq!(fs::read_to_string(path).unwrap(), ENABLE, "{directory}");
    }
}

#[test]
fn what_the_kernel_counted_is_read() {
    let tree = Tree::recorded();
    expect![[r#"
        Counted {
            cpu_us: 2345678,
            memory_used: 30408704,
            memory_cache: 22020096,
            memory_peak: 73400320,
            processes: 3,
            oom_kills: 2,
            process_refusals: 9,
        }
    "#]]
    .assert_debug_eq(&tree.unified.counted(tree.slot).unwrap());
}

#[test]
fn processes_of_both_groups_are_found_and_unseen_ones_left_out() {
    let tree = Tree::recorded();
    assert_eq!(tree.unified.processes(tree.slot).unwrap(), [100, 101, 102]);
    assert!(tree.unified.processes(Slot::new(4).unwrap()).unwrap().is_empty());
    assert_eq!(tree.unified.slots().unwrap(), [tree.slot]);
}

#[test]
fn freezing_and_killing_are_one_write_each() {
    let tree = Tree::recorded();
    tree.unified.set_frozen(tree.slot, true).unwrap();
    tree.unified.release(tree.slot).unwrap();
    assert!(tree.unified.is_frozen(tree.slot).unwrap());
    expect![[r#"
        cgroup.kill = 1
        work/cgroup.freeze = 1
    "#]]
    .assert_eq(&tree.written());
}

#[test]
fn a_slot_without_groups_is_released_and_removed_already() {
    let tree = Tree::recorded();
    let other = Slot::new(9).unwrap();
    tree.unified.release(other).unwrap();
    tree.unified.remove(other).unwrap();
}

#[test]
fn a_process_is_told_by_its_group() {
    let tree = Tree::recorded();
    assert!(tree.unified.holds(tree.slot, "0::/cofferdam-t/s3/work\n"));
    assert!(tree.unified.holds(tree.slot, "0::/cofferdam-t/s3/agent\n"));
    for group in ["0::/cofferdam-t/s33/work", "0::/cofferdam-t/s3", "0::/", "1:pids:/cofferdam-t/s3/work"] {
        assert!(!tree.unified.holds(tree.slot, group), "{group}");
    }
}
