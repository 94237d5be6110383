//! Owns the target for compressed uploads: what comes out is bounded by what went in, and ends.

#![no_main]

#[allow(dead_code, reason = "only the reading is under test")]
#[path = "../../crates/server/src/api/e2b/envd/encoding.rs"]
mod encoding;

use encoding::Inflate;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut wire = bytes::Bytes::copy_from_slice(bytes);
    let mut inflate = Inflate::new();
    let mut total = 0;
    while !wire.is_empty() && total < 16 << 20 {
        match inflate.pull(&mut wire) {
            Ok(piece) => total += piece.len(),
            Err(_) => return,
        }
    }
    drop(inflate.finish());
});
