//! Owns the configuration: one typed document, read once, checked once, passed by value. It never changes afterwards.
//!
//! Sources, later wins: defaults, the TOML file (`--config`, else `DATA/config.toml` when it exists), flags.

use anyhow::{Context, Result, bail, ensure};
use cofferdam_core::Resources;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Everything that can be set. An unknown field refuses to boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Holds everything that the server keeps; deleting it removes everything.
    pub data_dir: PathBuf,
    /// Where clients connect. Loopback unless told otherwise.
    pub listen: SocketAddr,
    /// Name under which sandboxes are reached, `NAME[:PORT]`; needed for `{port}-{id}.NAME` host names only.
    pub domain: Option<String>,
    /// The first key is written here (mode 0600) instead of being shown.
    pub api_key_file: Option<PathBuf>,
    /// The unprivileged role.
    pub api: ApiConfig,
    /// The privileged role.
    pub node: NodeConfig,
    /// Limits of a sandbox whose creator names none.
    pub defaults: Resources,
    /// What the first tenant may use at one time.
    pub quota: QuotaConfig,
}

/// Settings of the api role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApiConfig {
    /// Numeric user it runs as; no account of that number needs to exist.
    pub uid: u32,
    /// Numeric group it runs as.
    pub gid: u32,
}

/// Settings of the node role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeConfig {
    /// Largest number of sandboxes at one time.
    pub sandboxes_max: u32,
    /// Shells kept parked ahead of need.
    pub parked: u32,
    /// Sandboxes of the template `base` kept booted ahead of need.
    pub warm: u32,
    /// Size that the disk image of all sandboxes may grow to, in MiB; 0 takes 80 % of the free space.
    pub disk_image_mib: u64,
    /// Where built root file systems are kept for other data directories; safe to delete at any time.
    pub cache_dir: PathBuf,
}

/// What a tenant may use at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QuotaConfig {
    /// Sandboxes.
    pub sandboxes: u32,
    /// Sum of CPU shares, in thousandths of a CPU.
    pub cpu_millis: u64,
    /// Sum of memory limits, in MiB.
    pub memory_mib: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("/var/lib/cofferdam"),
            listen: SocketAddr::from(([127, 0, 0, 1], 3000)),
            domain: None,
            api_key_file: None,
            api: ApiConfig::default(),
            node: NodeConfig::default(),
            defaults: Resources::default(),
            quota: QuotaConfig::default(),
        }
    }
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self { uid: 61_000, gid: 61_000 }
    }
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            sandboxes_max: 2000,
            parked: 8,
            warm: 8,
            disk_image_mib: 0,
            cache_dir: PathBuf::from("/var/cache/cofferdam"),
        }
    }
}

impl Default for QuotaConfig {
    fn default() -> Self {
        Self { sandboxes: 1000, cpu_millis: 4_000_000, memory_mib: 1024 * 1024 }
    }
}

