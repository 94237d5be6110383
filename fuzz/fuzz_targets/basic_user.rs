//! Owns the target for the header that selects a user.

#![no_main]

#[path = "../../crates/server/src/api/e2b/envd/user.rs"]
mod user;

use cofferdam_proto::guest::User;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|header: &str| {
    if let User::Named(name) = user::from_basic(Some(header)) {
        assert!(!name.is_empty());
    }
});
