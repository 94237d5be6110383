//! Owns what can go wrong in a verb, what the user is told to do about it, and which exit code it becomes.

use cofferdam_core::ErrorKind;
use cofferdam_proto::api::ApiError;
use std::io;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command line asks for something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// Nothing answers at the address.
    #[error("cannot reach the server at {url}")]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// Why not.
        #[source]
        source: Source,
    },
    /// No key was given in any of the ways.
    #[error("no API key")]
    NoKey,
    /// The key file cannot be read.
    #[error("read the API key from `{path}`")]
    KeyFile {
        /// The file.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The server refused, and said why.
    #[error("{}", .0.message)]
    Api(Box<ApiError>),
    /// Something answered that is no Cofferdam server.
    #[error("{url} answered {status}, which is not an answer of a Cofferdam server")]
    Foreign {
        /// Who answered.
        url: String,
        /// What.
        status: u16,
    },
    /// The connection ended too early.
    #[error("{what}: the connection to the server broke")]
    Broken {
        /// During what.
        what: String,
        /// How.
        #[source]
        source: Source,
    },
    /// The answer is not of the expected form.
    #[error("{what}: the answer of the server is not understood")]
    Malformed {
        /// The answer to what.
        what: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// No answer within the time.
    #[error("{what}: no answer within {seconds} s")]
    Deadline {
        /// The answer to what.
        what: String,
        /// The time.
        seconds: u64,
    },
    /// Something on this machine failed.
    #[error("{what}")]
    Local {
        /// What was attempted.
        what: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Part of what was asked for did not happen; the parts were reported one by one.
    #[error("{failed} of {total} failed: {what}")]
    Partly {
        /// What was attempted.
        what: String,
        /// How many did not work.
        failed: usize,
        /// Of how many.
        total: usize,
    },
    /// A name that came out of a sandbox would leave the directory it belongs to.
    #[error("refused to write `{path}`: a name from the sandbox leaves the destination")]
    HostilePath {
        /// The name.
        path: String,
    },
}

impl Error {
    /// The exit code of a verb that ends with this error, see `docs/cli.md`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Unreachable { .. } => 3,
            Self::NoKey | Self::KeyFile { .. } => 4,
            Self::Api(error) if error.kind == ErrorKind::Unauthenticated => 4,
            Self::Api(_)
            | Self::Foreign { .. }
            | Self::Broken { .. }
            | Self::Malformed { .. }
            | Self::Deadline { .. }
            | Self::Local { .. }
            | Self::Partly { .. }
            | Self::HostilePath { .. } => 1,
        }
    }

    /// What to do about it, when that is known.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => Some(
                "start one with `cofferdam serve --data-dir DIR --listen 127.0.0.1:3000 --api-key-file FILE`, or name another with --url or COFFERDAM_URL",
            ),
            Self::NoKey => Some(
                "give --api-key-file FILE, or set COFFERDAM_API_KEY; `cofferdam serve --api-key-file FILE` writes the first key to FILE",
            ),
            Self::KeyFile { .. } => Some(
                "name the file that was given to `cofferdam serve --api-key-file`, and make sure you may read it",
            ),
            Self::Api(error) if error.kind == ErrorKind::Unauthenticated => {
                Some("check the key: --api-key-file, COFFERDAM_API_KEY or E2B_API_KEY, in this order")
            }
            Self::Foreign { .. } => Some("check --url and COFFERDAM_URL"),
            Self::Broken { .. } | Self::Deadline { .. } => {
                Some("look at the log of `cofferdam serve`; `cofferdam ps` tells what is left")
            }
            Self::Malformed { .. } => {
                Some("client and server may be of different versions: compare `cofferdam --version`")
            }
            Self::Usage(_)
            | Self::Api(_)
            | Self::Local { .. }
            | Self::Partly { .. }
            | Self::HostilePath { .. } => None,
        }
    }

    pub(crate) fn local(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Local { what, source }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Api(error) if error.kind == ErrorKind::NotFound)
    }
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