/// What flags may set.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Flags {
    /// Directory that holds everything; made if missing
    #[arg(long, value_name = "DIR", env = "COFFERDAM_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Address that clients connect to
    #[arg(long, value_name = "ADDR:PORT", env = "COFFERDAM_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Write the first API key here (mode 0600) instead of showing it
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Name under which sandboxes are reached as {port}-{id}.NAME
    #[arg(long, value_name = "NAME[:PORT]")]
    pub domain: Option<String>,
    /// Configuration file; DATA/config.toml if it exists
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl Config {
    /// Reads all sources and checks the result.
    pub(crate) fn load(flags: &Flags) -> Result<Self> {
        let mut config = match Self::file(flags) {
            Some(path) => {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("read configuration `{}`", path.display()))?;
                toml::from_str(&text).map_err(|error| in_one_line(&path, &text, &error))?
            }
            None => Self::default(),
        };
        if let Some(dir) = &flags.data_dir {
            config.data_dir.clone_from(dir);
        }
        if let Some(listen) = flags.listen {
            config.listen = listen;
        }
        if flags.api_key_file.is_some() {
            config.api_key_file.clone_from(&flags.api_key_file);
        }
        if flags.domain.is_some() {
            config.domain.clone_from(&flags.domain);
        }
        config.absolute_paths()?;
        config.validate()?;
        Ok(config)
    }

    fn file(flags: &Flags) -> Option<PathBuf> {
        let inside = |dir: &Path| Some(dir.join("config.toml")).filter(|path| path.exists());
        let default_dir = Self::default().data_dir;
        flags.config.clone().or_else(|| inside(flags.data_dir.as_deref().unwrap_or(&default_dir)))
    }

    /// The roles run with the data directory as their working directory, so every path is made absolute first.
    fn absolute_paths(&mut self) -> Result<()> {
        let current = std::env::current_dir().context("find the working directory")?;
        self.data_dir = current.join(&self.data_dir);
        self.node.cache_dir = current.join(&self.node.cache_dir);
        self.api_key_file = self.api_key_file.take().map(|path| current.join(path));
        Ok(())
    }

    fn validate(&self) -> Result<()> {
        self.defaults.validate().context("configuration `defaults`")?;
        ensure!(self.api.uid != 0 && self.api.gid != 0, "configuration `api`: uid and gid must not be 0");
        ensure!(
            (1..=50_000).contains(&self.node.sandboxes_max),
            "configuration `node.sandboxes_max` must be between 1 and 50000, got {}",
            self.node.sandboxes_max
        );
        for (name, value) in [("parked", self.node.parked), ("warm", self.node.warm)] {
            ensure!(value <= 256, "configuration `node.{name}` must be at most 256, got {value}");
        }
        if let Some(domain) = &self.domain {
            check_domain(domain)?;
        }
        Ok(())
    }
}

fn check_domain(domain: &str) -> Result<()> {
    let (name, port) = domain.split_once(':').map_or((domain, None), |(name, port)| (name, Some(port)));
    let label =
        |l: &str| !l.is_empty() && l.len() <= 63 && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let valid = name.len() <= 200 && name.split('.').all(label);
    if !valid || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        bail!("configuration `domain` must be NAME or NAME:PORT, got `{domain}`");
    }
    Ok(())
}

/// What is wrong with a document and where, without the picture that the parser would draw over several lines.
fn in_one_line(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let start = error.span().map_or(0, |span| span.start);
    let line = text.get(..start).unwrap_or_default().matches('\n').count() + 1;
    let message = error.message().replace('\n', ", ");
    anyhow::anyhow!("configuration `{}`, line {line}: {message}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_legal_and_safe() {
        let config = Config::default();
        config.validate().unwrap();
        assert!(config.listen.ip().is_loopback());
    }

    #[test]
    fn an_unknown_field_refuses_to_boot() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), "lisen = \"127.0.0.1:1\"\n").unwrap();
        let flags = Flags { data_dir: Some(dir.path().to_owned()), ..Flags::default() };
        let error = format!("{:#}", Config::load(&flags).unwrap_err());
        assert!(error.contains("lisen"), "{error}");
    }

    #[test]
    fn flags_win_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("config.toml"), "domain = \"a.test\"\n[node]\nwarm = 3\n").unwrap();
        let flags = Flags {
            data_dir: Some(dir.path().to_owned()),
            domain: Some("b.test:8443".into()),
            ..Flags::default()
        };
        let config = Config::load(&flags).unwrap();
        assert_eq!(config.domain.as_deref(), Some("b.test:8443"));
        assert_eq!(config.node.warm, 3);
    }

    #[test]
    fn bad_values_are_named() {
        for domain in ["", "a..b", "a b", "a:x", "a:99999", "-\u{e9}"] {
            assert!(check_domain(domain).is_err(), "{domain:?}");
        }
        let config = Config { api: ApiConfig { uid: 0, gid: 1 }, ..Config::default() };
        assert!(config.validate().is_err());
        let config = Config { node: NodeConfig { warm: 257, ..NodeConfig::default() }, ..Config::default() };
        assert!(config.validate().unwrap_err().to_string().contains("node.warm"));
    }
}
