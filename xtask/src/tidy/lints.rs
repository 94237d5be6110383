//! Owns the rule that every crate inherits the lints of the workspace. `sys` alone has its own, and those are strict
//! about `unsafe`.

use super::Finding;
use super::tree::Tree;
use toml::{Table, Value};

const SYS_DENIES: &[(&str, &str)] = &[
    ("rust", "unsafe_op_in_unsafe_fn"),
    ("clippy", "undocumented_unsafe_blocks"),
    ("clippy", "multiple_unsafe_ops_per_block"),
    ("clippy", "unwrap_used"),
    ("clippy", "let_underscore_must_use"),
];

/// `[lints] workspace = true` everywhere but in `sys`, which denies what makes `unsafe` readable.
pub(crate) fn inheritance(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, manifest) in tree.manifests() {
        let table = manifest.text.parse::<Table>().unwrap_or_default();
        let lints = table.get("lints").cloned().unwrap_or(Value::Table(Table::new()));
        if name == "sys" {
            for (group, lint) in SYS_DENIES {
                if lints.get(group).and_then(|group| group.get(lint)).and_then(Value::as_str) != Some("deny")
                {
                    findings.push(Finding::new(&manifest.path, 1, format!("`sys` has to deny `{lint}`")));
                }
            }
        } else if lints.get("workspace").and_then(Value::as_bool) != Some(true) {
            findings.push(Finding::new(&manifest.path, 1, format!("`{name}` does not inherit the lints")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_that_inherits_passes_and_one_that_does_not_fails() {
        let tree = Tree::of(&[
            ("crates/core/Cargo.toml", "[lints]\nworkspace = true"),
            ("crates/node/Cargo.toml", "[lints.rust]\nunsafe_code = \"allow\""),
        ]);
        let found = inheritance(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].what, "`node` does not inherit the lints");
    }

    #[test]
    fn sys_may_differ_but_not_in_what_keeps_unsafe_readable() {
        let found =
            inheritance(&Tree::of(&[("crates/sys/Cargo.toml", "[lints.rust]\nunreachable_pub = \"warn\"")]));
        assert_eq!(found.len(), SYS_DENIES.len());
    }
}
