//! Owns which slot numbers are free. A slot is free only when nothing of it is left on the host.

use crate::isolation::Slot;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The free slots, lowest first, so that a small node keeps reusing the same few.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Mutex<BTreeSet<Slot>>,
}

impl Slots {
    /// `count` slots, of which `taken` are in use.
    pub(crate) fn new(count: u32, taken: &BTreeSet<Slot>) -> Self {
        let all = (0..count).filter_map(|number| Slot::new(number).ok());
        Self { free: Mutex::new(all.filter(|slot| !taken.contains(slot)).collect()) }
    }

    pub(crate) fn take(&self) -> Option<Slot> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop_first()
    }

    pub(crate) fn give_back(&self, slot: Slot) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).insert(slot);
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
