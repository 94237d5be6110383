//! Owns the target for identifiers: what parses is safe as a file name, as a DNS label and in a log line.

#![no_main]

use cofferdam_core::ids::is_template_name;
use cofferdam_core::{Digest, SandboxId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(id) = text.parse::<SandboxId>() {
        assert!(id.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
        assert!((1..=32).contains(&id.as_str().len()));
    }
    if let Ok(digest) = text.parse::<Digest>() {
        assert_eq!(digest.hex().len(), 64);
    }
    if is_template_name(text) {
        assert!(!text.contains(['/', '.', '\0', ' ']));
    }
});
