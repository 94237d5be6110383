//! Owns what `doctor` asks of this host for the container driver. Each check tries the thing itself, leaves nothing, and
//! says what to do when it is missing.

use crate::isolation::cgroup;
use cofferdam_proto::node::{Check, Verdict};
use cofferdam_sys::clone::{self, Namespaces};
use cofferdam_sys::mount::{self, FileSystem};
use cofferdam_sys::{credentials, directory, exec, landlock, loopback, memfd, seccomp};
use std::io;
use std::path::Path;

/// Open files per process that programs can be expected to ask for.
const OPEN_FILES_WANTED: u64 = 65_536;

/// Every check of the container driver, in the order in which its features are used. Blocks, shortly.
pub fn checks() -> Vec<Check> {
    vec![
        privileges(),
        try_or_fail(
            "user namespaces",
            user_namespace,
            "allow them: sysctl -w user.max_user_namespaces=96000",
        ),
        try_or_fail("idmapped mounts", idmapped_mount, "use a kernel 5.19 or newer"),
        try_or_fail("overlayfs", || open_system("overlay"), "load it: modprobe overlay"),
        layers(),
        try_or_fail("btrfs", || open_system("btrfs"), "load it: modprobe btrfs"),
        try_or_fail("loop devices", loop_devices, "load them: modprobe loop"),
        cgroups(),
        fast_joins(),
        try_or_fail("seccomp filters", filter, "use a kernel with CONFIG_SECCOMP_FILTER"),
        landlock_version(),
        try_or_fail("programs in memory", program, "allow them: sysctl -w vm.memfd_noexec=1"),
        open_files(),
    ]
}

fn check(name: &str, verdict: Verdict, detail: impl Into<String>, remedy: Option<&str>) -> Check {
    Check { name: name.into(), verdict, detail: detail.into(), remedy: remedy.map(str::to_owned) }
}

fn try_or_fail(name: &str, attempt: impl FnOnce() -> io::Result<String>, remedy: &str) -> Check {
    match attempt() {
        Ok(detail) => check(name, Verdict::Pass, detail, None),
        Err(error) => check(name, Verdict::Fail, error.to_string(), Some(remedy)),
    }
}

fn privileges() -> Check {
    let remedy = "run the node as root of the host, outside of any container";
    let name = "privileges";
    match credentials::missing_for_node() {
        Ok(missing) if missing.is_empty() => {
            check(name, Verdict::Pass, "every capability that is needed", None)
        }
        Ok(missing) => check(name, Verdict::Fail, format!("missing {missing:?}"), Some(remedy)),
        Err(error) => check(name, Verdict::Fail, error.to_string(), Some(remedy)),
    }
}

fn user_namespace() -> io::Result<String> {
    let process = clone::start_idle(Namespaces::SANDBOX)?;
    clone::map_ids(process.pid(), 0x1000_0000, 65_536)?;
    Ok("all namespaces of a sandbox, with 65536 ids".into())
}

/// Of an empty file system in memory; those of templates and disks are known to have it, too.
fn idmapped_mount() -> io::Result<String> {
    let process = clone::start_idle(Namespaces::SANDBOX)?;
    clone::map_ids(process.pid(), 0x1000_0000, 65_536)?;
    let namespace = clone::open_namespace(process.pid(), "user")?;
    let mounted = FileSystem::open("tmpfs")?.mount(mount::PLAIN)?;
    mount::set_id_map(&mounted, &namespace, mount::PLAIN)?;
    Ok("ids on disk stay plain".into())
}

fn open_system(kind: &str) -> io::Result<String> {
    FileSystem::open(kind).map(|_| "the kernel has it".into())
}

fn layers() -> Check {
    let name = "overlay layers by descriptor";
    let attempt = || {
        let layer = directory::locate_at(Path::new("/"))?;
        FileSystem::open("overlay")?.set_fd("lowerdir+", layer)
    };
    match attempt() {
        Ok(()) => check(name, Verdict::Pass, "the kernel takes them", None),
        Err(_) => check(name, Verdict::Pass, "not before kernel 6.13; they are attached first instead", None),
    }
}

fn loop_devices() -> io::Result<String> {
    Ok(format!("/dev/loop{} is free", loopback::free_number()?))
}

fn cgroups() -> Check {
    let remedy = "mount cgroup2 at /sys/fs/cgroup with the controllers cpu, memory and pids";
    match cgroup::version() {
        Ok(version) => check("cgroups", Verdict::Pass, format!("version {version}"), None),
        Err(error) => check("cgroups", Verdict::Fail, error.to_string(), Some(remedy)),
    }
}

fn fast_joins() -> Check {
    let name = "fast joins of cgroups";
    match cgroup::favour_joins() {
        Ok(_) => check(name, Verdict::Pass, "favordynmods", None),
        Err(error) => {
            let remedy =
                "use a kernel 6.0 or newer; without, a sandbox that is not ready ahead takes 10 ms longer";
            check(name, Verdict::Warn, error.to_string(), Some(remedy))
        }
    }
}

fn filter() -> io::Result<String> {
    let table = seccomp::Table::new(0, seccomp::Action::Allow);
    clone::try_filter(&table.compile()).map(|()| "a filter was loaded".into())
}

fn landlock_version() -> Check {
    match landlock::version() {
        Some(version) => check("landlock", Verdict::Pass, format!("version {version}"), None),
        None => {
            let remedy = "add landlock to the kernel parameter lsm=; the other walls stand without it";
            check("landlock", Verdict::Warn, "the kernel does not have it or it is not enabled", Some(remedy))
        }
    }
}

fn program() -> io::Result<String> {
    memfd::sealed_program("cofferdam-doctor", b"#!").map(|_| "they can be executed".into())
}

fn open_files() -> Check {
    let most = exec::open_files_max();
    if most >= OPEN_FILES_WANTED {
        return check("open files", Verdict::Pass, format!("{most} per process"), None);
    }
    let remedy = "raise it for the service: LimitNOFILE=1048576, or `ulimit -Hn` before the start";
    check(
        "open files",
        Verdict::Warn,
        format!("at most {most} per process; larger limits are cut"),
        Some(remedy),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_that_does_not_pass_says_what_to_do() {
        for check in checks() {
            assert!(check.verdict == Verdict::Pass || check.remedy.is_some(), "{check:?}");
            assert!(!check.detail.is_empty(), "{check:?}");
        }
    }
}
