//! Owns the safe wrappers over Linux: one file per kernel facility, descriptors and typed flags in and out. The only crate
//! that may contain `unsafe`. Never knows policy.

#![warn(missing_docs)]

pub mod openat;
