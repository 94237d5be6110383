//! Owns the rule that no file names a public registry by its host: packages come from wherever the machine is set up to
//! get them. The names are put together here so that this file passes its own rule.

use super::Finding;
use super::source::numbered;
use super::tree::{File, Tree};

/// Host names as their parts.
const HOSTS: &[&[&str]] = &[
    &["crates", "io"],
    &["pypi", "org"],
    &["pythonhosted", "org"],
    &["registry", "npmjs", "org"],
    &["npmjs", "com"],
    &["yarnpkg", "com"],
    &["deb", "debian", "org"],
    &["security", "debian", "org"],
    &["ftp", "debian", "org"],
    &["archive", "ubuntu", "com"],
    &["dl-cdn", "alpinelinux", "org"],
    &["proxy", "golang", "org"],
    &["docker", "io"],
    &["hub", "docker", "com"],
    &["ghcr", "io"],
    &["quay", "io"],
    &["gcr", "io"],
    &["rubygems", "org"],
];

/// No line of any file names one of `HOSTS`, but for what cargo itself writes into a lock file.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let hosts: Vec<String> = HOSTS.iter().map(|parts| parts.join(".")).collect();
    let mut findings = Vec::new();
    for file in tree.files() {
        for (line, text) in numbered(&file.text).filter(|(_, text)| !is_written_by_cargo(file, text)) {
            let lower = text.to_ascii_lowercase();
            if let Some(host) = hosts.iter().find(|host| names_host(&lower, host)) {
                findings.push(Finding::new(&file.path, line, format!("names the registry {host}")));
            }
        }
    }
    findings
}

fn is_written_by_cargo(file: &File, line: &str) -> bool {
    file.path.ends_with("Cargo.lock") && line.starts_with("source = \"registry+")
}

/// A host is named by itself or below a sub-domain, not as the end of another word.
fn names_host(line: &str, host: &str) -> bool {
    line.match_indices(host).any(|(at, _)| {
        !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_')
            && !line[at + host.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_line(path: &str, line: &str, expected: usize) {
        assert_eq!(check(&Tree::of(&[(path, line)])).len(), expected, "{line}");
    }

    #[test]
    fn a_registry_by_name_fails_and_other_hosts_pass() {
        let host = HOSTS[0].join(".");
        check_line("docs/a.md", &format!("see https://{host}/x"), 1);
        check_line("docs/a.md", &format!("see STATIC.{}.", host.to_uppercase()), 1);
        check_line("docs/a.md", &format!("my{host} and {host}n"), 0);
        check_line("docs/a.md", "api.e2b.localhost", 0);
    }

    #[test]
    fn only_the_lines_that_cargo_writes_are_let_through() {
        let line = format!("source = \"registry+https://{}/index\"", HOSTS[0].join("."));
        check_line("Cargo.lock", &line, 0);
        check_line("fuzz/Cargo.lock", &line, 0);
        check_line("docs/a.md", &line, 1);
    }
}
