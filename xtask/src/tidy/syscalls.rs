//! Owns the rule that raw system calls live in one crate: the word `unsafe` and the crates that hand out raw calls.

use super::Finding;
use super::arrows;
use super::source::{code_only, lines_with_word};
use super::tree::Tree;

const RAW: &[&str] = &["libc", "nix", "rustix"];

/// Who may list which raw crate besides `sys`: the CLI puts the terminal of its user into raw mode.
const EXCEPTIONS: &[(&str, &str)] = &[("cli", "rustix")];

fn may_list(name: &str, dependency: &str) -> bool {
    name == "sys" || !RAW.contains(&dependency) || EXCEPTIONS.contains(&(name, dependency))
}

/// Only `sys` lists raw system call crates.
pub(crate) fn dependencies(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, manifest) in tree.manifests() {
        for (_, dependency, _) in arrows::dependencies(&manifest.text) {
            if !may_list(name, &dependency) {
                findings.push(Finding::new(
                    &manifest.path,
                    1,
                    format!("`{dependency}` belongs to `sys` alone"),
                ));
            }
        }
    }
    findings
}

/// Only `sys` says `unsafe`.
pub(crate) fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.path.starts_with("crates/sys/")) {
        for line in lines_with_word(&code_only(&file.text), "unsafe") {
            findings.push(Finding::new(&file.path, line, "`unsafe` lives in `sys`"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_crates_are_refused_outside_sys() {
        let text = "[dependencies]\nlibc.workspace = true\nrustix.workspace = true";
        let count = |path| dependencies(&Tree::of(&[(path, text)])).len();
        assert_eq!(count("crates/sys/Cargo.toml"), 0);
        assert_eq!(count("crates/cli/Cargo.toml"), 1);
        assert_eq!(count("crates/node/Cargo.toml"), 2);
    }

    #[test]
    fn the_word_is_refused_outside_sys_but_not_in_texts() {
        let count = |path, text| unsafe_code(&Tree::of(&[(path, text)])).len();
        assert_eq!(count("crates/sys/src/a.rs", "unsafe {}"), 0);
        assert_eq!(count("crates/node/src/a.rs", "// unsafe\nlet a = \"unsafe\"; unsafe_code();"), 0);
        assert_eq!(count("crates/node/src/a.rs", "\nunsafe {}"), 1);
    }
}
