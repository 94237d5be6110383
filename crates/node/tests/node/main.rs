//! Runs whole nodes for real: needs root, makes everything below one temporary directory, in a mount namespace of its own,
//! and removes it. Without root every test is skipped.
//!
//! It has no test harness because the program is its own node and launcher, so that a node can be killed like any process,
//! and because everything shares one mount namespace, which every thread must be in from its start.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a test program")]

mod bed;
mod client;
mod life;
mod restart;

use bed::Bed;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A test: its name is a sentence.
type Test = (&'static str, fn(&mut Bed));

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("launcher") => {
            cofferdam_node::launcher::launcher_main(cofferdam_sys::helper::inherited_socket().unwrap())
        }
        Some("node") => return bed::run_node(&arguments[1..]),
        _ => {}
    }
    let tests: Vec<Test> = [life::TESTS, restart::TESTS].into_iter().flatten().copied().collect();
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
        println!("skipped: the tests of whole nodes need root");
        return;
    }
    let mut bed = Bed::make();
    let mut failed = 0;
    for (name, test) in tests.into_iter().filter(|(name, _)| is_wanted(name)) {
        let result = catch_unwind(AssertUnwindSafe(|| {
            bed.start(bed::SIZES);
            test(&mut bed);
            bed.settle();
        }));
        bed.end();
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        failed += usize::from(result.is_err());
    }
    drop(bed);
    println!("test result: {}", if failed == 0 { "ok" } else { "FAILED" });
    std::process::exit(i32::from(failed != 0));
}
