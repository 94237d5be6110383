//! Owns the rule that every file opens with what it owns and never does.

use super::Finding;
use super::tree::{File, Tree};

/// A Rust file opens with `//!`, a Python file with a docstring, a script of ours with a comment after its first line.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let silent = tree.files().iter().filter(|file| !speaks(file));
    silent.map(|file| Finding::new(&file.path, 1, "does not open with what it owns")).collect()
}

fn speaks(file: &File) -> bool {
    let text = file.text.as_str();
    match file.path.rsplit('.').next() {
        Some("rs") => text.starts_with("//! "),
        Some("py") => body(text).starts_with("\"\"\"") || text.trim().is_empty(),
        Some("mjs" | "js") => text.starts_with("// ") || text.starts_with("/*"),
        _ => true,
    }
}

fn body(text: &str) -> &str {
    match text.strip_prefix("#!") {
        Some(rest) => rest.split_once('\n').map_or("", |(_, body)| body),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_says_nothing_about_itself_fails() {
        let tree = Tree::of(&[
            ("a.rs", "//! Owns a."),
            ("b.rs", "use a;\n//! late"),
            ("c.py", "#!/usr/bin/env python3\n\"\"\"Owns c.\"\"\""),
            ("d.py", "import os"),
            ("e.mjs", "import x from 'y'"),
            ("f.toml", ""),
        ]);
        let found: Vec<String> = check(&tree).into_iter().map(|f| f.file).collect();
        assert_eq!(found, ["b.rs", "d.py", "e.mjs"]);
    }
}
