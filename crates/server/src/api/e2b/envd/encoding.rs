//! Owns compression on `/files`: which encoding a client gets, and gzip in both directions without holding the content.

use flate2::Compression;
use flate2::write::{GzEncoder, MultiGzDecoder};
use http::{HeaderMap, header};
use std::io::{self, Write};

/// Largest piece that is inflated at once, so that a small piece of input cannot become much memory.
const INFLATE_STEP: usize = 4 * 1024;

/// How much of a file tells whether it compresses.
const SAMPLE_BYTES: usize = 8 * 1024;

/// How content travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As it is.
    Identity,
    /// As gzip.
    Gzip,
}

/// What the client prefers among what is possible; `None` when it accepts nothing of it.
pub(crate) fn accepted(headers: &HeaderMap) -> Option<Encoding> {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for value in headers.get_all(header::ACCEPT_ENCODING) {
        for offer in value.to_str().unwrap_or_default().split(',') {
            let (name, quality) = parse_offer(offer);
            match name.to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => gzip = Some(quality),
                "identity" => identity = Some(quality),
                "*" => any = Some(quality),
                _ => {}
            }
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    match identity.or(any.filter(|quality| *quality == 0)) {
        Some(0) if gzip == 0 => None,
        Some(identity) if identity > gzip => Some(Encoding::Identity),
        Some(_) | None if gzip > 0 => Some(Encoding::Gzip),
        Some(_) | None => Some(Encoding::Identity),
    }
}

/// Name and quality in thousandths.
fn parse_offer(offer: &str) -> (&str, u32) {
    let mut parts = offer.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let thousandths =
        quality.map_or(1000.0, |text| text.trim().parse::<f32>().unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=1000")]
    let thousandths = thousandths as u32;
    (name, thousandths)
}

/// How an uploaded body is encoded, by its header.
pub(crate) fn of_upload(headers: &HeaderMap) -> Result<Encoding, String> {
    let Some(value) = headers.get(header::CONTENT_ENCODING) else { return Ok(Encoding::Identity) };
    match value.to_str().unwrap_or("?").trim().to_ascii_lowercase().as_str() {
        "" | "identity" => Ok(Encoding::Identity),
        "gzip" | "x-gzip" => Ok(Encoding::Gzip),
        other => Err(format!("unsupported Content-Encoding: {other}")),
    }
}

/// True when content that begins like this does not get smaller by compression. Short content never counts.
pub(crate) fn is_dense(first: &[u8]) -> bool {
    let Some(sample) = first.first_chunk::<SAMPLE_BYTES>() else { return false };
    let mut deflate = Deflate::new();
    let made = deflate.push(sample).and_then(|begun| Ok(begun.len() + deflate.finish()?.len()));
    made.is_ok_and(|bytes| bytes > SAMPLE_BYTES / 20 * 19)
}

/// Compresses a stream piece by piece.
pub(crate) struct Deflate(GzEncoder<Vec<u8>>);

impl Deflate {
    /// At the start of a stream.
    pub(crate) fn new() -> Self {
        Self(GzEncoder::new(Vec::new(), Compression::fast()))
    }

    /// What comes out for a piece; may be nothing yet.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(bytes)?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    /// The rest.
    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        self.0.finish()
    }
}

/// Decompresses a stream piece by piece.
pub(crate) struct Inflate {
    decoder: MultiGzDecoder<Vec<u8>>,
    fed: bool,
}

impl Inflate {
    /// At the start of a stream.
    pub(crate) fn new() -> Self {
        Self { decoder: MultiGzDecoder::new(Vec::new()), fed: false }
    }

    /// Takes from the front of `bytes` and gives what comes out.
    pub(crate) fn pull(&mut self, bytes: &mut bytes::Bytes) -> io::Result<Vec<u8>> {
        let piece = bytes.split_to(bytes.len().min(INFLATE_STEP));
        self.fed |= !piece.is_empty();
        self.decoder.write_all(&piece)?;
        self.decoder.flush()?;
        Ok(std::mem::take(self.decoder.get_mut()))
    }

    /// The rest; a stream that is cut short is an error.
    pub(crate) fn finish(mut self) -> io::Result<Vec<u8>> {
        if !self.fed {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.decoder.try_finish()?;
        Ok(std::mem::take(self.decoder.get_mut()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    #[track_caller]
    fn check(header: &str, expected: Option<Encoding>) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(header).unwrap());
        assert_eq!(accepted(&headers), expected, "{header}");
    }

    #[test]
    fn the_client_decides() {
        assert_eq!(accepted(&HeaderMap::new()), Some(Encoding::Identity));
        check("gzip, deflate, br", Some(Encoding::Gzip));
        check("identity", Some(Encoding::Identity));
        check("deflate", Some(Encoding::Identity));
        check("gzip;q=0", Some(Encoding::Identity));
        check("gzip;q=0.5, identity;q=0.9", Some(Encoding::Identity));
        check("*", Some(Encoding::Gzip));
        check("identity;q=0", None);
        check("*;q=0", None);
        check("br, identity;q=0", None);
        check("gzip, *;q=0", Some(Encoding::Gzip));
    }

    fn inflate(wire: &[u8]) -> io::Result<Vec<u8>> {
        let (mut inflate, mut bytes, mut out) =
            (Inflate::new(), bytes::Bytes::copy_from_slice(wire), Vec::new());
        while !bytes.is_empty() {
            out.extend(inflate.pull(&mut bytes)?);
        }
        out.extend(inflate.finish()?);
        Ok(out)
    }

    #[test]
    fn what_does_not_compress_is_told_by_its_beginning() {
        assert!(!is_dense(b"short"));
        assert!(!is_dense(&[b'a'; 20_000]));
        let mut state = 1u32;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        });
        assert!(is_dense(&noise.take(20_000).collect::<Vec<_>>()));
    }

    #[test]
    fn a_cut_stream_is_an_error() {
        let mut deflate = Deflate::new();
        let mut wire = deflate.push(b"hello").unwrap();
        wire.extend(deflate.finish().unwrap());
        assert_eq!(inflate(&wire).unwrap(), b"hello");
        assert!(inflate(&wire[..wire.len() - 9]).is_err());
        assert!(inflate(b"").is_err());
        assert!(inflate(b"plain text").is_err());
    }

    proptest! {
        #[test]
        fn content_survives_both_directions(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..6)) {
            let mut deflate = Deflate::new();
            let mut wire = Vec::new();
            for piece in &pieces {
                wire.extend(deflate.push(piece).unwrap());
            }
            wire.extend(deflate.finish().unwrap());
            prop_assert_eq!(inflate(&wire).unwrap(), pieces.concat());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            drop(inflate(&bytes));
        }

        #[test]
        fn any_accept_header_has_an_answer(text in "[ -~]{0,60}") {
            check_any(&text);
        }
    }

    fn check_any(text: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(text).unwrap());
        accepted(&headers);
    }
}
