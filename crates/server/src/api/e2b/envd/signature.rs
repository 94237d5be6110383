//! Owns the rule by which a file request is authorised: the access token in a header, or a signature made with it.
//! Pure; the clock is a parameter.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use cofferdam_core::Timestamp;
use cofferdam_core::secret::Secret;
use sha2::{Digest, Sha256};

/// What a file request wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Download.
    Read,
    /// Upload.
    Write,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The parts of a file request that a signature covers, as the query has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed<'a> {
    /// Raw value of `path`.
    pub(crate) path: &'a str,
    /// What is asked for.
    pub(crate) operation: Operation,
    /// Value of `username`, or empty.
    pub(crate) user: &'a str,
    /// Value of `signature`.
    pub(crate) signature: Option<&'a str>,
    /// Value of `signature_expiration`.
    pub(crate) expiration: Option<&'a str>,
}

/// Why a request is not authorised. The texts are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unauthorized {
    /// A token came that is not the one of the sandbox.
    #[error("access token present in header but does not match")]
    TokenMismatch,
    /// Nothing came.
    #[error("missing signature query parameter")]
    MissingSignature,
    /// A signature came that does not belong to this request.
    #[error("invalid signature")]
    InvalidSignature,
    /// The signature was right once.
    #[error("signature is already expired")]
    Expired,
}

/// Decides whether a file request may pass: `token` is what the sandbox demands, `header` what came.
pub(crate) fn authorize(
    token: &Secret,
    header: Option<&str>,
    request: &Signed<'_>,
    now: Timestamp,
) -> Result<(), Unauthorized> {
    if let Some(candidate) = header {
        return if token.matches(candidate) { Ok(()) } else { Err(Unauthorized::TokenMismatch) };
    }
    let signature = request.signature.ok_or(Unauthorized::MissingSignature)?;
    if !is_signed_with(token, request, signature) {
        return Err(Unauthorized::InvalidSignature);
    }
    match request.expiration {
        Some(text) if !is_later(text, now) => Err(Unauthorized::Expired),
        Some(_) | None => Ok(()),
    }
}

/// True when the signature of the request was made with this token; says nothing about its expiry.
pub(crate) fn is_signed_with(token: &Secret, request: &Signed<'_>, signature: &str) -> bool {
    Secret::new(sign(token, request)).matches(signature)
}

fn sign(token: &Secret, request: &Signed<'_>) -> String {
    let mut hash = Sha256::new();
    for part in [request.path, ":", request.operation.as_str(), ":", request.user, ":", token.expose()] {
        hash.update(part);
    }
    if let Some(expiration) = request.expiration {
        hash.update(":");
        hash.update(expiration);
    }
    format!("v1_{}", STANDARD_NO_PAD.encode(hash.finalize()))
}

/// `text` is unix seconds; anything that is no number lies in the past.
fn is_later(text: &str, now: Timestamp) -> bool {
    text.parse::<i64>().is_ok_and(|seconds| seconds.saturating_mul(1_000_000) > now.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_800_000_000_000_000;

    fn signed<'a>(signature: Option<&'a str>, expiration: Option<&'a str>) -> Signed<'a> {
        Signed { path: "/home/user/x", operation: Operation::Read, user: "user", signature, expiration }
    }

    fn token() -> Secret {
        Secret::new("token".into())
    }

    #[track_caller]
    fn check(header: Option<&str>, request: &Signed<'_>, expected: Result<(), Unauthorized>) {
        assert_eq!(authorize(&token(), header, request, Timestamp::from_micros(NOW)), expected);
    }

    #[test]
    fn the_signature_is_the_one_that_the_sdks_make() {
        // python3 -c 'import base64,hashlib; print(base64.b64encode(hashlib.sha256(b"/home/user/x:read:user:token").digest()))'
        let made = sign(&token(), &signed(None, None));
        assert_eq!(made, "v1_7WZwIcqUt2Fj0yBilqSOhwz/BOwo+31n4qDcMNzPcPM");
    }

    #[test]
    fn a_signature_opens_exactly_its_request() {
        let made = sign(&token(), &signed(None, None));
        check(None, &signed(Some(&made), None), Ok(()));
        check(
            None,
            &Signed { path: "/home/user/y", ..signed(Some(&made), None) },
            Err(Unauthorized::InvalidSignature),
        );
        let write = Signed { operation: Operation::Write, ..signed(Some(&made), None) };
        check(None, &write, Err(Unauthorized::InvalidSignature));
        check(None, &Signed { user: "", ..signed(Some(&made), None) }, Err(Unauthorized::InvalidSignature));
        check(None, &signed(Some(&made), Some("9999999999")), Err(Unauthorized::InvalidSignature));
        check(None, &signed(None, None), Err(Unauthorized::MissingSignature));
    }

    #[test]
    fn expiry_counts_after_the_match() {
        let late = sign(&token(), &signed(None, Some("1")));
        check(None, &signed(Some(&late), Some("1")), Err(Unauthorized::Expired));
        let nonsense = sign(&token(), &signed(None, Some("soon")));
        check(None, &signed(Some(&nonsense), Some("soon")), Err(Unauthorized::Expired));
        let good = sign(&token(), &signed(None, Some("1800000001")));
        check(None, &signed(Some(&good), Some("1800000001")), Ok(()));
    }

    #[test]
    fn a_token_in_the_header_decides_alone() {
        check(Some("token"), &signed(None, None), Ok(()));
        let made = sign(&token(), &signed(None, None));
        check(Some("other"), &signed(Some(&made), None), Err(Unauthorized::TokenMismatch));
    }

    proptest! {
        #[test]
        fn no_text_but_the_right_one_is_a_signature(text in ".{0,80}", expiration in prop::option::of(".{0,30}")) {
            let request = signed(Some(&text), expiration.as_deref());
            let outcome = authorize(&token(), None, &request, Timestamp::from_micros(NOW));
            prop_assert_eq!(outcome, Err(Unauthorized::InvalidSignature));
        }
    }
}
