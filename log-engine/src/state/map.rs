//! Where the latest value of each key lies.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::Location;

/// The newest record of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// Its offset.
    pub offset: u64,
    /// The frame that holds it.
    pub at: Location,
    /// Counted size, in bytes.
    pub size: u64,
    /// Unix milliseconds.
    pub timestamp: Option<u64>,
    /// The key was deleted; kept so that whoever reads changes learns of it.
    pub deletion: bool,
}

/// Entries by key, and keys by offset: a reader of changes walks offsets, and meets each key once,
/// at its newest.
#[derive(Debug, Default)]
pub struct MapIndex {
    entries: HashMap<Bytes, MapEntry>,
    order: BTreeMap<u64, Bytes>,
}

impl MapIndex {
    /// The newest record of `key`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<MapEntry> {
        self.entries.get(key).copied()
    }

    /// Keys and entries at or above `offset`, in offset order.
    pub fn from_offset(&self, offset: u64) -> impl Iterator<Item = (&Bytes, MapEntry)> {
        self.order
            .range(offset..)
            .filter_map(|(_, key)| Some((key, *self.entries.get(key)?)))
    }

    /// How many keys have an entry, deletions included.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn insert(&mut self, key: Bytes, entry: MapEntry) {
        self.order.insert(entry.offset, key.clone());
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<MapEntry> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.offset);
        Some(entry)
    }
}
