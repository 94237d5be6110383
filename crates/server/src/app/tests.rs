//! The use cases against a fake node.
