//! Owns the reading of `X-Metadata-*` headers of an upload: what may be stored with a file, and its bounds. Pure.

use http::HeaderMap;
use std::collections::BTreeMap;

const PREFIX: &str = "x-metadata-";
/// Longest key: the kernel bounds the name of an attribute at 255 bytes, `user.e2b.` included.
const KEY_BYTES_MAX: usize = 246;
/// All keys and values together.
const BYTES_MAX: usize = 4096;

/// The attributes that the headers give; an error says which header is wrong.
pub(crate) fn of(headers: &HeaderMap) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    let mut bytes = 0;
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(PREFIX) else { continue };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(format!("metadata key must have 1 to {KEY_BYTES_MAX} characters"));
        }
        let text = value.as_bytes();
        if !text.iter().all(|b| (0x20..=0x7e).contains(b)) {
            return Err(format!("metadata value of '{key}' must be printable ASCII"));
        }
        bytes += key.len() + text.len();
        if bytes > BYTES_MAX {
            return Err(format!("metadata is larger than {BYTES_MAX} bytes"));
        }
        let text = String::from_utf8_lossy(text).into_owned();
        if found.insert(key.to_owned(), text).is_some() {
            return Err(format!("metadata key '{key}' comes twice"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    fn headers(name: &str, value: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_bytes(name.as_bytes()).unwrap(),
            HeaderValue::from_bytes(value).unwrap(),
        );
        headers
    }

    #[test]
    fn keys_are_lower_case_and_values_printable() {
        assert_eq!(
            of(&headers("X-Metadata-Author", b"me")).unwrap(),
            [("author".into(), "me".into())].into()
        );
        assert!(of(&headers("X-Metadata-", b"me")).is_err());
        assert!(of(&headers("X-Metadata-a", "é".as_bytes())).is_err());
        assert!(of(&headers("X-Metadata-a", b"a\tb")).is_err());
        assert!(of(&headers("X-Metadata-a", &[b'x'; 4096])).is_err());
        assert!(of(&headers(&format!("x-metadata-{}", "k".repeat(247)), b"")).is_err());
        assert!(of(&headers("X-Other", b"\xff")).unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn what_passes_is_bounded(key in "[a-z0-9-]{0,300}", value in prop::collection::vec(0x20u8..=0xff, 0..200)) {
            prop_assume!(HeaderValue::from_bytes(&value).is_ok());
            if let Ok(found) = of(&headers(&format!("x-metadata-{key}"), &value)) {
                prop_assert!(found.iter().all(|(k, v)| k.len() <= KEY_BYTES_MAX && v.is_ascii()));
            }
        }
    }
}
