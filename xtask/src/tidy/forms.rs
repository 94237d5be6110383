//! Owns the forms of code that are not used here, each with its reason.

use super::Finding;
use super::source::{code_only, numbered};
use super::tree::Tree;

/// A form, and why it is not used.
const FORMS: &[(&str, &str)] = &[
    ("Custom(String)", "an error variant names what was attempted"),
    ("Other(String)", "an error variant names what was attempted"),
    ("From<anyhow::Error>", "libraries have typed errors; anyhow stays at the edge"),
    ("#[ignore", "a test that cannot run skips visibly and is listed"),
    ("should_panic", "assert on the value instead"),
    ("super::super", "write the path from `crate::`"),
];

/// None of `FORMS` is in any Rust file.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (line, text) in numbered(&code_only(&file.text)) {
            let text: String = text.split_whitespace().collect();
            for (form, reason) in FORMS {
                if text.contains(form) {
                    findings.push(Finding::new(&file.path, line, format!("`{form}`: {reason}")));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_one(text: &str, expected: usize) {
        assert_eq!(check(&Tree::of(&[("crates/a/src/lib.rs", text)])).len(), expected, "{text}");
    }

    #[test]
    fn each_form_fails() {
        check_one("enum E { Custom(String) }", 1);
        check_one("enum E { Other( String ) }", 1);
        check_one("impl From<anyhow::Error> for E {}", 1);
        check_one("#[ignore = \"slow\"]", 1);
        check_one("#[should_panic]", 1);
        check_one("use super::super::x;", 1);
    }

    #[test]
    fn what_only_looks_like_one_passes() {
        check_one("enum E { Custom(u8), Other }", 0);
        check_one("// super::super\nlet a = \"#[ignore]\";", 0);
        check_one("use super::x;", 0);
    }
}
