//! The store as the use cases see it.
