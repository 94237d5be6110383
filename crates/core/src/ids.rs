//! Owns the typed identifiers. Parsing is validation: a value of one of these types is safe to use as a file name,
//! a DNS label (sandbox ids) and in a log line.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An identifier text that does not have the form its type demands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what}: expected {expected}")]
pub struct InvalidId {
    /// Which kind of identifier.
    pub what: &'static str,
    /// The form in words.
    pub expected: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $expected:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { what: $what, expected: $expected })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

fn lower_alnum(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

id!(
    /// One sandbox. Lower-case letters and digits only, because it is also a DNS label part.
    SandboxId, "sandbox id", "1 to 32 lower-case letters or digits", |t| lower_alnum(t, 32)
);
id!(
    /// The owner of everything (E2B's "team").
    TenantId, "tenant id", "1 to 32 lower-case letters or digits", |t| lower_alnum(t, 32)
);
id!(
    /// One template (all its builds).
    TemplateId, "template id", "1 to 32 lower-case letters or digits", |t| lower_alnum(t, 32)
);
id!(
    /// One API key; not the key itself.
    KeyId, "key id", "1 to 32 lower-case letters or digits", |t| lower_alnum(t, 32)
);
id!(
    /// One request of a client, for logs and 500 bodies.
    RequestId, "request id", "1 to 32 lower-case letters or digits", |t| lower_alnum(t, 32)
);
id!(
    /// A content digest, `sha256:` and 64 hex digits.
    Digest, "digest", "`sha256:` and 64 lower-case hex digits", |t| {
        t.strip_prefix("sha256:")
            .is_some_and(|h| h.len() == 64 && h.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
    }
);

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

fn random_text(prefix: char, entropy: [u8; 20]) -> String {
    let letters = entropy.iter().map(|b| char::from(ALPHABET[usize::from(b & 31)]));
    std::iter::once(prefix).chain(letters).collect()
}

macro_rules! from_entropy {
    ($name:ident, $prefix:literal) => {
        impl $name {
            /// Makes an id out of 20 random bytes (100 bits are kept).
            pub fn from_entropy(entropy: [u8; 20]) -> Self {
                Self(random_text($prefix, entropy))
            }
        }
    };
}
from_entropy!(SandboxId, 'i');
from_entropy!(TenantId, 'n');
from_entropy!(TemplateId, 't');
from_entropy!(KeyId, 'k');
from_entropy!(RequestId, 'r');

impl Digest {
    /// The digest of a SHA-256 output.
    pub fn from_sha256(bytes: [u8; 32]) -> Self {
        let mut text = String::with_capacity(71);
        text.push_str("sha256:");
        for byte in bytes {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
            }
        }
        Self(text)
    }

    /// The 64 hex digits without the algorithm.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

/// Checks the short name of a template: what follows an optional `namespace/` and precedes an optional `:tag`.
pub fn is_template_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_parse_again() {
        let id = SandboxId::from_entropy([255; 20]);
        assert_eq!(id.as_str().parse::<SandboxId>().unwrap(), id);
        assert_eq!(id.as_str().len(), 21);
    }

    #[test]
    fn what_could_leave_a_directory_or_a_label_is_refused() {
        for text in ["", "..", "a/b", "A", "a-b", "a.b", "a\0", "é", &"a".repeat(33)] {
            assert!(text.parse::<SandboxId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn digests_are_checked_and_printed() {
        let digest = Digest::from_sha256([0xab; 32]);
        assert_eq!(digest.hex(), "ab".repeat(32));
        assert!("sha256:AB".parse::<Digest>().is_err());
        assert!(serde_json::from_str::<Digest>("\"sha256:xyz\"").is_err());
    }
}
