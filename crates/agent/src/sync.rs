//! Owns taking locks: a thread that panicked ends the process, so a poisoned lock cannot be seen.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
