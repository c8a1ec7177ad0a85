//! Unresolved jobs.

use std::collections::BTreeMap;

use super::Location;
use crate::format::RecordRef;

/// One unresolved job. Nothing of a delivery is here but what survives a restart: how often it was
/// tried (invariant 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkEntry {
    /// The frame that holds its record.
    pub at: Location,
    /// Counted size, in bytes.
    pub size: u64,
    /// Unix milliseconds of the record.
    pub timestamp: Option<u64>,
    /// Attempts made.
    pub attempts: u32,
    /// First and latest attempt, Unix milliseconds.
    pub attempted: Option<(u64, u64)>,
}

impl WorkEntry {
    pub(super) fn new(at: Location, record: &RecordRef<'_>) -> WorkEntry {
        let RecordRef {
            timestamp, size, ..
        } = *record;
        WorkEntry {
            at,
            size,
            timestamp,
            attempts: 0,
            attempted: None,
        }
    }
}

/// The jobs of one channel, by offset.
#[derive(Debug, Default)]
pub struct WorkIndex {
    items: BTreeMap<u64, WorkEntry>,
}

impl WorkIndex {
    /// One job.
    #[must_use]
    pub fn get(&self, offset: u64) -> Option<&WorkEntry> {
        self.items.get(&offset)
    }

    /// The jobs at or above `offset`, in offset order.
    pub fn from_offset(&self, offset: u64) -> impl Iterator<Item = (u64, &WorkEntry)> {
        self.items
            .range(offset..)
            .map(|(&offset, item)| (offset, item))
    }

    /// Every job, in offset order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &WorkEntry)> {
        self.items.iter().map(|(&offset, item)| (offset, item))
    }

    pub(super) fn get_mut(&mut self, offset: u64) -> Option<&mut WorkEntry> {
        self.items.get_mut(&offset)
    }

    /// How many jobs there are.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn forget_attempts(&mut self) {
        for item in self.items.values_mut() {
            item.attempts = 0;
        }
    }

    pub(super) fn insert(&mut self, offset: u64, item: WorkEntry) {
        self.items.insert(offset, item);
    }

    pub(super) fn remove(&mut self, offset: u64) -> Option<WorkEntry> {
        self.items.remove(&offset)
    }
}
