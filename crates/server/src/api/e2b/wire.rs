//! Owns the generated messages and service traits of the two envd protocols (`proto/*.proto`, made by `build.rs`).

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    clippy::too_many_lines,
    clippy::upper_case_acronyms
)]

connectrpc::include_generated!("_envd.rs");
