//! Owns what can go wrong when a template is made, in words for the person who imports it.

use cofferdam_core::{ErrorKind, limits};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A template could not be made. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The bytes end too early, are damaged, or are no archive.
    #[error("the archive cannot be read")]
    Read(#[source] io::Error),
    /// The byte stream ended without the end mark of an archive.
    #[error("the archive ends before its end mark; was the upload cut short?")]
    Truncated,
    /// Attribute headers that do not follow their own lengths.
    #[error("the archive has a malformed attribute header")]
    MalformedPax,
    /// The archive has no entry.
    #[error("the archive is empty")]
    Empty,
    /// A bound was reached.
    #[error("the archive is too large: more than {0}")]
    TooLarge(Bound),
    /// An entry that no template may have.
    #[error("entry `{path}` is refused: {problem}")]
    Refused {
        /// The entry, as the archive names it.
        path: String,
        /// Why.
        problem: &'static str,
    },
    /// The image layout is not what it should be.
    #[error("the image layout is refused: {problem}")]
    Layout {
        /// Why.
        problem: String,
    },
    /// The tree could not be written.
    #[error("write `{}` of the new template", path.display())]
    Write {
        /// The entry.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The volume has no room.
    #[error("the data volume is too full for this template")]
    NoSpace,
    /// Something of the host failed.
    #[error("{doing}")]
    Host {
        /// What was attempted.
        doing: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The name is no template name.
    #[error("a template name has 1 to 128 lower-case letters, digits, `-` or `_`")]
    Name,
    /// Too many imports run.
    #[error("too many imports run at the same time; try again later")]
    Busy,
    /// The base template cannot be built here.
    #[error("{problem}")]
    Build {
        /// What is missing and what to do, or what the builder said.
        problem: String,
    },
}

/// Which bound an archive exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// [`limits::IMPORT_BYTES_MAX`].
    Bytes,
    /// [`limits::IMPORT_ENTRIES_MAX`].
    Entries,
    /// [`limits::IMPORT_EXTENSION_BYTES_MAX`].
    Extension,
    /// [`limits::IMPORT_DOCUMENT_BYTES_MAX`].
    Document,
    /// [`limits::IMPORT_LAYERS_MAX`].
    Layers,
    /// [`limits::TEMPLATE_DEPTH_MAX`].
    Depth,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => write!(f, "{} bytes", limits::IMPORT_BYTES_MAX),
            Self::Entries => write!(f, "{} entries", limits::IMPORT_ENTRIES_MAX),
            Self::Extension => write!(f, "{} bytes of attributes", limits::IMPORT_EXTENSION_BYTES_MAX),
            Self::Document => write!(f, "{} bytes in a document", limits::IMPORT_DOCUMENT_BYTES_MAX),
            Self::Layers => write!(f, "{} layers", limits::IMPORT_LAYERS_MAX),
            Self::Depth => write!(f, "{} levels of directories", limits::TEMPLATE_DEPTH_MAX),
        }
    }
}

impl ImportError {
    /// Whose fault it is.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Read(_)
            | Self::Truncated
            | Self::MalformedPax
            | Self::Empty
            | Self::Refused { .. }
            | Self::Layout { .. }
            | Self::Name => ErrorKind::InvalidArgument,
            Self::TooLarge(_) | Self::NoSpace | Self::Busy => ErrorKind::ResourceExhausted,
            Self::Build { .. } => ErrorKind::Unsupported,
            Self::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                ErrorKind::ResourceExhausted
            }
            Self::Write { .. } | Self::Host { .. } => ErrorKind::Internal,
        }
    }
}
