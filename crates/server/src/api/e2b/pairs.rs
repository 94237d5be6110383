//! Owns the decoding of the `metadata` filter. SDKs encode every key and value, then form-encode the pairs, then put the
//! text into a query parameter; plain `k=v` of other clients survives the same decoding.

use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// A filter that is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Invalid metadata filter: not UTF-8")]
pub(crate) struct InvalidPairs;

/// Decodes the value of the query parameter, which was percent-decoded once already.
pub(crate) fn decode(parameter: &str) -> Result<BTreeMap<String, String>, InvalidPairs> {
    let mut pairs = BTreeMap::new();
    for pair in parameter.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        pairs.insert(decode_twice(key)?, decode_twice(value)?);
    }
    Ok(pairs)
}

fn decode_twice(text: &str) -> Result<String, InvalidPairs> {
    let form = decode_once(&text.replace('+', " "))?;
    decode_once(&form)
}

fn decode_once(text: &str) -> Result<String, InvalidPairs> {
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| InvalidPairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    use proptest::prelude::*;

    fn encode(text: &str) -> String {
        utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
    }

    #[test]
    fn plain_pairs_survive() {
        let pairs = decode("a=b&c=d e&flag").unwrap();
        let expected = [("a", "b"), ("c", "d e"), ("flag", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(pairs, expected.into());
        assert_eq!(decode("").unwrap(), BTreeMap::new());
    }

    #[test]
    fn broken_utf8_is_refused() {
        assert_eq!(decode("a=%25ff"), Err(InvalidPairs));
        assert_eq!(decode("%ff=a"), Err(InvalidPairs));
    }

    proptest! {
        #[test]
        fn what_an_sdk_encodes_comes_back(pairs in prop::collection::btree_map(".{1,20}", ".{0,20}", 0..5)) {
            let form: Vec<_> = pairs.iter().map(|(k, v)| format!("{}={}", encode(&encode(k)), encode(&encode(v)))).collect();
            prop_assert_eq!(decode(&form.join("&")).unwrap(), pairs);
        }

        #[test]
        fn any_text_has_an_answer(text in ".{0,200}") {
            if let Ok(pairs) = decode(&text) {
                prop_assert!(pairs.len() <= text.len() + 1);
            }
        }
    }
}
