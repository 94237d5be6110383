//! Owns how a request names the user it acts as: `Authorization: Basic` with an empty password. It never authenticates.

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use cofferdam_proto::guest::User;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The user that the header names; anything that is no Basic credential, and an empty name, is the default user.
pub(crate) fn from_basic(header: Option<&str>) -> User {
    match header.and_then(basic_name) {
        Some(name) if !name.is_empty() => User::Named(name),
        Some(_) | None => User::Default,
    }
}

fn basic_name(header: &str) -> Option<String> {
    let (scheme, credential) = header.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = LENIENT.decode(credential.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    Some(text.split(':').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(header: Option<&str>, expected: Option<&str>) {
        let expected = expected.map_or(User::Default, |name| User::Named(name.into()));
        assert_eq!(from_basic(header), expected, "{header:?}");
    }

    #[test]
    fn the_name_before_the_colon_is_the_user() {
        check(Some("Basic cm9vdDo="), Some("root"));
        check(Some("basic cm9vdDo"), Some("root"));
        check(Some("Basic cm9vdDpzZWNyZXQ="), Some("root"));
    }

    #[test]
    fn everything_else_is_the_default_user() {
        for header in
            [None, Some(""), Some("Basic"), Some("Basic Og=="), Some("Basic !!"), Some("Bearer cm9vdDo=")]
        {
            check(header, None);
        }
    }

    proptest! {
        #[test]
        fn any_header_has_an_answer(text in ".{0,80}") {
            from_basic(Some(&text));
            from_basic(Some(&format!("Basic {text}")));
        }
    }
}
