//! Owns what a path of a client means inside the sandbox. Purely lexical: never looks at the file system.

use crate::failure::invalid;
use cofferdam_proto::guest::Failure;
use std::path::PathBuf;

/// Longest path that is taken, in bytes (PATH_MAX, with its end).
const PATH_BYTES_MAX: usize = 4095;

/// Makes an absolute, lexically clean path: empty is `workdir` (or the home without one), `~` the home, relative is
/// below the home, absolute as given.
pub(crate) fn resolve(path: &str, home: &str, workdir: &str) -> Result<PathBuf, Failure> {
    if path.contains('\0') {
        return Err(invalid("the path contains a null byte"));
    }
    let full = match path {
        "" if workdir.is_empty() => home.to_owned(),
        "" => join(home, workdir),
        "~" => home.to_owned(),
        _ if path.starts_with("~/") => format!("{home}/{path}", path = &path[2..]),
        _ if path.starts_with('~') => {
            return Err(invalid(format!("path '{path}': the home of another user cannot be named")));
        }
        _ => join(home, path),
    };
    let clean = clean(&full);
    if clean.len() > PATH_BYTES_MAX {
        return Err(invalid("the path is too long"));
    }
    Ok(PathBuf::from(clean))
}

fn join(home: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{home}/{path}") }
}

/// Removes `.`, `..` and doubled slashes without looking at links; the result begins with a slash.
pub(crate) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        assert_eq!(resolve(path, "/home/user", "/code").unwrap(), PathBuf::from(expected));
    }

    #[test]
    fn paths_mean_what_the_contract_says() {
        check("", "/code");
        check("~", "/home/user");
        check("~/x", "/home/user/x");
        check("x/./y//z", "/home/user/x/y/z");
        check("../x", "/home/x");
        check("/a/../b/", "/b");
        check("/../..", "/");
        check("a~", "/home/user/a~");
        assert_eq!(resolve("", "/root", "").unwrap(), PathBuf::from("/root"));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for path in ["~other", "~other/x", "a\0b", &"x/".repeat(4000)] {
            assert!(resolve(path, "/", "").is_err(), "{path}");
        }
    }
}
