//! From park to fill, adoption, and what changes on a running sandbox.

use crate::Test;
use crate::host::{Host, ping, probe, small, start_waiting};
use cofferdam_core::Resources;
use cofferdam_node::isolation::{AdoptError, Driver, Fill, ProcessIdentity, Slot};
use cofferdam_sys::pidfd;
use std::os::unix::fs::symlink;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("a_running_sandbox_is_adopted_and_no_other_process_is", adoption),
    ("the_host_name_is_set_from_outside", hostname),
    ("a_frozen_sandbox_stands_still_and_its_agent_answers", freezing),
    ("a_template_that_lies_about_its_directories_is_refused", lying_template),
    ("mount_points_that_a_template_lacks_are_made", lacking_template),
    ("a_missing_template_is_an_error_and_the_slot_can_be_used_again", missing_template),
    ("a_template_is_never_changed", template_stays),
    ("a_launcher_that_dies_takes_no_sandbox_with_it", launcher_dies),
];

fn adoption(host: &Host) {
    let live = host.make(1);
    let identity = live.identity().clone();
    drop(live);
    let slot = Slot::new(1).unwrap();
    ping(&host.driver.adopt(slot, &identity).unwrap());
    let later = ProcessIdentity { start_ticks: identity.start_ticks + 1, ..identity.clone() };
    assert!(matches!(host.driver.adopt(slot, &later), Err(AdoptError::Gone { .. })));
    let rebooted = ProcessIdentity { boot_id: "x".into(), ..identity.clone() };
    assert!(matches!(host.driver.adopt(slot, &rebooted), Err(AdoptError::Gone { .. })));
    let pid = std::process::id();
    let ours = ProcessIdentity { pid, start_ticks: pidfd::start_ticks(pid).unwrap(), ..identity.clone() };
    assert!(matches!(host.driver.adopt(slot, &ours), Err(AdoptError::Stranger { .. })));
    assert!(matches!(host.driver.adopt(Slot::new(2).unwrap(), &identity), Err(AdoptError::Stranger { .. })));
    host.destroy(1);
    assert!(matches!(host.driver.adopt(slot, &identity), Err(AdoptError::Gone { .. })));
}

fn hostname(host: &Host) {
    let live = host.make(1);
    assert_eq!(probe(&live, "user", &["cat", "/proc/sys/kernel/hostname"]).output, "sandbox\n");
    host.driver.set_hostname(&live, "blue").unwrap();
    assert_eq!(probe(&live, "user", &["cat", "/proc/sys/kernel/hostname"]).output, "blue\n");
    assert_ne!(std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap(), "blue\n");
}

fn freezing(host: &Host) {
    let live = host.make(1);
    let _waiting = start_waiting(&live);
    host.wait(host.driver.freeze(&live)).unwrap();
    ping(&live);
    host.driver.thaw(&live).unwrap();
    assert_eq!(probe(&live, "user", &["uid"]).output, "1000");
}

fn lying_template(host: &Host) {
    for name in ["dev", "proc", "sys"] {
        let root = host.template().with_file_name("liar");
        std::fs::create_dir(&root).unwrap();
        symlink("/", root.join(name)).unwrap();
        let fill = Fill { template_root: root.clone(), resources: small() };
        let error = host.try_make(1, fill).unwrap_err();
        assert!(error.to_string().contains("find a mount point in the template"), "{name}: {error}");
        host.destroy(1);
        std::fs::remove_dir_all(root).unwrap();
    }
}

fn lacking_template(host: &Host) {
    let live = host.make(1);
    for path in ["/tmp/x", "/dev/shm/x"] {
        assert_eq!(probe(&live, "user", &["write", path]).output, "write: ok\n", "{path}");
    }
}

fn missing_template(host: &Host) {
    let fill = Fill { template_root: "nowhere".into(), resources: small() };
    assert!(!host.try_make(1, fill).unwrap_err().is_lost());
    host.destroy(1);
    ping(&host.make(1));
}

fn template_stays(host: &Host) {
    let live = host.make(1);
    assert_eq!(probe(&live, "root", &["write", "/etc/passwd"]).output, "write: ok\n");
    assert!(std::fs::read_to_string(host.template().join("etc/passwd")).unwrap().starts_with("root:"));
    let other = host.make(2);
    assert!(probe(&other, "root", &["cat", "/etc/passwd"]).output.starts_with("root:"));
}

fn launcher_dies(host: &Host) {
    let live = host.make(1);
    let parked = host.wait(host.driver.park(Slot::new(2).unwrap())).unwrap();
    let first = host.driver.launcher_pid().unwrap();
    let process = pidfd::open(first).unwrap();
    pidfd::kill(&process).unwrap();
    assert!(pidfd::wait_end(&process, Duration::from_secs(10)).unwrap());
    ping(&live);
    // Calls fail until the next one is there; a parked shell waits for it.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while host.driver.launcher_pid() == Some(first) {
        assert!(std::time::Instant::now() < deadline, "no other launcher came");
        std::thread::yield_now();
    }
    ping(&host.wait(host.driver.fill(parked, host.fill(Resources::default()))).unwrap());
    ping(&host.make(3));
}
