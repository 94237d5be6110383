//! Owns the target for calls to the agent: what decodes, encodes to something that decodes to the same.

#![no_main]

use cofferdam_proto::guest::Call;
use cofferdam_proto::guest::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = decode::<Call>("guest_call", bytes) {
        let again = decode::<Call>("guest_call", &encode(&message)).expect("what was encoded decodes");
        assert_eq!(message, again);
    }
});
