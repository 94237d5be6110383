//! Owns the target for the framing of the agent protocol: any bytes, cut anywhere, give the same frames as in one piece.

#![no_main]

use cofferdam_proto::frame::{Decoder, Frame, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let whole = frames(std::iter::once(bytes));
    let pieces = frames(bytes.chunks(usize::from(cut).max(1)));
    assert_eq!(whole, pieces);
    for frame in &whole.0 {
        let wire = encode(frame.channel, &frame.payload).expect("a frame that was decoded is legal");
        assert_eq!(frames(std::iter::once(wire.as_slice())).0, std::slice::from_ref(frame));
    }
});

fn frames<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, bool) {
    let mut decoder = Decoder::default();
    let mut seen = Vec::new();
    for piece in pieces {
        decoder.feed(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => seen.push(frame),
                Ok(None) => break,
                Err(_) => return (seen, false),
            }
        }
    }
    (seen, true)
}
