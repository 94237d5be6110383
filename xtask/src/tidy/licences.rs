//! Owns which licences and which crates may be linked. `deny.toml` says the same for whoever has that program; this
//! rule needs nothing but cargo.

use super::Finding;
use super::tree::{Package, Tree};

const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "CDLA-Permissive-2.0",
];

/// Crates that must not get in, and why.
const BANNED: &[(&str, &str)] = &[
    ("aws-lc-sys", "one TLS provider: ring"),
    ("aws-lc-rs", "one TLS provider: ring"),
    ("openssl-sys", "one TLS provider: ring"),
    ("native-tls", "one TLS provider: ring"),
    ("libcontainer", "drags in weak copyleft, and forks with threads"),
    ("rustables", "copyleft"),
];

/// Every dependency has an allowed licence, comes from a registry, and is not banned.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let foreign = tree.packages().iter().filter(|package| package.source.is_some());
    let wrong = foreign.filter_map(|package| Some((package, objection(package)?)));
    wrong.map(|(package, why)| Finding::new("Cargo.lock", 1, format!("{}: {why}", package.name))).collect()
}

fn objection(package: &Package) -> Option<String> {
    if let Some((_, why)) = BANNED.iter().find(|(name, _)| *name == package.name) {
        return Some((*why).to_owned());
    }
    if package.source.as_ref().is_some_and(|source| !source.starts_with("registry")) {
        return Some("does not come from a registry".to_owned());
    }
    match package.license.as_deref() {
        None => Some("has no licence expression".to_owned()),
        Some(license) if is_allowed(license) => None,
        Some(license) => Some(format!("licence `{license}`")),
    }
}

/// True when the expression can be fulfilled by allowed licences: one side of an `OR`, both of an `AND`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let (verdict, rest) = either(&tokens);
    verdict && rest.is_empty()
}

fn either<'a, 'b>(tokens: &'a [&'b str]) -> (bool, &'a [&'b str]) {
    let (mut verdict, mut rest) = both(tokens);
    while let Some(("OR", after)) = rest.split_first().map(|(first, after)| (*first, after)) {
        let (other, after) = both(after);
        verdict |= other;
        rest = after;
    }
    (verdict, rest)
}

fn both<'a, 'b>(tokens: &'a [&'b str]) -> (bool, &'a [&'b str]) {
    let (mut verdict, mut rest) = one(tokens);
    while let Some(("AND", after)) = rest.split_first().map(|(first, after)| (*first, after)) {
        let (other, after) = one(after);
        verdict &= other;
        rest = after;
    }
    (verdict, rest)
}

fn one<'a, 'b>(tokens: &'a [&'b str]) -> (bool, &'a [&'b str]) {
    match tokens {
        ["(", inner @ ..] => {
            let (verdict, rest) = either(inner);
            (verdict, rest.strip_prefix(&[")"]).unwrap_or(rest))
        }
        [name, "WITH", exception, rest @ ..] => {
            let whole = format!("{name} WITH {exception}");
            (ALLOWED.contains(name) || ALLOWED.contains(&whole.as_str()), rest)
        }
        [name, rest @ ..] => (ALLOWED.contains(name), rest),
        [] => (false, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_written() {
        for good in ["MIT", "GPL-3.0 OR MIT", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in ["GPL-3.0-only", "MIT AND MPL-2.0", "MPL-2.0 OR LGPL-2.1", "", "MIT )"] {
            assert!(!is_allowed(bad), "{bad}");
        }
        assert!(is_allowed("Apache-2.0 WITH LLVM-exception OR GPL-2.0"));
    }

    #[test]
    fn foreign_licences_and_banned_crates_fail() {
        let tree = Tree::of_packages(&[
            ("good", Some("MIT")),
            ("bad", Some("GPL-3.0-only")),
            ("silent", None),
            ("openssl-sys", Some("MIT")),
        ]);
        let found: Vec<String> = check(&tree).into_iter().map(|f| f.what).collect();
        assert_eq!(
            found,
            [
                "bad: licence `GPL-3.0-only`",
                "silent: has no licence expression",
                "openssl-sys: one TLS provider: ring"
            ]
        );
    }
}
