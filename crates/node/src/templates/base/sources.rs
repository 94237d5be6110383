//! Owns the question where Debian packages come from on this host: what its apt is configured with, and nothing else.

use crate::templates::error::ImportError;
use std::collections::BTreeMap;

/// The suite to install and the lines of all of Debian's suites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sources {
    /// For example `bookworm`.
    pub(super) suite: String,
    /// One-line entries, the one of `suite` first.
    pub(super) lines: Vec<String>,
    /// Settings of apt that reach the mirror, such as a proxy.
    pub(super) apt_options: Vec<String>,
}

/// Components that are Debian's own; other archives that reuse its suite names have others.
const COMPONENTS: [&str; 4] = ["main", "contrib", "non-free", "non-free-firmware"];

/// Asks apt.
pub(super) async fn find() -> Result<Sources, ImportError> {
    let targets = output("apt-get", &["indextargets"]).await?;
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let (suite, lines) = parse(&targets, &release).ok_or_else(|| ImportError::Build {
        problem: "the template `base` is built from Debian packages, but the apt of this host has no Debian \
                  suite configured; import a root file system instead: cofferdam template import"
            .into(),
    })?;
    let settings = output("apt-config", &["dump"]).await?;
    Ok(Sources { suite, lines, apt_options: reaching(&settings) })
}

async fn output(program: &str, arguments: &[&str]) -> Result<String, ImportError> {
    // Started by exec from a process that is about to do nothing else; not on any hot path.
    let ran = tokio::process::Command::new(program).args(arguments).kill_on_drop(true).output().await;
    let ran = ran.map_err(|error| ImportError::Build {
        problem: format!(
            "the template `base` is built with the host's apt, but `{program}` cannot be run: {error}"
        ),
    })?;
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

type Fields<'a> = BTreeMap<&'a str, &'a str>;

fn fields(stanza: &str) -> Fields<'_> {
    stanza.lines().filter_map(|line| line.split_once(": ")).map(|(key, value)| (key, value.trim())).collect()
}

/// The suite and its lines, out of `apt-get indextargets`.
fn parse(targets: &str, os_release: &str) -> Option<(String, Vec<String>)> {
    let host_suite = host_suite(os_release);
    let stanzas = targets.split("\n\n").map(fields);
    let packages = stanzas.filter(|fields| fields.get("Created-By") == Some(&"Packages"));
    let mut archives: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for found in packages.filter(|fields| is_debian(fields, host_suite.as_deref())) {
        let (Some(uri), Some(release), Some(component)) =
            (found.get("Repo-URI"), found.get("Release"), found.get("Component"))
        else {
            continue;
        };
        let components = archives.entry(((*release).to_owned(), (*uri).to_owned())).or_default();
        if !components.iter().any(|known| known == component) {
            components.push((*component).to_owned());
        }
    }
    let plain = |release: &str| !release.contains(['-', '/']);
    let suite = archives.keys().map(|(release, _)| release.clone()).find(|release| plain(release))?;
    let belongs = |release: &str| release == suite || release.starts_with(&format!("{suite}-"));
    archives.retain(|(release, _), _| belongs(release));
    // `bookworm` sorts before `bookworm-updates`, so the plain suite is the first line.
    let line = |((release, uri), components): (&(String, String), &Vec<String>)| {
        format!("deb {uri} {release} {}", components.join(" "))
    };
    Some((suite.clone(), archives.iter().map(line).collect()))
}

/// `Origin` is known only once the lists were fetched; before, the suite of the host itself tells.
fn is_debian(fields: &Fields<'_>, host_suite: Option<&str>) -> bool {
    match fields.get("Origin") {
        Some(origin) if !origin.is_empty() => *origin == "Debian",
        _ => {
            let release = fields.get("Release").copied().unwrap_or_default();
            let component = fields.get("Component").copied().unwrap_or_default();
            host_suite.is_some_and(|suite| release.starts_with(suite)) && COMPONENTS.contains(&component)
        }
    }
}

fn host_suite(os_release: &str) -> Option<String> {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    if value("ID")? == "debian" { value("VERSION_CODENAME").filter(|name| !name.is_empty()) } else { None }
}

/// Proxy settings of apt, in the form that its configuration files have.
fn reaching(settings: &str) -> Vec<String> {
    let wanted = |line: &&str| {
        let lower = line.to_ascii_lowercase();
        lower.starts_with("acquire::") && lower.contains("::proxy") && !line.contains("\"\"")
    };
    settings.lines().filter(wanted).map(|line| line.trim_end_matches(';').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stanza(origin: &str, release: &str, component: &str, uri: &str) -> String {
        format!(
            "MetaKey: x\nOrigin: {origin}\nComponent: {component}\nCreated-By: Packages\n\
             Release: {release}\nRepo-URI: {uri}\n"
        )
    }

    #[test]
    fn only_debian_counts_and_its_plain_suite_comes_first() {
        let targets = [
            stanza("Debian", "trixie-security", "main", "http://mirror.test/security/"),
            stanza("Debian", "trixie", "main", "http://mirror.test/debian/"),
            stanza("Debian", "trixie", "contrib", "http://mirror.test/debian/"),
            stanza("Some Vendor", "trixie", "stable", "http://vendor.test/"),
        ]
        .join("\n");
        let (suite, lines) = parse(&targets, "").unwrap();
        assert_eq!(suite, "trixie");
        assert_eq!(
            lines,
            [
                "deb http://mirror.test/debian/ trixie main contrib",
                "deb http://mirror.test/security/ trixie-security main"
            ]
        );
    }

    #[test]
    fn before_the_first_fetch_the_host_itself_tells_what_debian_is() {
        let targets = [
            stanza("", "bookworm", "main", "http://mirror.test/debian/"),
            stanza("", "bookworm", "stable", "http://vendor.test/"),
        ]
        .join("\n");
        let debian = "ID=debian\nVERSION_CODENAME=bookworm\n";
        let (_, lines) = parse(&targets, debian).unwrap();
        assert_eq!(lines, ["deb http://mirror.test/debian/ bookworm main"]);
        assert_eq!(parse(&targets, "ID=ubuntu\nVERSION_CODENAME=bookworm\n"), None);
        assert_eq!(parse("", debian), None);
    }

    #[test]
    fn a_proxy_of_the_host_is_used_and_nothing_else_is_taken_over() {
        let settings =
            "Acquire::http::Proxy \"http://proxy.test:3128\";\nAcquire::Retries \"3\";\nAPT::X \"1\";\n";
        assert_eq!(reaching(settings), ["Acquire::http::Proxy \"http://proxy.test:3128\""]);
    }
}
