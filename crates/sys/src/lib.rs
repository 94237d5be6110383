//! Owns the safe wrappers over Linux: one file per kernel facility, descriptors and typed flags in and out. The only crate
//! that may contain `unsafe`. Never knows policy.

#![warn(missing_docs)]

pub mod inotify;
pub mod itself;
pub mod openat;
pub mod pipe;
pub mod poll;
pub mod pty;
pub mod scm;
pub mod spawn;
pub mod wait;
pub mod xattr;
