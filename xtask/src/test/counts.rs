//! Owns how many tests passed, failed and skipped, and reading that out of what the runners print.

use std::fmt;

/// Tests of a stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Those that passed.
    pub(crate) passed: usize,
    /// Those that failed.
    pub(crate) failed: usize,
    /// Those that did not run, for a listed reason.
    pub(crate) skipped: usize,
}

impl Counts {
    /// One thing that passed, or failed.
    pub(crate) fn of(passed: bool) -> Self {
        if passed { Self { passed: 1, ..Self::default() } } else { Self::one_failed() }
    }

    /// One thing that failed.
    pub(crate) fn one_failed() -> Self {
        Self { failed: 1, ..Self::default() }
    }

    /// Adds those of another stage.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    /// A runner that ended badly without a failed test has failed all the same; so has one that ran nothing.
    #[must_use]
    pub(crate) fn settle(mut self, ended_well: bool) -> Self {
        if self.failed == 0 && (!ended_well || self.passed + self.skipped == 0) {
            self.failed = 1;
        }
        self
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Reads the summaries of `cargo test` and `cargo nextest run`.
pub(crate) fn of_cargo(text: &str) -> Counts {
    let mut counts = Counts::default();
    for line in text.lines().map(str::trim_start) {
        let summary = line.strip_prefix("test result:").or_else(|| line.strip_prefix("Summary"));
        for (number, word) in summary.into_iter().flat_map(numbered_words) {
            match word {
                "passed" => counts.passed += number,
                "failed" => counts.failed += number,
                "ignored" | "skipped" => counts.skipped += number,
                _ => {}
            }
        }
    }
    counts
}

/// Reads the summary of node's test runner (TAP): counts and the names of skipped tests.
pub(crate) fn of_tap(text: &str) -> (Counts, Vec<String>) {
    let mut counts = Counts::default();
    let mut skips = Vec::new();
    for line in text.lines().map(str::trim) {
        let number = |prefix: &str| line.strip_prefix(prefix).and_then(|rest| rest.parse::<usize>().ok());
        if let Some(passed) = number("# pass ") {
            counts.passed += passed;
        } else if let Some(failed) = number("# fail ").or_else(|| number("# cancelled ")) {
            counts.failed += failed;
        } else if let Some((head, _)) = line.split_once(" # SKIP") {
            skips.extend(head.split_once(" - ").map(|(_, name)| name.to_owned()));
        }
    }
    counts.skipped = skips.len();
    (counts, skips)
}

/// Reads the report that our pytest plug-in writes, a line a test: verdict and name.
pub(crate) fn of_report(text: &str) -> (Counts, Vec<String>) {
    let mut counts = Counts::default();
    let mut skips = Vec::new();
    for (verdict, name) in text.lines().filter_map(|line| line.split_once(' ')) {
        match verdict {
            "passed" => counts.passed += 1,
            "skipped" => skips.push(name.to_owned()),
            _ => counts.failed += 1,
        }
    }
    counts.skipped = skips.len();
    (counts, skips)
}

/// Pairs such as `3 passed`.
fn numbered_words(text: &str) -> Vec<(usize, &str)> {
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|word| !word.is_empty()).collect();
    words.windows(2).filter_map(|pair| Some((pair[0].parse().ok()?, pair[1].trim_end_matches('.')))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: usize, failed: usize, skipped: usize) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn both_runners_of_cargo_are_read() {
        let text = "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
                    test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured";
        assert_eq!(of_cargo(text), counts(7, 1, 1));
        assert_eq!(
            of_cargo("     Summary [   3.010s] 57 tests run: 56 passed (1 slow), 1 failed, 2 skipped"),
            counts(56, 1, 2)
        );
    }

    #[test]
    fn tap_is_read_with_its_skips() {
        let text = "ok 1 - writes a file\nok 2 - needs kvm # SKIP no kvm\n# pass 1\n# fail 0\n# cancelled 0\n# skipped 1";
        assert_eq!(of_tap(text), (counts(1, 0, 1), vec!["needs kvm".to_owned()]));
    }

    #[test]
    fn our_own_report_is_read_with_its_skips() {
        let text = "passed a.py::x\nfailed a.py::y[1 2]\nskipped b.py::z\nerror c.py::w";
        assert_eq!(of_report(text), (counts(1, 2, 1), vec!["b.py::z".to_owned()]));
    }

    #[test]
    fn a_runner_that_fails_or_runs_nothing_has_failed() {
        assert_eq!(counts(3, 0, 0).settle(false), counts(3, 1, 0));
        assert_eq!(counts(0, 0, 0).settle(true), counts(0, 1, 0));
        assert_eq!(counts(3, 0, 0).settle(true), counts(3, 0, 0));
        assert_eq!(counts(3, 2, 0).settle(false), counts(3, 2, 0));
    }
}
