//! Whatever bytes change in an archive: an import ends with a tree or an error, and never outside.

use super::Place;
use super::archives::Tar;
use cofferdam_proto::node::ImportFormat;
use proptest::prelude::*;

fn seed() -> Vec<u8> {
    Tar::new()
        .dir("a")
        .file("a/b", "content")
        .link("l", "a")
        .file("l/c", "through a link")
        .hard("h", "a/b")
        .pax(&[("path", b"a/long"), ("SCHILY.xattr.user.x", b"y")])
        .file("x", "z")
        .link("up", "../..")
        .file("up/d", "")
        .done()
}

/// Repairs the checksums, so that a change is not all that is noticed.
fn repair(bytes: &mut [u8]) {
    let mut at = 0;
    while at + 512 <= bytes.len() {
        let mut block: [u8; 512] = bytes[at..at + 512].try_into().unwrap();
        if block[257..262] == *b"ustar" {
            let sum: u32 = block[..148].iter().chain(&block[156..]).map(|byte| u32::from(*byte)).sum();
            block[148..156].copy_from_slice(format!("{:06o}\0 ", sum + 8 * 32).as_bytes());
            bytes[at..at + 512].copy_from_slice(&block);
        }
        at += 512;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn changed_bytes_never_lead_outside(
        changes in prop::collection::vec((0..8192_usize, prop_oneof![any::<u8>(), Just(b'.'), Just(b'/')]), 1..12),
        repaired in any::<bool>(),
        layout in any::<bool>(),
    ) {
        let mut bytes = seed();
        let length = bytes.len();
        for (at, byte) in changes {
            bytes[at % length] = byte;
        }
        if repaired {
            repair(&mut bytes);
        }
        let format = if layout { ImportFormat::OciLayout } else { ImportFormat::Rootfs };
        let _either = Place::new().build(format, bytes);
    }
}
