//! Owns the target for instants: what parses prints to a text that parses to the same.

#![no_main]

use cofferdam_core::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(at) = Timestamp::parse_rfc3339(text) {
        assert_eq!(Timestamp::parse_rfc3339(&at.to_string()), Ok(at));
    }
});
