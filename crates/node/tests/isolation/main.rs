//! Runs the container driver for real: needs root, makes everything below one temporary directory, in a mount namespace
//! of its own, and removes it. Without root every test is skipped.
//!
//! It has no test harness because the program is its own launcher, which must start without threads, and because all
//! tests share one mount namespace, which every thread must be in from its start.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test program")]

mod denial;
mod end;
mod host;
mod life;
mod limits;

use host::Host;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A test: its name is a sentence.
type Test = (&'static str, fn(&Host));

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == "launcher") {
        cofferdam_node::launcher::launcher_main(cofferdam_sys::helper::inherited_socket().unwrap());
    }
    let tests: Vec<Test> =
        [denial::TESTS, life::TESTS, limits::TESTS, end::TESTS].into_iter().flatten().copied().collect();
    if arguments.iter().any(|argument| argument == "--list") {
        if !arguments.iter().any(|argument| argument == "--ignored") {
            tests.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return;
    }
    let is_exact = arguments.iter().any(|argument| argument == "--exact");
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|filter| if is_exact { name == *filter } else { name.contains(*filter) })
    };
    if cofferdam_sys::credentials::effective_uid() != 0 {
        println!("skipped: the isolation tests need root");
        return;
    }
    let host = Host::start();
    let mut failed = 0;
    for (name, test) in tests.into_iter().filter(|(name, _)| is_wanted(name)) {
        let result = catch_unwind(AssertUnwindSafe(|| test(&host)));
        host.destroy_all();
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        failed += usize::from(result.is_err());
    }
    drop(host);
    println!("test result: {}", if failed == 0 { "ok" } else { "FAILED" });
    std::process::exit(i32::from(failed != 0));
}
