//! Owns the reading of query parameters and ids of the control plane.

use super::error::Error;
use crate::gateway::target;
use axum::extract::{FromRequestParts, Path};
use cofferdam_core::{SandboxId, Timestamp};
use http::request::Parts;
use percent_encoding::percent_decode_str;

/// The value of a parameter, decoded once; of a name that comes twice the first counts.
pub(crate) fn parameter(query: Option<&str>, wanted: &str) -> Result<Option<String>, Error> {
    let pairs = query.unwrap_or_default().split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let Some((_, value)) = pairs.into_iter().find(|(name, _)| *name == wanted) else { return Ok(None) };
    let text = value.replace('+', " ");
    let decoded = percent_decode_str(&text).decode_utf8();
    let decoded =
        decoded.map_err(|_| Error::bad_request(format!("query parameter {wanted} is not UTF-8")))?;
    Ok(Some(decoded.into_owned()).filter(|value| !value.is_empty()))
}

/// A parameter that is a number within bounds.
pub(crate) fn number(
    query: Option<&str>,
    wanted: &str,
    range: std::ops::RangeInclusive<u32>,
) -> Result<Option<u32>, Error> {
    let Some(text) = parameter(query, wanted)? else { return Ok(None) };
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.map(Some).ok_or_else(|| {
        Error::bad_request(format!("{wanted} must be a number from {} to {}", range.start(), range.end()))
    })
}

/// A parameter that is an instant.
pub(crate) fn instant(query: Option<&str>, wanted: &str) -> Result<Option<Timestamp>, Error> {
    let Some(text) = parameter(query, wanted)? else { return Ok(None) };
    Timestamp::parse_rfc3339(&text)
        .map(Some)
        .map_err(|error| Error::bad_request(format!("{wanted}: {error}")))
}

/// The sandbox that the path of a request names.
pub(crate) struct Named(pub(crate) SandboxId);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        segment(parts, state).await.and_then(|text| sandbox_id(&text)).map(Self).map_err(|_| invalid_id())
    }
}

/// The name that the path of a request ends in, decoded.
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        segment(parts, state).await.map(Self)
    }
}

async fn segment<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String, Error> {
    let Path(text) = Path::<String>::from_request_parts(parts, state)
        .await
        .map_err(|_| Error::bad_request("the path is not UTF-8"))?;
    Ok(text)
}

fn invalid_id() -> Error {
    Error::bad_request(target::TargetError::Id.to_string())
}

/// A sandbox as clients write it, `{id}` or `{id}-{anything}`.
pub(crate) fn sandbox_id(text: &str) -> Result<SandboxId, Error> {
    target::sandbox_id(text).map_err(|_| invalid_id())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_are_decoded_once() {
        let query = Some("metadata=a%253Db%3Dc+d&limit=5&limit=7&empty=");
        assert_eq!(parameter(query, "metadata").unwrap().as_deref(), Some("a%3Db=c d"));
        assert_eq!(number(query, "limit", 1..=100).unwrap(), Some(5));
        assert_eq!(parameter(query, "empty").unwrap(), None);
        assert!(parameter(Some("a=%ff"), "a").is_err());
        for text in ["limit=0", "limit=101", "limit=-1", "limit=x", "limit=99999999999999999999"] {
            assert!(number(Some(text), "limit", 1..=100).is_err(), "{text}");
        }
        assert!(instant(Some("startedAfter=yesterday"), "startedAfter").is_err());
    }

    #[test]
    fn ids_lose_the_client_part() {
        assert_eq!(sandbox_id("iabc-00ff").unwrap().as_str(), "iabc");
        assert!(sandbox_id("../x").is_err());
    }

    proptest! {
        #[test]
        fn any_query_has_an_answer(text in ".{0,100}") {
            drop(parameter(Some(&text), "a"));
            drop(number(Some(&text), "a", 1..=100));
        }
    }
}
