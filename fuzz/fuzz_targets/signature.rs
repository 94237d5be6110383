//! Owns the target for signed file URLs: nothing but the right signature opens a file.

#![no_main]

#[allow(dead_code, reason = "only the check is under test")]
#[path = "../../crates/server/src/api/e2b/envd/signature.rs"]
mod signature;

use cofferdam_core::Timestamp;
use cofferdam_core::secret::Secret;
use libfuzzer_sys::fuzz_target;
use signature::{Operation, Signed};

fuzz_target!(|input: (&str, &str, Option<&str>, Option<&str>)| {
    let (path, user, signature, expiration) = input;
    let token = Secret::new("the token of a sandbox".to_owned());
    let request = Signed { path, operation: Operation::Read, user, signature, expiration };
    let now = Timestamp::from_micros(1_767_323_045_678_901);
    if signature::authorize(&token, None, &request, now).is_ok() {
        assert!(signature.is_some_and(|text| signature::is_signed_with(&token, &request, text)));
    }
});
