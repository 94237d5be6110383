//! Owns the templates of this node: immutable trees, each named by its digest, and the list of templates that point to
//! them. Archives that people import are hostile input until every entry of them is placed. Never runs anything of one.

mod archive;
pub(crate) mod base;
mod error;
mod import;
mod manifest;
mod oci;
mod skeleton;
mod store;
mod stream;
mod trees;
mod unpack;

#[cfg(test)]
mod tests;

pub use error::ImportError;
pub(crate) use import::{Progress, Step};
pub(crate) use store::{Lease, TemplateStore};
#[cfg(test)]
pub(crate) use trees::PlainTrees;
pub(crate) use trees::VolumeTrees;
