//! Nothing is left, from whatever state a sandbox is ended in.

use crate::Test;
use crate::host::{Host, probe, start, start_waiting};
use cofferdam_node::isolation::{Driver, Slot};
use cofferdam_sys::pidfd;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("nothing_is_left_of_a_destroyed_sandbox", nothing_is_left),
    ("a_parked_shell_ends_when_it_is_dropped", dropped_shell),
    ("a_slot_that_never_was_is_destroyed_already", empty_slot),
    ("a_frozen_sandbox_is_destroyed", frozen),
    ("a_fork_bomb_is_destroyed_quickly", bomb),
    ("a_half_made_slot_is_destroyed", half_made),
];

/// Everything on this host that has to do with us.
fn inventory() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let instance = format!("cofferdam-test{}", std::process::id());
    for controller in fs::read_dir("/sys/fs/cgroup").unwrap() {
        collect(&controller.unwrap().path().join(&instance), &mut found);
    }
    collect(Path::new("node/data/uppers"), &mut found);
    collect(Path::new("run/s"), &mut found);
    for process in fs::read_dir("/proc").unwrap() {
        let path = process.unwrap().path().join("cgroup");
        let text = fs::read_to_string(&path).unwrap_or_default();
        if text.contains(&instance) {
            found.insert(path.display().to_string());
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(mounts.lines().map(str::to_owned));
    found
}

fn collect(directory: &Path, found: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.insert(entry.path().display().to_string());
            collect(&entry.path(), found);
        }
    }
}

#[track_caller]
fn check_nothing_left(before: &BTreeSet<String>) {
    let after = inventory();
    let left: Vec<_> = after.difference(before).collect();
    assert!(left.is_empty(), "{left:#?}");
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn nothing_is_left(host: &Host) {
    host.make(1);
    host.destroy(1);
    let (before, descriptors) = (inventory(), open_descriptors());
    for _ in 0..5 {
        let live = host.make(1);
        let waiting = start_waiting(&live);
        probe(&live, "root", &["write", "/x"]);
        let process = pidfd::open(live.identity().pid).unwrap();
        host.destroy(1);
        assert!(pidfd::wait_end(&process, Duration::ZERO).unwrap());
        drop(waiting);
    }
    check_nothing_left(&before);
    assert_eq!(open_descriptors(), descriptors);
    let launcher = host.driver.launcher_pid().unwrap();
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap();
    assert_eq!(children, "");
    let held = fs::read_dir(format!("/proc/{launcher}/fd")).unwrap();
    let held: Vec<_> = held.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).collect();
    assert!(held.len() <= 6, "the launcher keeps {held:?}");
}

fn dropped_shell(host: &Host) {
    let parked = host.wait(host.driver.park(Slot::new(1).unwrap())).unwrap();
    let process = pidfd::open(parked.identity().pid).unwrap();
    drop(parked);
    assert!(pidfd::wait_end(&process, Duration::from_secs(10)).unwrap());
    host.destroy(1);
}

fn empty_slot(host: &Host) {
    let before = inventory();
    host.destroy(77);
    host.destroy(77);
    check_nothing_left(&before);
}

fn frozen(host: &Host) {
    let before = inventory();
    let live = host.make(1);
    let _waiting = start_waiting(&live);
    host.wait(host.driver.freeze(&live)).unwrap();
    host.destroy(1);
    check_nothing_left(&before);
}

fn bomb(host: &Host) {
    let before = inventory();
    let live = host.make(1);
    let _bomb = start(&live, "breed", "fork: EAGAIN\nafter more than 8: true\n");
    let start = Instant::now();
    host.destroy(1);
    // Not a measurement: ten times what a client may wait, on a host that may be busy.
    assert!(start.elapsed() < Duration::from_secs(20));
    check_nothing_left(&before);
}

fn half_made(host: &Host) {
    let before = inventory();
    let parked = host.wait(host.driver.park(Slot::new(1).unwrap())).unwrap();
    host.destroy(1);
    drop(parked);
    check_nothing_left(&before);
    // A crash between two steps: the groups exist, the disk does not, and the reverse.
    let live = host.make(2);
    fs::remove_dir_all("run/s/2").unwrap();
    drop(live);
    host.destroy(2);
    check_nothing_left(&before);
}
