//! Owns the small languages of the command line: `K=V`, spans of time, sizes, CPU shares and `SANDBOX:PATH`.

use cofferdam_core::SandboxId;

/// Parses `KEY=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// Parses a sandbox id.
pub(crate) fn sandbox(text: &str) -> Result<SandboxId, String> {
    text.parse().map_err(|error: cofferdam_core::ids::InvalidId| error.to_string())
}

/// Parses a span of time into seconds: `90`, `90s`, `5m`, `1h30m`, `2d`.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || "expected a span of time such as 90, 90s, 5m, 1h30m or 2d".to_owned();
    let mut total: u64 = 0;
    let mut digits = String::new();
    for letter in text.chars() {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let unit: u64 = match letter {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(wrong()),
        };
        let count: u64 = std::mem::take(&mut digits).parse().map_err(|_| wrong())?;
        total = count.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or_else(wrong)?;
    }
    if digits.is_empty() {
        return if text.is_empty() { Err(wrong()) } else { Ok(total) };
    }
    let rest: u64 = digits.parse().map_err(|_| wrong())?;
    total.checked_add(rest).ok_or_else(wrong)
}

/// Parses a size into MiB: `512` and `512M` are MiB, `2G` is 2048.
pub(crate) fn mebibytes(text: &str) -> Result<u32, String> {
    let wrong = || "expected a size such as 512, 512M or 2G".to_owned();
    let upper = text.to_ascii_uppercase();
    let bare = upper.trim_end_matches('B').trim_end_matches('I');
    let (digits, factor) = match bare.strip_suffix('G') {
        Some(digits) => (digits, 1024),
        None => (bare.strip_suffix('M').unwrap_or(bare), 1),
    };
    let count: u32 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(factor).ok_or_else(wrong)
}

/// Parses a number of CPUs into thousandths: `2`, `0.5`.
pub(crate) fn cpu_millis(text: &str) -> Result<u32, String> {
    let wrong = || "expected a number of CPUs such as 2 or 0.5".to_owned();
    let cpus: f64 = text.parse().map_err(|_| wrong())?;
    let millis = (cpus * 1000.0).round();
    if millis.is_finite() && (1.0..=f64::from(u32::MAX)).contains(&millis) {
        // The bounds were just checked.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        Ok(millis as u32)
    } else {
        Err(wrong())
    }
}

/// One end of `cp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path on this machine.
    Local(std::path::PathBuf),
    /// A path in a sandbox.
    Sandbox(SandboxId, String),
}

/// Parses `PATH` or `SANDBOX:PATH`. A path with a colon is local when it starts with `/` or `.`.
pub(crate) fn place(text: &str) -> Result<Place, String> {
    if text.is_empty() {
        return Err("a path cannot be empty".to_owned());
    }
    if let Some((id, path)) = text.split_once(':')
        && let Ok(id) = id.parse::<SandboxId>()
    {
        let path = if path.is_empty() { "." } else { path };
        return Ok(Place::Sandbox(id, path.to_owned()));
    }
    Ok(Place::Local(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_seconds(text: &str, expected: Option<u64>) {
        assert_eq!(seconds(text).ok(), expected, "{text:?}");
    }

    #[test]
    fn spans_of_time() {
        check_seconds("90", Some(90));
        check_seconds("90s", Some(90));
        check_seconds("1h30m", Some(5400));
        check_seconds("2d", Some(172_800));
        for text in ["", "x", "5x", "h", "-1", "1.5h", "99999999999999999999", "9999999999999999999d"] {
            check_seconds(text, None);
        }
    }

    #[track_caller]
    fn check_size(text: &str, expected: Option<u32>) {
        assert_eq!(mebibytes(text).ok(), expected, "{text:?}");
    }

    #[test]
    fn sizes() {
        check_size("512", Some(512));
        check_size("512m", Some(512));
        check_size("2GiB", Some(2048));
        check_size("4194304G", None);
        check_size("-1", None);
        check_size("", None);
    }

    #[test]
    fn shares_of_cpu() {
        assert_eq!(cpu_millis("0.5"), Ok(500));
        assert_eq!(cpu_millis("2"), Ok(2000));
        for text in ["", "0", "-1", "nan", "inf", "1e30"] {
            assert!(cpu_millis(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn pairs_keep_what_follows_the_first_equals_sign() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(pair("a="), Ok(("a".into(), String::new())));
        assert!(pair("=b").is_err());
        assert!(pair("a").is_err());
    }

    #[test]
    fn places() {
        let sandbox = |path: &str| Place::Sandbox("iabc".parse().unwrap(), path.into());
        assert_eq!(place("iabc:/x:y"), Ok(sandbox("/x:y")));
        assert_eq!(place("iabc:"), Ok(sandbox(".")));
        assert_eq!(place("./iabc:x"), Ok(Place::Local("./iabc:x".into())));
        assert_eq!(place("/a"), Ok(Place::Local("/a".into())));
        assert!(place("").is_err());
    }
}
