//! Owns the list of tests that may skip. `cargo xtask test` compares what skipped with it; here it only has to be in
//! order.

use super::Finding;
use super::tree::Tree;
use std::collections::BTreeSet;

/// Where the list is.
pub(crate) const PATH: &str = "e2e/skips.txt";

/// The list exists, is sorted, and names nothing twice.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.file(PATH) else {
        return vec![Finding::new(PATH, 1, "is missing")];
    };
    let names: Vec<&str> = entries(&file.text).collect();
    let in_order: Vec<&str> = names.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    if names == in_order {
        Vec::new()
    } else {
        vec![Finding::new(PATH, 1, "is not sorted, or names a test twice")]
    }
}

/// The tests that may skip: what is on each line before a `#`.
pub(crate) fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.split('#').next()).map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_in_order_passes_and_every_other_fails() {
        let count = |text| check(&Tree::of(&[(PATH, text)])).len();
        assert_eq!(count("# why\na  # no kvm\nb\n"), 0);
        assert_eq!(count("b\na\n"), 1);
        assert_eq!(count("a\na\n"), 1);
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
