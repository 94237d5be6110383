//! Owns both directions of `Content-Disposition`: reading the file name of an uploaded part, which holds a whole path,
//! and writing the one of a download.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// The file name of a part, untouched: directories and a leading slash stay. `filename*` wins over `filename`.
pub(crate) fn file_name(header: &str) -> Option<String> {
    let mut plain = None;
    for (name, value) in parameters(header) {
        if name.eq_ignore_ascii_case("filename*") {
            if let Some(decoded) = extended(&value) {
                return Some(decoded);
            }
        } else if name.eq_ignore_ascii_case("filename") && plain.is_none() {
            plain = Some(value);
        }
    }
    plain.map(|text| unescape_form(&text))
}

/// The header of a download.
pub(crate) fn inline(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if matches!(c, ' '..='~') && c != '"' && c != '\\' { c } else { '_' }).collect();
    if plain == name {
        return format!("inline; filename=\"{plain}\"");
    }
    format!("inline; filename=\"{plain}\"; filename*=UTF-8''{}", utf8_percent_encode(name, EXTENDED))
}

const EXTENDED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b'\'')
    .add(b'(')
    .add(b')')
    .add(b'*')
    .add(b',')
    .add(b'/')
    .add(b':')
    .add(b';')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?')
    .add(b'@')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'{')
    .add(b'}');

/// `name=value` pairs after the first `;`. A quoted value ends at the next quote that no backslash precedes.
fn parameters(header: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let Some((_, mut rest)) = header.split_once(';') else { return found };
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim().trim_start_matches(';').trim();
        let (value, next) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => take_quoted(quoted),
            None => take_token(after),
        };
        found.push((name, value));
        rest = next;
    }
    found
}

fn take_token(text: &str) -> (String, &str) {
    let (value, rest) = text.split_once(';').unwrap_or((text, ""));
    (value.trim().to_owned(), rest)
}

fn take_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, text.get(at + 1..).unwrap_or_default()),
            '\\' => match chars.next() {
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                Some((_, other)) => value.extend(['\\', other]),
                None => value.push('\\'),
            },
            c => value.push(c),
        }
    }
    (value, "")
}

/// Browsers write a quote, carriage return and line feed of a form's file name as `%22`, `%0D` and `%0A`, and nothing else.
fn unescape_form(text: &str) -> String {
    text.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n")
}

fn extended(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_, text) = rest.split_once('\'')?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(header: &str, expected: Option<&str>) {
        assert_eq!(file_name(header).as_deref(), expected, "{header}");
    }

    #[test]
    fn whole_paths_are_kept() {
        check(r#"form-data; name="file"; filename="/0/file.txt""#, Some("/0/file.txt"));
        check(r#"form-data; name="file"; filename="a/b c.txt""#, Some("a/b c.txt"));
        check("form-data; name=file; filename=x.txt", Some("x.txt"));
        check(r#"form-data; filename="a;b=c"; name="file""#, Some("a;b=c"));
    }

    #[test]
    fn escapes_and_the_extended_form_are_understood() {
        check(r#"form-data; name="file"; filename="a\"b\\c""#, Some("a\"b\\c"));
        check(r#"form-data; name="file"; filename="a%22b""#, Some("a\"b"));
        check(r#"form-data; filename="_"; filename*=UTF-8''%C3%A9.txt"#, Some("é.txt"));
        check(r#"form-data; filename="é.txt""#, Some("é.txt"));
    }

    #[test]
    fn no_name_is_no_name() {
        for header in ["form-data", "form-data; name=\"file\"", "", ";", "form-data; filename"] {
            check(header, None);
        }
    }

    #[test]
    fn downloads_carry_their_name() {
        assert_eq!(inline("a b.txt"), r#"inline; filename="a b.txt""#);
        assert_eq!(inline("é\".txt"), r#"inline; filename="__.txt"; filename*=UTF-8''%C3%A9%22.txt"#);
        assert!(!inline("a\r\nx: y").contains('\n'));
    }

    proptest! {
        #[test]
        fn any_header_has_an_answer(text in ".{0,120}") {
            file_name(&text);
            file_name(&format!("form-data; filename={text}"));
        }

        #[test]
        fn a_quoted_name_comes_back(name in "[a-zA-Z0-9/ ._\"\\\\é-]{1,40}") {
            let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
            let header = format!("form-data; name=\"file\"; filename=\"{quoted}\"");
            prop_assert_eq!(file_name(&header), Some(name));
        }
    }
}
