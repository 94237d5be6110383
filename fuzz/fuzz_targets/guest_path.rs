//! Owns the target for paths as clients name them: what comes out is absolute and clean.

#![no_main]

#[allow(dead_code, reason = "the errors of the whole agent")]
#[path = "../../crates/agent/src/failure.rs"]
mod failure;
#[allow(dead_code, reason = "only the resolution is under test")]
#[path = "../../crates/agent/src/paths.rs"]
mod paths;

use libfuzzer_sys::fuzz_target;
use std::path::Component;

fuzz_target!(|input: (&str, &str)| {
    let (path, workdir) = input;
    if let Ok(resolved) = paths::resolve(path, "/home/user", workdir) {
        assert!(resolved.is_absolute());
        assert!(resolved.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_))));
    }
});
