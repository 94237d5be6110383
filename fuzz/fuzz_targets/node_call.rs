//! Owns the target for calls from the server to the node: what decodes, encodes to something that decodes to the same.

#![no_main]

use cofferdam_proto::guest::{decode, encode};
use cofferdam_proto::node::Call;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = decode::<Call>("node_call", bytes) {
        let again = decode::<Call>("node_call", &encode(&message)).expect("what was encoded decodes");
        assert_eq!(message, again);
    }
});
