//! Owns the largest size of a file. Functions and parameters are bounded by clippy.

use super::Finding;
use super::tree::Tree;

const LINES_MAX: usize = 800;
const CODE: &[&str] = &["rs", "py", "mjs", "js", "sh"];

/// No file of code is longer than `LINES_MAX`, its tests included.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        let is_code = file.path.rsplit('.').next().is_some_and(|ending| CODE.contains(&ending));
        let lines = file.text.lines().count();
        if is_code && lines > LINES_MAX {
            findings.push(Finding::new(&file.path, lines, format!("{lines} lines, at most {LINES_MAX}")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_largest_size_passes_and_one_line_more_fails() {
        let count = |lines: usize| check(&Tree::of(&[("a.rs", &"\n".repeat(lines))])).len();
        assert_eq!(count(LINES_MAX), 0);
        assert_eq!(count(LINES_MAX + 1), 1);
    }
}
