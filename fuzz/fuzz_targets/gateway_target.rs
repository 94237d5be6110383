//! Owns the target for what a request says about where it belongs: a sandbox it names is one that can exist.

#![no_main]

#[allow(dead_code, reason = "only the decision is under test")]
#[path = "../../crates/server/src/gateway/target.rs"]
mod target;

use libfuzzer_sys::fuzz_target;
use target::{Address, Target};

fuzz_target!(|input: (&str, Option<&str>, Option<&str>)| {
    let (host, sandbox, port) = input;
    if let Ok(Target::Sandbox { id, .. }) = (Address { host, domain: Some("own.test"), sandbox, port }).target() {
        assert!(id.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
    }
});
