//! Owns the texts that must not be seen: API keys and access tokens. They have no `Display`, and `Debug` is masked.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A secret text. It can be compared in constant time, given to whoever must send it, and nothing else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the one place that sends or hashes it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares without telling by its time where the difference is.
    pub fn matches(&self, candidate: &str) -> bool {
        let (a, b) = (self.0.as_bytes(), candidate.as_bytes());
        a.len() == b.len() && a.iter().zip(b).fold(0, |diff, (x, y)| diff | (x ^ y)) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// An API key as clients send it: `e2b_` and 40 lower-case hex digits.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(Secret);

impl ApiKey {
    /// Makes a key out of 20 random bytes.
    pub fn from_entropy(entropy: [u8; 20]) -> Self {
        let mut text = String::from("e2b_");
        for byte in entropy {
            text.push_str(&format!("{byte:02x}"));
        }
        Self(Secret::new(text))
    }

    /// Accepts a text of the right form; anything else is no key of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("e2b_")?;
        let valid = hex.len() == 40 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        valid.then(|| Self(Secret::new(text.to_owned())))
    }

    /// The text, for the one place that shows or hashes it.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// What may be shown afterwards: the prefix and the first four digits.
    pub fn masked(&self) -> String {
        format!("{}…", &self.expose()[..8])
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.masked())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let key = ApiKey::from_entropy([7; 20]);
        assert!(!format!("{key:?}").contains(&key.expose()[8..]));
        assert_eq!(format!("{:?}", Secret::new("abc".into())), "Secret(…)");
    }

    #[test]
    fn only_our_own_form_is_a_key() {
        let key = ApiKey::from_entropy([0xfe; 20]);
        assert_eq!(ApiKey::parse(key.expose()), Some(key));
        for text in ["", "e2b_", "e2b_zz", "sk_e2b_00", &format!("e2b_{}", "A".repeat(40))] {
            assert_eq!(ApiKey::parse(text), None, "{text}");
        }
    }

    #[test]
    fn matching_needs_every_byte() {
        let secret = Secret::new("abc".into());
        assert!(secret.matches("abc"));
        assert!(!secret.matches("abd"));
        assert!(!secret.matches("ab"));
    }
}
