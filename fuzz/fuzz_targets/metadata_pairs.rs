//! Owns the target for the filter by metadata, which arrives encoded up to three times.

#![no_main]

#[path = "../../crates/server/src/api/e2b/pairs.rs"]
mod pairs;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(pairs) = pairs::decode(text) {
        assert!(pairs.len() <= text.split('&').count());
    }
});
