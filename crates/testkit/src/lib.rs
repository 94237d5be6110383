//! Owns what tests of more than one crate share: fakes for the seams of the system. A development dependency only.

pub mod fake_node;
