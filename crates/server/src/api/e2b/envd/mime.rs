//! Owns the media type of a download: by extension, else by the first bytes. Pure.

const DEFAULT: &str = "application/octet-stream";

/// By extension, or the type of unknown bytes.
pub(crate) fn by_name(name: &str) -> &'static str {
    by_extension(name).unwrap_or(DEFAULT)
}

/// By extension.
pub(crate) fn by_extension(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "txt" | "log" => "text/plain; charset=utf-8",
        "md" => "text/markdown; charset=utf-8",
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "xml" => "text/xml; charset=utf-8",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "wasm" => "application/wasm",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        "mp3" => "audio/mpeg",
        "mp4" => "video/mp4",
        _ => return None,
    })
}

/// By the first bytes: text, or bytes.
pub(crate) fn sniff(first: &[u8]) -> &'static str {
    let start = &first[..first.len().min(512)];
    let text = match std::str::from_utf8(start) {
        Ok(_) => true,
        // A character may be cut in two at the end of the piece.
        Err(error) => error.error_len().is_none(),
    };
    let control = |b: &u8| *b < 0x20 && !matches!(b, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
    if text && !start.iter().any(control) { "text/plain; charset=utf-8" } else { DEFAULT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bytes_tell_the_type() {
        assert_eq!(by_name("a.JSON"), "application/json");
        assert_eq!(by_name("a"), DEFAULT);
        assert_eq!(sniff(b"hello"), "text/plain; charset=utf-8");
        assert_eq!(sniff("é".repeat(300).as_bytes()), "text/plain; charset=utf-8");
        assert_eq!(sniff(b"a\0b"), DEFAULT);
        assert_eq!(sniff(&[0xff, 0xfe]), DEFAULT);
    }
}
