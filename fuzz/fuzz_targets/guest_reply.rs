//! Owns the target for what the agent answers, which is hostile: what decodes, encodes to something that decodes to the same.

#![no_main]

use cofferdam_proto::guest::Reply;
use cofferdam_proto::guest::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = decode::<Reply>("guest_reply", bytes) {
        let again = decode::<Reply>("guest_reply", &encode(&message)).expect("what was encoded decodes");
        assert_eq!(message, again);
    }
});
