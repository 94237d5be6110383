//! Owns where the server is and which key opens it: flags, then environment, then the default. The only file of this
//! crate that reads the environment for that.

use crate::error::Error;
use cofferdam_core::secret::Secret;
use std::path::{Path, PathBuf};

const DEFAULT_URL: &str = "http://127.0.0.1:3000";
const URL_VARIABLES: [&str; 2] = ["COFFERDAM_URL", "E2B_API_URL"];
const KEY_VARIABLES: [&str; 2] = ["COFFERDAM_API_KEY", "E2B_API_KEY"];

/// Flags that every verb takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ConnectionArgs {
    /// Address of the server [default: $COFFERDAM_URL, $E2B_API_URL or http://127.0.0.1:3000]
    #[arg(long, global = true, value_name = "URL", help_heading = "Connection")]
    pub url: Option<String>,
    /// File that holds the API key [default: the key in $COFFERDAM_API_KEY or $E2B_API_KEY]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    pub api_key_file: Option<PathBuf>,
}

impl ConnectionArgs {
    /// The address, without a slash at its end.
    pub(crate) fn url(&self) -> String {
        let url = self.url.clone().or_else(|| first(&URL_VARIABLES));
        let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        url.trim_end_matches('/').to_owned()
    }

    /// The key.
    pub(crate) fn key(&self) -> Result<Secret, Error> {
        match &self.api_key_file {
            Some(path) => key_from(path),
            None => first(&KEY_VARIABLES).map(Secret::new).ok_or(Error::NoKey),
        }
    }
}

fn key_from(path: &Path) -> Result<Secret, Error> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| Error::KeyFile { path: path.display().to_string(), source })?;
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::Usage(format!("the API key file `{}` is empty", path.display())));
    }
    Ok(Secret::new(text.to_owned()))
}

fn first(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_may_end_with_a_line_break() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "e2b_00\n").unwrap();
        let args = ConnectionArgs { url: Some("http://h:1/".into()), api_key_file: Some(path) };
        assert_eq!(args.key().unwrap().expose(), "e2b_00");
        assert_eq!(args.url(), "http://h:1");
    }

    #[test]
    fn a_missing_or_empty_key_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let args = ConnectionArgs { url: None, api_key_file: Some(path.clone()) };
        assert!(args.key().unwrap_err().to_string().contains("key"));
        std::fs::write(&path, " \n").unwrap();
        assert_eq!(args.key().unwrap_err().exit_code(), 2);
    }
}
