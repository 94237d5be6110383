//! Owns what the chores say: lines for people on standard output, complaints on standard error.

use std::io::Write;

/// One line on standard output. A closed pipe is not worth a failure.
#[expect(clippy::print_stdout, reason = "the one place of this program that prints")]
pub(crate) fn line(text: &str) {
    println!("{text}");
    if std::io::stdout().flush().is_err() {
        std::process::exit(1);
    }
}

/// One line on standard error.
#[expect(clippy::print_stderr, reason = "the one place of this program that complains")]
pub(crate) fn error(text: &str) {
    eprintln!("error: {text}");
}
