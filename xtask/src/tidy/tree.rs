//! Owns what the rules look at: the files of the repository as git sees them, the manifests among them, and the
//! licences of the dependencies. Tests make trees out of texts.

use crate::run;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::Path;

/// A file of the repository.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// Path from the root of the repository.
    pub(crate) path: String,
    /// Its text; files that are no UTF-8 are not looked at.
    pub(crate) text: String,
}

/// A dependency of the workspace, by whatever way it got in.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its SPDX licence expression.
    pub(crate) license: Option<String>,
    /// Where it comes from; none for our own.
    pub(crate) source: Option<String>,
}

/// Everything the rules look at.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: Vec<File>,
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

impl Tree {
    /// Reads the repository at `root`: what git tracks, and what it would track.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let list = run::capture(root, "git", &["ls-files", "-z", "-c", "-o", "--exclude-standard"])?;
        let mut files = Vec::new();
        for path in list.split('\0').filter(|path| !path.is_empty()) {
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(File { path: path.to_owned(), text });
            }
        }
        Ok(Self { files, packages: packages(root)? })
    }

    /// All files.
    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// The Rust files.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// The file of that path.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The manifests of the members of the workspace: short name of the crate (folder) and file.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().filter_map(|file| {
            let folder = file.path.strip_suffix("/Cargo.toml")?;
            match folder.strip_prefix("crates/") {
                Some(name) => Some((name, file)),
                None => (folder == "xtask").then_some((folder, file)),
            }
        })
    }

    /// Everything the workspace links or builds with.
    pub(crate) fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// A tree out of texts.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
        Self { files: files.iter().map(file).collect(), packages: Vec::new() }
    }

    /// A tree that has only dependencies: name and licence.
    #[cfg(test)]
    pub(crate) fn of_packages(packages: &[(&str, Option<&str>)]) -> Self {
        let package = |(name, license): &(&str, Option<&str>)| Package {
            name: (*name).to_owned(),
            license: license.map(str::to_owned),
            source: Some("registry".to_owned()),
        };
        Self { files: Vec::new(), packages: packages.iter().map(package).collect() }
    }
}

fn packages(root: &Path) -> Result<Vec<Package>> {
    let args = ["metadata", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"];
    let json = run::capture(root, "cargo", &args)?;
    let metadata: Metadata = serde_json::from_str(&json).context("read cargo metadata")?;
    Ok(metadata.packages)
}
