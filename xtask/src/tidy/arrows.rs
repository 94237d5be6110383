//! Owns the arrows: which crate may know which, and which module within a crate. The crate graph is the diagram of who
//! is trusted with what, so anything that is not in these tables fails; a new arrow is a commit of its own.

use super::Finding;
use super::source::{code_only, numbered};
use super::tree::Tree;
use toml::{Table, Value};

/// What a crate of ours may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("sys", &[]),
    ("policy", &["core"]),
    ("audit", &["core"]),
    ("proto", &["core"]),
    ("agent", &["core", "proto", "sys"]),
    ("node", &["core", "audit", "proto", "sys"]),
    ("egress", &["core", "policy", "audit", "proto", "sys"]),
    ("server", &["core", "policy", "audit", "proto"]),
    ("cli", &["core", "policy", "audit", "proto"]),
    ("cofferdam", &["core", "sys", "server", "node", "egress", "cli"]),
    ("testkit", &["core", "policy", "audit", "proto", "sys", "agent", "node", "egress", "server", "cli"]),
    ("xtask", &[]),
];

/// Within a folder, paths that must not be named: what is below never knows what is above.
const MODULES: &[(&str, &[&str])] = &[
    ("crates/server/src/api", &["crate::store", "crate::cluster", "crate::guest::wire"]),
    ("crates/server/src/gateway", &["crate::store", "crate::cluster"]),
    ("crates/server/src/app", &["crate::api", "crate::gateway", "crate::http"]),
    (
        "crates/server/src/store",
        &["crate::api", "crate::gateway", "crate::app", "crate::cluster", "crate::guest"],
    ),
    (
        "crates/server/src/cluster",
        &["crate::api", "crate::gateway", "crate::app", "crate::store", "crate::guest"],
    ),
    (
        "crates/server/src/guest",
        &["crate::api", "crate::gateway", "crate::app", "crate::store", "crate::cluster"],
    ),
    ("crates/node/src/isolation", NODE_LIFE),
    ("crates/node/src/launcher", NODE_LIFE),
    ("crates/node/src/storage", NODE_LIFE),
    ("crates/node/src/storage", &["crate::launcher"]),
];

/// What gives sandboxes a life; how they are isolated and where their bytes are does not know it.
const NODE_LIFE: &[&str] =
    &["crate::actor", "crate::host", "crate::node", "crate::pool", "crate::registry", "crate::service"];

const TABLES: &[&str] = &["dependencies", "build-dependencies", "dev-dependencies"];

/// Dependencies between crates of ours follow `CRATES`.
pub(crate) fn crates(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, manifest) in tree.manifests() {
        let Some((_, allowed)) = CRATES.iter().find(|(listed, _)| *listed == name) else {
            findings.push(Finding::new(
                &manifest.path,
                1,
                format!("crate `{name}` is not in the table of arrows"),
            ));
            continue;
        };
        for (table, dependency, _) in dependencies(&manifest.text) {
            let Some(target) = ours(&dependency) else { continue };
            let for_tests = table == "dev-dependencies" && (target == "testkit" || target == name);
            if !for_tests && !allowed.contains(&target) {
                let what = format!("`{name}` must not depend on `{target}` ({table})");
                findings.push(Finding::new(&manifest.path, 1, what));
            }
        }
    }
    findings
}

/// Every version is in the manifest of the workspace.
pub(crate) fn versions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, manifest) in tree.manifests() {
        for (_, dependency, value) in dependencies(&manifest.text) {
            let inherits = value.get("workspace").and_then(Value::as_bool) == Some(true);
            if !inherits {
                let what = format!("`{dependency}` has to say `workspace = true`");
                findings.push(Finding::new(&manifest.path, 1, what));
            }
        }
    }
    findings
}

/// Paths within a crate follow `MODULES`.
pub(crate) fn modules(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, forbidden) in MODULES {
        let below = |path: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(['/', '.']));
        for file in tree.rust().filter(|file| below(&file.path)) {
            let code = code_only(&file.text);
            for (line, text) in numbered(&code) {
                for path in forbidden.iter().filter(|path| names(text, path)) {
                    findings.push(Finding::new(&file.path, line, format!("`{path}` is above this module")));
                }
            }
        }
    }
    findings
}

fn names(line: &str, path: &str) -> bool {
    line.match_indices(path)
        .any(|(at, _)| !line[at + path.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// Table, name and value of every dependency in the text of a manifest, those of a target included.
pub(crate) fn dependencies(text: &str) -> Vec<(&'static str, String, Value)> {
    let Ok(manifest) = text.parse::<Table>() else { return Vec::new() };
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let roots = std::iter::once(&manifest).chain(targets.filter_map(Value::as_table));
    let mut found = Vec::new();
    for root in roots {
        for table in TABLES {
            let entries = root.get(*table).and_then(Value::as_table).into_iter().flatten();
            found.extend(entries.map(|(name, value)| (*table, name.clone(), value.clone())));
        }
    }
    found
}

/// The short name of a crate of ours.
fn ours(dependency: &str) -> Option<&str> {
    match dependency {
        "cofferdam" | "xtask" => Some(dependency),
        _ => dependency.strip_prefix("cofferdam-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rule: fn(&Tree) -> Vec<Finding>, path: &str, text: &str, expected: &[&str]) {
        let found: Vec<String> = rule(&Tree::of(&[(path, text)])).into_iter().map(|f| f.what).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_arrow_of_the_table_passes_and_another_fails() {
        let path = "crates/server/Cargo.toml";
        check(crates, path, "[dependencies]\ncofferdam-proto.workspace = true", &[]);
        check(
            crates,
            path,
            "[dependencies]\ncofferdam-node.workspace = true",
            &["`server` must not depend on `node` (dependencies)"],
        );
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        let path = "crates/node/Cargo.toml";
        check(crates, path, "[dev-dependencies]\ncofferdam-testkit.workspace = true", &[]);
        check(
            crates,
            path,
            "[dependencies]\ncofferdam-testkit.workspace = true",
            &["`node` must not depend on `testkit` (dependencies)"],
        );
    }

    #[test]
    fn a_dependency_of_a_target_is_seen() {
        check(
            crates,
            "crates/core/Cargo.toml",
            "[target.'cfg(unix)'.dependencies]\ncofferdam-sys = { workspace = true }",
            &["`core` must not depend on `sys` (dependencies)"],
        );
    }

    #[test]
    fn a_crate_outside_the_table_fails() {
        check(crates, "crates/util/Cargo.toml", "", &["crate `util` is not in the table of arrows"]);
    }

    #[test]
    fn a_version_of_its_own_fails() {
        let path = "crates/core/Cargo.toml";
        check(versions, path, "[dependencies]\nserde.workspace = true", &[]);
        check(versions, path, "[dependencies]\nserde = \"1\"", &["`serde` has to say `workspace = true`"]);
    }

    #[test]
    fn what_is_below_does_not_know_what_is_above() {
        let path = "crates/server/src/app/create.rs";
        check(modules, path, "use crate::store::Store; // crate::api", &[]);
        check(modules, path, "use crate::api::E2b;", &["`crate::api` is above this module"]);
        check(modules, "crates/server/src/app.rs", "use crate::api;", &["`crate::api` is above this module"]);
        check(modules, path, "use crate::apiary;", &[]);
    }
}
