//! Each limit holds, and the agent is there afterwards.

use crate::Test;
use crate::host::{Host, ping, probe, small, start};
use cofferdam_core::Resources;
use cofferdam_node::isolation::Driver;

pub(crate) const TESTS: &[Test] = &[
    ("a_memory_bomb_ends_and_the_agent_does_not", memory),
    ("a_fork_bomb_is_refused_and_the_agent_answers", processes),
    ("a_full_disk_is_full_for_its_sandbox_only_and_can_be_tidied", disk),
    ("limits_change_on_a_running_sandbox", change),
    ("use_is_measured", usage),
];

fn memory(host: &Host) {
    let live = host.make(1);
    let ran = probe(&live, "user", &["memory"]);
    assert_eq!(ran.signal, Some(9), "{ran:?}");
    ping(&live);
    assert!(host.driver.usage(&live).unwrap().oom_kills >= 1);
    assert_eq!(probe(&live, "user", &["uid"]).output, "1000");
}

fn processes(host: &Host) {
    let live = host.make(1);
    let _bomb = start(&live, "breed", "fork: EAGAIN\nafter more than 8: true\n");
    ping(&live);
    let usage = host.driver.usage(&live).unwrap();
    assert!(usage.process_refusals >= 1 && usage.processes >= 60, "{usage:?}");
    host.destroy(1);
}

fn disk(host: &Host) {
    let live = host.make(1);
    let output = probe(&live, "user", &["disk"]).output;
    assert!(output.contains("write: EDQUOT\n") || output.contains("write: ENOSPC\n"), "{output}");
    assert!(output.ends_with("remove: ok\n"), "{output}");
    let megabytes: u32 =
        output.lines().find_map(|line| line.strip_prefix("megabytes: ")).unwrap().parse().unwrap();
    assert!((24..=32).contains(&megabytes), "{output}");
    let other = host.make(2);
    assert_eq!(probe(&other, "user", &["write", "/tmp/x"]).output, "write: ok\n");
}

fn change(host: &Host) {
    let live = host.make(1);
    assert_eq!(probe(&live, "user", &["space", "/dev/shm"]).output, format!("{}\n", 32 << 20));
    let larger = Resources { memory_mib: 128, disk_mib: 64, processes: 200, ..small() };
    host.driver.limit(&live, &larger).unwrap();
    assert_eq!(probe(&live, "user", &["space", "/dev/shm"]).output, format!("{}\n", 64 << 20));
    let output = probe(&live, "user", &["disk"]).output;
    let megabytes: u32 =
        output.lines().find_map(|line| line.strip_prefix("megabytes: ")).unwrap().parse().unwrap();
    assert!((50..=64).contains(&megabytes), "{output}");
    host.driver.limit(&live, &small()).unwrap();
    assert_eq!(probe(&live, "user", &["memory"]).signal, Some(9));
    ping(&live);
}

fn usage(host: &Host) {
    let live = host.make(1);
    probe(&live, "user", &["uid"]);
    let usage = host.driver.usage(&live).unwrap();
    assert!(usage.cpu_us > 0 && usage.memory_used > 0 && usage.memory_peak > 0, "{usage:?}");
    assert_eq!((usage.oom_kills, usage.process_refusals, usage.processes), (0, 0, 0));
}
