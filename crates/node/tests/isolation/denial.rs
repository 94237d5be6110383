//! What a sandbox cannot do, and beside it what it can.

use crate::Test;
use crate::host::{Host, ping, probe};
use expect_test::expect;

pub(crate) const TESTS: &[Test] = &[
    ("calls_that_reach_the_kernel_or_the_host_are_denied", calls_are_denied),
    ("what_the_kernel_shows_of_the_host_is_hidden_or_read_only", files_are_hidden),
    ("ordinary_programs_work", ordinary_programs_work),
    ("root_works_inside", root_works),
    ("a_process_starts_with_nothing_it_was_not_given", nothing_is_inherited),
    ("no_mount_of_the_host_is_visible", mounts_are_ours),
    ("sandboxes_do_not_see_each_other", sandboxes_are_apart),
];

fn calls_are_denied(host: &Host) {
    let live = host.make(1);
    let denied = ["EPERM", "ENOSYS", "EPROTONOSUPPORT"];
    let as_root = probe(&live, "root", &["calls"]).output;
    let as_user = probe(&live, "user", &["calls"]).output;
    for (who, output) in [("root", &as_root), ("user", &as_user)] {
        assert!(output.lines().count() > 60, "{who}: {output}");
        for line in output.lines() {
            let (_, result) = line.split_once(": ").unwrap();
            assert!(denied.contains(&result), "{who}: {line}");
        }
    }
    let others: String =
        as_root.lines().filter(|line| !line.ends_with("EPERM")).flat_map(|l| [l, "\n"]).collect();
    expect![[r#"
        clone3: ENOSYS
        io_uring_setup: ENOSYS
        io_uring_enter: ENOSYS
        memfd_secret: ENOSYS
        socket netlink audit: EPROTONOSUPPORT
        socket sctp: EPROTONOSUPPORT
        statmount: ENOSYS
        call from the future: ENOSYS
        x32 getpid: ENOSYS
    "#]]
    .assert_eq(&others);
    ping(&live);
}

fn files_are_hidden(host: &Host) {
    let live = host.make(1);
    expect![[r#"
        write /proc/sys/kernel/hostname: EACCES
        write /proc/sys/vm/overcommit_memory: EACCES
        write /proc/sysrq-trigger: ENOENT
        write /sys/power/state: EACCES
        make a directory in /sys: EROFS
        read /proc/1/environ: EACCES
        read /proc/1/mem: EACCES
        list /proc/1/fd: EACCES
        list /proc/1/root: EACCES
        read /proc/2/mem: EACCES
        execute the agent's program: EACCES
        lower the spawner's chance to live: EACCES
        /proc/kcore: 0 bytes
        /proc/keys: 0 bytes
        /proc/timer_list: 0 bytes
        /proc/kallsyms: 0 bytes
        /sys/firmware: 0 entries
        /sys/fs: 0 entries
        /sys/kernel: 0 entries
        make a character device: EACCES
        make a block device: EACCES
        sethostname: EPERM
    "#]]
    .assert_eq(&probe(&live, "root", &["files"]).output);
    ping(&live);
}

fn ordinary_programs_work(host: &Host) {
    let live = host.make(1);
    for user in ["user", "root"] {
        let output = probe(&live, user, &["allowed"]).output;
        assert!(output.lines().count() > 15, "{output}");
        for line in output.lines().filter(|line| !line.ends_with(": ok")) {
            // The second user finds what the first has made.
            assert!(user == "root" && line.contains("exists"), "{user}: {line}");
        }
    }
}

fn root_works(host: &Host) {
    let live = host.make(1);
    expect![[r#"
        chown: ok
        chmod set-id: ok
        setresuid: ok
        uid of a set-id program: 0
    "#]]
    .assert_eq(&probe(&live, "root", &["root"]).output);
    // Outside, none of it is root's: not the process, and only by its plain number the file.
    let status = std::fs::read_to_string(format!("/proc/{}/status", live.identity().pid)).unwrap();
    let uids = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    let base = live.slot().uid_base().to_string();
    assert!(uids.split_ascii_whitespace().skip(1).all(|uid| uid == base), "{uids}");
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata("node/data/uppers/s1/u/tmp").unwrap().uid(), 7);
}

fn nothing_is_inherited(host: &Host) {
    let live = host.make(1);
    expect![[r#"
        descriptors: []
        terminal: false
        CapInh:	0000000000000000
        CapPrm:	00000000800405fb
        CapEff:	00000000800405fb
        CapBnd:	00000000800405fb
        CapAmb:	0000000000000000
        Seccomp:	2
        true
    "#]]
    .assert_eq(&probe(&live, "root", &["self"]).output);
    // Nothing of the host's environment: only what keeps the agent's own memory small, which the C library cuts in place.
    let environment = std::fs::read(format!("/proc/{}/environ", live.identity().pid)).unwrap();
    let small = cofferdam_sys::itself::SMALL.to_bytes_with_nul();
    assert_eq!(
        environment,
        small.iter().map(|byte| if *byte == b':' { 0 } else { *byte }).collect::<Vec<_>>()
    );
}

fn mounts_are_ours(host: &Host) {
    let live = host.make(1);
    let output = probe(&live, "user", &["mounts"]).output;
    let mut kinds: Vec<String> = Vec::new();
    for line in output.lines() {
        let (front, back) = line.split_once(" - ").unwrap();
        let (point, kind) = (front.split(' ').nth(4).unwrap(), back.split(' ').next().unwrap());
        assert!(!line.contains("cofferdam-isolation") && !line.contains("/dev/loop"), "{line}");
        if !point.starts_with("/proc/") && !point.starts_with("/sys/") {
            kinds.push(format!("{point} {kind}\n"));
        }
    }
    expect![[r#"
        /dev tmpfs
        /proc proc
        /sys sysfs
        /dev/pts devpts
        /dev/mqueue mqueue
        / overlay
        /dev/shm tmpfs
    "#]]
    .assert_eq(&kinds.concat());
}

fn sandboxes_are_apart(host: &Host) {
    let (one, two) = (host.make(1), host.make(2));
    assert_eq!(probe(&one, "root", &["write", "/secret"]).output, "write: ok\n");
    assert!(probe(&two, "root", &["cat", "/secret"]).output.contains("No such file"));
    // The agent, the spawner and the probe itself.
    assert_eq!(probe(&two, "root", &["processes"]).output, "3\n");
    let outside = format!("/proc/{}/root/secret", one.identity().pid);
    assert!(probe(&two, "root", &["cat", &outside]).output.contains("No such file"));
}
