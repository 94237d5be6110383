//! Owns the target for the name of an uploaded file as a part of a form gives it.

#![no_main]

#[allow(dead_code, reason = "only the reading is under test")]
#[path = "../../crates/server/src/api/e2b/envd/disposition.rs"]
mod disposition;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|header: &str| {
    if let Some(name) = disposition::file_name(header) {
        assert!(name.len() <= header.len());
        assert!(disposition::inline(&name).is_ascii());
    }
});
