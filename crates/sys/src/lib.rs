//! Owns the safe wrappers over Linux: one file per kernel facility, descriptors and typed flags in and out. The only crate
//! that may contain `unsafe`. Never knows policy.

#![warn(missing_docs)]

mod call;

pub mod btrfs;
pub mod clone;
pub mod credentials;
pub mod directory;
pub mod exec;
pub mod file;
pub mod helper;
pub mod inherited;
pub mod inotify;
pub mod itself;
pub mod landlock;
pub mod lock;
pub mod loopback;
pub mod memfd;
pub mod mount;
pub mod openat;
pub mod pidfd;
pub mod pipe;
pub mod poll;
pub mod pty;
pub mod remove;
pub mod scm;
pub mod seccomp;
pub mod seqpacket;
pub mod spawn;
pub mod supervise;
pub mod syscalls;
pub mod wait;
pub mod xattr;

pub use call::errno_of;
