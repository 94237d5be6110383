//! Owns the target for messages from the node to the server: what decodes, encodes to something that decodes to the same.

#![no_main]

use cofferdam_proto::guest::{decode, encode};
use cofferdam_proto::node::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = decode::<Message>("node_message", bytes) {
        let again = decode::<Message>("node_message", &encode(&message)).expect("what was encoded decodes");
        assert_eq!(message, again);
    }
});
