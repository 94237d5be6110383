//! Owns the report on what this host can do: what isolation and storage check themselves, the tools, and the room on disk.
//! Checks change nothing that outlasts them.

use crate::templates::base::find_program;
use cofferdam_proto::node::{Check, Verdict};
use cofferdam_sys::openat;
use std::path::Path;

/// Room on the disk of the data directory below which sandboxes are in danger.
const FREE_BYTES_WANTED: u64 = 4 << 30;
/// Watches and instances that one host wants for hundreds of sandboxes, and memory maps for large programs.
const SETTINGS: [(&str, u64, &str); 4] = [
    ("/proc/sys/user/max_user_namespaces", 1024, "every sandbox has a user namespace"),
    ("/proc/sys/user/max_net_namespaces", 1024, "every sandbox has a network namespace"),
    ("/proc/sys/kernel/pid_max", 32_768, "all sandboxes share the process numbers of the host"),
    ("/proc/sys/fs/inotify/max_user_instances", 128, "programs that watch files need them"),
];
/// Programs, the packages they are in, and what is missing without them.
const TOOLS: [(&str, &str, &str); 2] = [
    ("mkfs.btrfs", "btrfs-progs", "the data volume of a new data directory cannot be made"),
    ("mmdebstrap", "mmdebstrap", "the template `base` cannot be built; importing templates works"),
];

/// Runs every check.
pub async fn check(data_dir: &Path) -> Vec<Check> {
    let data_dir = data_dir.to_path_buf();
    let checks = tokio::task::spawn_blocking(move || {
        let mut checks = crate::isolation::container::checks();
        checks.extend(SETTINGS.map(|(path, wanted, why)| setting(path, wanted, why)));
        checks.extend(TOOLS.map(|(program, package, without)| tool(program, package, without)));
        checks.push(space(&data_dir));
        checks
    });
    checks.await.unwrap_or_else(|error| vec![failed("checks", format!("they could not be run: {error}"))])
}

fn passed(name: &str, detail: String) -> Check {
    Check { name: name.to_owned(), verdict: Verdict::Pass, detail, remedy: None }
}

fn warned(name: &str, detail: String, remedy: String) -> Check {
    Check { name: name.to_owned(), verdict: Verdict::Warn, detail, remedy: Some(remedy) }
}

fn failed(name: &str, detail: String) -> Check {
    Check { name: name.to_owned(), verdict: Verdict::Fail, detail, remedy: None }
}

fn setting(path: &str, wanted: u64, why: &str) -> Check {
    let name = path.trim_start_matches("/proc/sys/").replace('/', ".");
    let value = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    match value {
        Some(value) if value >= wanted => passed(&name, value.to_string()),
        Some(value) => {
            let remedy = format!("sysctl -w {name}={wanted} ({why})");
            warned(&name, format!("{value}, {wanted} or more are wanted"), remedy)
        }
        None => warned(&name, "not known to this kernel".into(), format!("use a newer kernel ({why})")),
    }
}

fn tool(program: &str, package: &str, without: &str) -> Check {
    match find_program(program) {
        Some(path) => passed(program, path.display().to_string()),
        None => warned(program, format!("not installed: {without}"), format!("apt-get install {package}")),
    }
}

fn space(data_dir: &Path) -> Check {
    let name = "disk space";
    match openat::space(data_dir) {
        Ok((free, size)) => {
            let detail = format!("{} of {} MiB free at {}", free >> 20, size >> 20, data_dir.display());
            if free >= FREE_BYTES_WANTED {
                passed(name, detail)
            } else {
                warned(name, detail, "free some, or move the data directory to a larger disk".into())
            }
        }
        Err(error) => failed(name, format!("{}: {error}", data_dir.display())),
    }
}
