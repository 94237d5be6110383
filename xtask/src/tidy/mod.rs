//! Owns the rules of the house that no compiler checks. Each rule is a pure function from the tree to findings, is on
//! the list `RULES`, and has a test that shows it fail. Never changes a file.

mod arrows;
mod forms;
mod heads;
mod hosts;
mod licences;
mod lints;
pub(crate) mod parsers;
mod sizes;
pub(crate) mod skips;
mod source;
mod syscalls;
mod tree;

use crate::print;
use anyhow::Result;
use std::path::Path;
use std::process::ExitCode;
use tree::Tree;

/// Something that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    file: String,
    line: usize,
    what: String,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, what: what.into() }
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

/// Every rule. Their order is that of the output.
const RULES: &[(&str, Rule)] = &[
    ("arrows between crates", arrows::crates),
    ("arrows between modules", arrows::modules),
    ("versions in one place", arrows::versions),
    ("lints are inherited", lints::inheritance),
    ("raw system calls live in sys", syscalls::dependencies),
    ("unsafe lives in sys", syscalls::unsafe_code),
    ("every file says what it owns", heads::check),
    ("sizes", sizes::check),
    ("forms of code", forms::check),
    ("every parser has a fuzz target", parsers::check),
    ("skips are listed", skips::check),
    ("no registry by host name", hosts::check),
    ("licences", licences::check),
];

/// `cargo xtask tidy`.
pub(crate) fn main(root: &Path) -> Result<ExitCode> {
    let tree = Tree::load(root)?;
    let mut broken = 0;
    for (name, rule) in RULES {
        let mut findings = rule(&tree);
        findings.sort();
        for finding in &findings {
            print::line(&format!("{}:{}: {name}: {}", finding.file, finding.line, finding.what));
        }
        broken += findings.len();
    }
    if broken > 0 {
        print::error(&format!("tidy: {broken} findings"));
        return Ok(ExitCode::FAILURE);
    }
    print::line(&format!("tidy: {} rules, {} files, nothing found", RULES.len(), tree.files().len()));
    Ok(ExitCode::SUCCESS)
}
