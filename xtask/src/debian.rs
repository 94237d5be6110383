//! Owns the one list of Debian packages that a host needs, and their installation. What is there already is left alone.

use crate::print;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, Stdio};

/// A package and the program by which its presence is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Package {
    name: &'static str,
    program: &'static str,
}

const fn package(name: &'static str, program: &'static str) -> Package {
    Package { name, program }
}

/// What a server needs: to build it, to make the template `base`, and to make its data volume.
pub(crate) const SERVER: &[Package] = &[
    package("gcc", "cc"),
    package("libc6-dev", "/usr/include/stdio.h"),
    package("mmdebstrap", "mmdebstrap"),
    package("btrfs-progs", "mkfs.btrfs"),
];

/// What the tests need beyond that: the official SDKs run on Python and Node, and libFuzzer is C++.
pub(crate) const TESTS: &[Package] = &[
    package("g++", "c++"),
    package("git", "git"),
    package("busybox-static", "/bin/busybox"),
    package("iproute2", "ss"),
    package("procps", "pgrep"),
    package("python3", "python3"),
    package("python3-venv", "python3"),
    package("nodejs", "node"),
    package("npm", "npm"),
];

const PATHS: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// True when the program is on the path, or in one of the directories where an administrator's programs are.
fn has_program(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
        || PATHS.iter().any(|dir| Path::new(dir).join(program).exists())
}

fn is_missing(package: Package) -> bool {
    match package.name {
        "python3-venv" => !crate::run::succeeds("python3", &["-c", "import ensurepip"]),
        _ => !has_program(package.program),
    }
}

/// Names of the packages of the lists that are missing.
pub(crate) fn missing(lists: &[&[Package]]) -> Vec<&'static str> {
    lists.iter().flat_map(|list| list.iter()).filter(|p| is_missing(**p)).map(|p| p.name).collect()
}

/// Installs what is missing of the lists, as root or through sudo.
pub(crate) fn install(lists: &[&[Package]]) -> Result<()> {
    let names = missing(lists);
    if names.is_empty() {
        return Ok(());
    }
    if !has_program("apt-get") {
        bail!("these programs are missing and this is no Debian: install {}", names.join(" "));
    }
    print::line(&format!("installing {}", names.join(" ")));
    apt_get(&["update", "-qq"])?;
    let mut args = vec!["install", "-y", "-qq", "--no-install-recommends"];
    args.extend(names);
    apt_get(&args)
}

fn apt_get(args: &[&str]) -> Result<()> {
    let mut command = as_root("env");
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]).args(args);
    let output = command.stdin(Stdio::null()).output().context("start apt-get")?;
    if output.status.success() {
        return Ok(());
    }
    bail!("apt-get {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim())
}

/// A command that runs `program` as root.
pub(crate) fn as_root(program: &str) -> Command {
    if is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    command
}

/// True when this program runs as root.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_whitespace().nth(1) == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_installed_again() {
        assert!(missing(&[&[package("coreutils", "ls"), package("libc6", "/proc/self/exe")]]).is_empty());
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert_eq!(
            missing(&[&[package("cofferdam-nothing", "no-such-program-anywhere")]]),
            ["cofferdam-nothing"]
        );
    }
}
