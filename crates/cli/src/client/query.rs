//! Owns query strings.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// A query string under construction.
#[derive(Debug, Default)]
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn push(&mut self, name: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(utf8_percent_encode(value, PLAIN));
    }

    pub(crate) fn push_some(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.push(name, value);
        }
    }

    /// `path` and this query.
    pub(crate) fn append(self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

/// One segment of a path.
pub(crate) fn segment(text: &str) -> String {
    const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, SEGMENT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded() {
        let mut query = Query::default();
        query.push("path", "/a b&c=d+é");
        query.push_some("user", None);
        query.push_some("user", Some("root"));
        assert_eq!(query.append("/x"), "/x?path=/a%20b%26c%3Dd%2B%C3%A9&user=root");
        assert_eq!(segment("a/b"), "a%2Fb");
    }
}
