//! Owns the list of parsers of bytes that come from inside a sandbox or from clients. Each has a fuzz target, each
//! target is on the list, and each entry names code that exists.

use super::Finding;
use super::tree::Tree;

/// A parser: the file and the name of what parses, and its fuzz target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parser {
    file: &'static str,
    symbol: &'static str,
    /// Name of the target in `fuzz/fuzz_targets`.
    pub(crate) target: &'static str,
}

const fn parser(target: &'static str, file: &'static str, symbol: &'static str) -> Parser {
    Parser { file, symbol, target }
}

/// Every parser of hostile bytes.
pub(crate) const PARSERS: &[Parser] = &[
    parser("frame", "crates/proto/src/frame.rs", "Decoder"),
    parser("guest_call", "crates/proto/src/guest.rs", "Call"),
    parser("guest_reply", "crates/proto/src/guest.rs", "Reply"),
    parser("node_call", "crates/proto/src/node.rs", "Call"),
    parser("node_message", "crates/proto/src/node.rs", "Message"),
    parser("ids", "crates/core/src/ids.rs", "SandboxId"),
    parser("gateway_target", "crates/server/src/gateway/target.rs", "target"),
    parser("metadata_pairs", "crates/server/src/api/e2b/pairs.rs", "decode"),
    parser("disposition", "crates/server/src/api/e2b/envd/disposition.rs", "file_name"),
    parser("signature", "crates/server/src/api/e2b/envd/signature.rs", "authorize"),
    parser("inflate", "crates/server/src/api/e2b/envd/encoding.rs", "Inflate"),
    parser("basic_user", "crates/server/src/api/e2b/envd/user.rs", "from_basic"),
    parser("guest_path", "crates/agent/src/paths.rs", "resolve"),
    parser("timestamp", "crates/core/src/time.rs", "parse_rfc3339"),
];

/// The list, the code and the targets agree.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = check_list(tree, PARSERS);
    let listed = |name: &str| PARSERS.iter().any(|parser| parser.target == name);
    for file in tree.files() {
        let target = file.path.strip_prefix("fuzz/fuzz_targets/").and_then(|name| name.strip_suffix(".rs"));
        if target.is_some_and(|target| !listed(target)) {
            findings.push(Finding::new(&file.path, 1, "is not on the list of parsers"));
        }
    }
    findings
}

fn check_list(tree: &Tree, parsers: &[Parser]) -> Vec<Finding> {
    let manifest = tree.file("fuzz/Cargo.toml").map_or("", |file| file.text.as_str());
    let mut findings = Vec::new();
    for Parser { file, symbol, target } in parsers {
        if !tree.file(file).is_some_and(|file| file.text.contains(symbol)) {
            findings.push(Finding::new(
                file,
                1,
                format!("`{symbol}` is on the list of parsers but not here"),
            ));
        }
        let path = format!("fuzz/fuzz_targets/{target}.rs");
        if tree.file(&path).is_none() || !manifest.contains(&format!("name = \"{target}\"")) {
            findings.push(Finding::new(file, 1, format!("`{symbol}` has no fuzz target `{target}`")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &[Parser] = &[parser("a", "crates/a/src/lib.rs", "Decoder")];

    #[track_caller]
    fn check_with(files: &[(&str, &str)], expected: &[&str]) {
        let found: Vec<String> = check_list(&Tree::of(files), LIST).into_iter().map(|f| f.what).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_parser_with_its_target_passes() {
        check_with(
            &[
                ("crates/a/src/lib.rs", "struct Decoder;"),
                ("fuzz/fuzz_targets/a.rs", ""),
                ("fuzz/Cargo.toml", "[[bin]]\nname = \"a\""),
            ],
            &[],
        );
    }

    #[test]
    fn a_parser_without_a_target_fails() {
        check_with(&[("crates/a/src/lib.rs", "struct Decoder;")], &["`Decoder` has no fuzz target `a`"]);
    }

    #[test]
    fn an_entry_for_code_that_is_gone_fails() {
        check_with(
            &[("fuzz/fuzz_targets/a.rs", ""), ("fuzz/Cargo.toml", "name = \"a\"")],
            &["`Decoder` is on the list of parsers but not here"],
        );
    }

    #[test]
    fn a_target_that_is_not_listed_fails() {
        let found = check(&Tree::of(&[("fuzz/fuzz_targets/stray.rs", "")]));
        assert!(found.iter().any(|f| f.file == "fuzz/fuzz_targets/stray.rs"));
    }
}
