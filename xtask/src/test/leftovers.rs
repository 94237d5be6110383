//! Owns the count of what a server can leave behind on its host: control groups, mounts, loop devices, processes and
//! network namespaces. Taken before and after, the difference has to be nothing.

use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// First uid of the ranges that sandboxes live in.
const SANDBOX_UID_MIN: u64 = 0x1000_0000;

/// What is there of servers of ours, each thing by a name that tells it from others.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    things: BTreeSet<String>,
}

impl Inventory {
    /// Looks at the host; mounts and loop devices count when they belong to `data_dir`.
    pub(super) fn take(data_dir: &Path) -> Result<Self> {
        let mut things = BTreeSet::new();
        things.extend(control_groups(Path::new("/sys/fs/cgroup"), 3));
        things.extend(mounts(
            &fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?,
            data_dir,
        ));
        things.extend(loop_devices(Path::new("/sys/block"), data_dir));
        things.extend(processes(Path::new("/proc"), data_dir));
        Ok(Self { things })
    }

    /// What is here and was not there before.
    pub(super) fn beyond(&self, before: &Self) -> Vec<String> {
        self.things.difference(&before.things).cloned().collect()
    }
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path())
}

fn control_groups(dir: &Path, depth: u32) -> Vec<String> {
    let mut found = Vec::new();
    for path in entries(dir).filter(|path| path.is_dir() && !path.is_symlink()) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with("cofferdam-") {
            found.push(format!("control group {}", path.display()));
        } else if depth > 1 {
            found.extend(control_groups(&path, depth - 1));
        }
    }
    found
}

fn mounts(mountinfo: &str, data_dir: &Path) -> Vec<String> {
    let data_dir = data_dir.display().to_string();
    let of_ours = mountinfo.lines().filter(|line| line.contains(&data_dir));
    of_ours.filter_map(|line| line.split(' ').nth(4)).map(|point| format!("mount {point}")).collect()
}

fn loop_devices(blocks: &Path, data_dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for device in entries(blocks) {
        let file = fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
        if Path::new(file.trim()).starts_with(data_dir) {
            found.push(format!("loop device {} of {}", device.display(), file.trim()));
        }
    }
    found
}

/// Processes of sandboxes (by their uid) and of the server (by their directory).
fn processes(proc: &Path, data_dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for process in entries(proc) {
        let Ok(status) = fs::read_to_string(process.join("status")) else { continue };
        let in_data_dir = fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(data_dir));
        if in_data_dir || uid(&status) >= SANDBOX_UID_MIN {
            let name = status.lines().next().unwrap_or_default().replace("Name:\t", "");
            let network = fs::read_link(process.join("ns/net")).unwrap_or_default();
            let pid = process.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push(format!("process {pid} ({name}) in {}", network.display()));
        }
    }
    found
}

fn uid(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|uid| uid.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_not_left_behind() {
        let before = Inventory { things: BTreeSet::from(["mount /a".to_owned()]) };
        let after = Inventory { things: BTreeSet::from(["mount /a".to_owned(), "mount /b".to_owned()]) };
        assert_eq!(after.beyond(&before), ["mount /b"]);
        assert!(before.beyond(&after).is_empty());
    }

    #[test]
    fn a_mount_below_the_data_directory_is_seen() {
        let mountinfo =
            "22 1 0:5 / /proc rw - proc proc rw\n30 1 7:0 / /d/node/data rw - btrfs /dev/loop0 rw";
        assert_eq!(mounts(mountinfo, Path::new("/d")), ["mount /d/node/data"]);
        assert!(mounts(mountinfo, Path::new("/other")).is_empty());
    }

    #[test]
    fn a_group_of_ours_is_seen_and_others_are_not() {
        let dir = std::env::temp_dir().join(format!("xtask-groups-{}", std::process::id()));
        fs::create_dir_all(dir.join("memory/cofferdam-ab12/s1")).unwrap();
        fs::create_dir_all(dir.join("memory/user")).unwrap();
        assert_eq!(control_groups(&dir, 3).len(), 1);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_uid_of_a_sandbox_is_read() {
        assert_eq!(uid("Name:\tsh\nUid:\t268435456\t1\t1\t1\n"), SANDBOX_UID_MIN);
        assert_eq!(uid("nonsense"), 0);
    }
}
