//! Owns the reading of `Range` and of the conditional headers. Pure.

use http::{HeaderMap, HeaderName, header};
use std::time::{Duration, SystemTime};

/// What part of a file a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// These bytes.
    Bytes {
        /// The first.
        offset: u64,
        /// How many, at least one.
        length: u64,
    },
    /// Nothing: the range lies outside.
    Unsatisfiable,
    /// Nothing: the client has it already.
    NotModified,
    /// Nothing: it is not what the client thinks.
    PreconditionFailed,
}

/// True when the answer depends on headers that only work on the plain content.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    [header::RANGE, header::IF_MODIFIED_SINCE, header::IF_UNMODIFIED_SINCE, header::IF_RANGE]
        .iter()
        .any(|name| headers.contains_key(name))
}

/// Decides, for a file of `size` bytes that changed at `modified_us`.
pub(crate) fn decide(headers: &HeaderMap, size: u64, modified_us: i64) -> Part {
    let modified = modified(modified_us);
    if date(headers, header::IF_UNMODIFIED_SINCE).is_some_and(|at| modified > at) {
        return Part::PreconditionFailed;
    }
    if date(headers, header::IF_MODIFIED_SINCE).is_some_and(|at| modified <= at) {
        return Part::NotModified;
    }
    let stale = headers.contains_key(header::IF_RANGE) && date(headers, header::IF_RANGE) != Some(modified);
    match text(headers, header::RANGE) {
        Some(range) if !stale => parse_range(range, size),
        Some(_) | None => Part::Whole,
    }
}

/// The moment as the header shows it: whole seconds.
pub(crate) fn modified(micros: i64) -> SystemTime {
    let seconds = u64::try_from(micros.div_euclid(1_000_000)).unwrap_or(0);
    // The largest date that the format can show; the year 10000 has a digit too many.
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(253_402_300_799))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

/// One range of bytes. What is no such range, and several at once, is ignored, as the standard allows.
fn parse_range(range: &str, size: u64) -> Part {
    let Some(spec) = range.trim().strip_prefix("bytes=") else { return Part::Whole };
    let Some((first, last)) = spec.trim().split_once('-') else { return Part::Whole };
    match (first.trim(), last.trim()) {
        ("", suffix) => match suffix.parse::<u64>() {
            Ok(0) => Part::Unsatisfiable,
            Ok(length) => span(size.saturating_sub(length), size.saturating_sub(1), size),
            Err(_) => Part::Whole,
        },
        (first, "") => first.parse().map_or(Part::Whole, |first| span(first, u64::MAX, size)),
        (first, last) => match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(first), Ok(last)) if first <= last => span(first, last, size),
            _ => Part::Whole,
        },
    }
}

fn span(first: u64, last: u64, size: u64) -> Part {
    if first >= size {
        return Part::Unsatisfiable;
    }
    Part::Bytes { offset: first, length: last.min(size - 1) - first + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    #[track_caller]
    fn check(range: &str, expected: Part) {
        assert_eq!(parse_range(range, 10), expected, "{range}");
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        check("bytes=0-0", Part::Bytes { offset: 0, length: 1 });
        check("bytes=2-5", Part::Bytes { offset: 2, length: 4 });
        check("bytes=5-", Part::Bytes { offset: 5, length: 5 });
        check("bytes=5-999", Part::Bytes { offset: 5, length: 5 });
        check("bytes=-3", Part::Bytes { offset: 7, length: 3 });
        check("bytes=-300", Part::Bytes { offset: 0, length: 10 });
        check("bytes=10-", Part::Unsatisfiable);
        check("bytes=-0", Part::Unsatisfiable);
        assert_eq!(parse_range("bytes=-5", 0), Part::Unsatisfiable);
    }

    #[test]
    fn what_is_no_single_range_is_ignored() {
        for range in
            ["", "bytes", "bytes=", "bytes=x-y", "bytes=5-2", "bytes=0-1,3-4", "lines=1-2", "bytes=-x"]
        {
            check(range, Part::Whole);
        }
    }

    #[test]
    fn dates_are_compared_by_the_second() {
        let mut headers = HeaderMap::new();
        let at = 1_800_000_000_000_000;
        let text = httpdate::fmt_http_date(modified(at));
        headers.insert(header::IF_MODIFIED_SINCE, HeaderValue::from_str(&text).unwrap());
        assert_eq!(decide(&headers, 10, at + 999_999), Part::NotModified);
        assert_eq!(decide(&headers, 10, at + 1_000_000), Part::Whole);
        headers.clear();
        headers.insert(header::IF_UNMODIFIED_SINCE, HeaderValue::from_str(&text).unwrap());
        assert_eq!(decide(&headers, 10, at + 1_000_000), Part::PreconditionFailed);
        headers.clear();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=1-1"));
        headers.insert(header::IF_RANGE, HeaderValue::from_str(&text).unwrap());
        assert_eq!(decide(&headers, 10, at), Part::Bytes { offset: 1, length: 1 });
        assert_eq!(decide(&headers, 10, at + 5_000_000), Part::Whole);
    }

    proptest! {
        #[test]
        fn no_range_leaves_the_file(text in "(bytes=)?[0-9,x -]{0,40}", size in any::<u64>()) {
            if let Part::Bytes { offset, length } = parse_range(&text, size) {
                prop_assert!(length > 0 && offset < size && length <= size - offset);
            }
        }

        #[test]
        fn any_moment_can_be_shown(micros in any::<i64>()) {
            httpdate::fmt_http_date(modified(micros));
        }
    }
}
