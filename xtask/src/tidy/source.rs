//! Owns the little lexer of the rules: Rust text with comments, strings and characters blanked, so that a word found in
//! it is code. Lines keep their numbers.

/// `text` with everything that is no code replaced by spaces.
pub(crate) fn code_only(text: &str) -> String {
    let mut lexer = Lexer { rest: text, code: String::with_capacity(text.len()), word_before: false };
    while !lexer.rest.is_empty() {
        lexer.step();
    }
    lexer.code
}

/// The numbers (from 1) of the lines of `text` that contain `needle` as a whole word.
pub(crate) fn lines_with_word(text: &str, needle: &str) -> Vec<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let has = |line: &str| {
        line.match_indices(needle)
            .any(|(at, _)| !line[..at].ends_with(is_word) && !line[at + needle.len()..].starts_with(is_word))
    };
    numbered(text).filter(|(_, line)| has(line)).map(|(number, _)| number).collect()
}

/// Lines with their numbers from 1.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

struct Lexer<'a> {
    rest: &'a str,
    code: String,
    word_before: bool,
}

impl Lexer<'_> {
    fn step(&mut self) {
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            return self.blank(end);
        }
        if self.rest.starts_with("/*") {
            return self.blank(comment_end(self.rest));
        }
        if !self.word_before
            && let Some(end) = raw_string_end(self.rest)
        {
            return self.blank(end);
        }
        match self.rest.chars().next() {
            Some('"') => self.blank(string_end(self.rest)),
            Some('\'') => match char_end(self.rest) {
                Some(end) => self.blank(end),
                None => self.keep(),
            },
            _ => self.keep(),
        }
    }

    fn keep(&mut self) {
        if let Some(c) = self.rest.chars().next() {
            self.code.push(c);
            self.word_before = c.is_alphanumeric() || c == '_';
            self.rest = &self.rest[c.len_utf8()..];
        }
    }

    fn blank(&mut self, end: usize) {
        let (gone, rest) = self.rest.split_at(end);
        self.code.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.word_before = false;
        self.rest = rest;
    }
}

fn comment_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn raw_string_end(text: &str) -> Option<usize> {
    let after = ["br", "cr", "r"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let start = text.len() - body.len();
    Some(body.find(&close).map_or(text.len(), |at| start + at + close.len()))
}

fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// End of a character literal; none for a lifetime.
fn char_end(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first != '\\' {
        let (at, quote) = chars.next()?;
        return (quote == '\'').then_some(at + 1);
    }
    chars.next()?;
    chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let code: Vec<String> = code_only(text).split_whitespace().map(str::to_owned).collect();
        assert_eq!(code.join(" "), expected);
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        check("a // b\nc /* d /* e */ f */ g", "a c g");
        check(r##"a "b \" c" d r#"e " f"# g br"h" i"##, "a d g i");
        check(r"a 'b' '\'' c '\u{1F}' d", "a c d");
    }

    #[test]
    fn lifetimes_and_names_that_end_in_r_are_code() {
        check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
        check("for x in bar { }", "for x in bar { }");
    }

    #[test]
    fn lines_keep_their_numbers() {
        let code = code_only("one\n/* two\n three */\nfour \"\n\" five");
        assert_eq!(lines_with_word(&code, "four"), [4]);
        assert_eq!(lines_with_word(&code, "five"), [5]);
        assert!(lines_with_word(&code, "three").is_empty());
    }

    #[test]
    fn a_word_within_a_word_is_none() {
        assert!(lines_with_word("unsafe_code", "unsafe").is_empty());
        assert_eq!(lines_with_word("an unsafe{}", "unsafe"), [1]);
    }
}
