//! Builds the agent as a static program for the embedding node: a nested cargo with a target directory of its own, because
//! flags and profile differ from those of the host programs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Changes below these rebuild the agent.
const SOURCES: [&str; 6] =
    ["crates/agent", "crates/core", "crates/proto", "crates/sys", "Cargo.toml", "Cargo.lock"];
/// Settings of the outer cargo that say where tools are; all others would change what is built.
const KEPT: [&str; 3] = ["CARGO_HOME", "CARGO_NET_OFFLINE", "CARGO_HTTP_CAINFO"];

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../..");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
    }
    let target = format!("{}-unknown-linux-gnu", variable("CARGO_CFG_TARGET_ARCH"));
    let directory = PathBuf::from(variable("OUT_DIR")).join("agent");
    build(&root, &directory, &target);
    let program = directory.join(target).join("agent").join("cofferdam-agent");
    println!("cargo::rustc-env=COFFERDAM_AGENT={}", program.display());
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn build(root: &Path, directory: &Path, target: &str) {
    let mut command = Command::new(variable("CARGO"));
    command.current_dir(root);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let outer = text.starts_with("CARGO") || text.starts_with("RUSTC") || text.starts_with("RUSTFLAGS");
        if outer && !KEPT.contains(&&*text) {
            command.env_remove(&name);
        }
    }
    command.args([
        "build",
        "--quiet",
        "--locked",
        "--offline",
        "--package",
        "cofferdam-agent",
        "--profile",
        "agent",
    ]);
    command.args(["--target", target]).arg("--target-dir").arg(directory);
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let status = command.status().unwrap_or_else(|error| panic!("start cargo for the agent: {error}"));
    assert!(status.success(), "cargo could not build the agent: {status}");
}
