//! Owns `Configure` and `Stats`.

use crate::agent::Agent;
use crate::failure::{at_path, doing, invalid};
use crate::files;
use cofferdam_proto::guest::{Configure, Failure, Reply, Stats};
use cofferdam_sys::itself;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Takes over identity and defaults.
pub(super) fn run(agent: &Agent, mut configure: Configure) -> Result<Reply, Failure> {
    // The kernel allows it only with CAP_SYS_ADMIN, which a sandbox does not have: then it is set from outside.
    itself::set_hostname(&configure.hostname).ok();
    for (path, content) in std::mem::take(&mut configure.files) {
        let path = Path::new(&path);
        if !path.is_absolute() {
            return Err(invalid(format!("'{}' is not absolute", path.display())));
        }
        write(path, content.as_bytes()).map_err(|error| at_path("write", path.display(), &error))?;
    }
    agent.set_defaults(configure);
    Ok(Reply::Ok)
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let root = files::Owner { uid: 0, gid: 0 };
    let (mut file, _) = files::write::open(path, root, 0o644)?;
    file.set_len(0)?;
    file.write_all(content)
}

/// What the sandbox uses.
pub(super) fn stats() -> Result<Reply, Failure> {
    let (disk_used, disk_total) =
        cofferdam_sys::file::space(Path::new("/")).map_err(|error| doing("measure the disk", &error))?;
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let processes = numbers.filter(|entry| entry.file_name().to_str().is_some_and(is_process)).count();
    Ok(Reply::Stats(Stats {
        disk_used,
        disk_total,
        processes: u32::try_from(processes).unwrap_or(u32::MAX),
        agent_rss_kib: own_rss_kib(),
    }))
}

fn own_rss_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
}
