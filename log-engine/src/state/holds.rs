//! Records that are held back: kept, counted, and in no channel yet.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::{Location, StateError};
use crate::format::RecordRef;

/// One hold. Its record stays in the log: a hold takes its key and about 100 bytes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldEntry {
    /// The frame that holds its record.
    pub at: Location,
    /// Counted size, in bytes.
    pub size: u64,
    /// Unix milliseconds of the record.
    pub timestamp: Option<u64>,
}

impl HoldEntry {
    pub(super) fn new(at: Location, record: &RecordRef<'_>) -> HoldEntry {
        HoldEntry {
            at,
            size: record.size,
            timestamp: record.timestamp,
        }
    }
}

/// Holds by key.
///
/// A hold belongs to no channel, so there is no offset to say whether one that is not known may lie
/// in a segment that is gone. A prologue therefore states how many holds there are and their size:
/// what a replay that begins at it does not know is a number that can only fall, and is zero at the
/// end of every whole log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HoldIndex {
    entries: BTreeMap<Bytes, HoldEntry>,
    count: u64,
    bytes: u64,
    /// Of `bytes`, those of holds that were written before the replay began and not seen since.
    unseen_bytes: u64,
    /// A prologue or a hold was applied.
    begun: bool,
}

impl HoldIndex {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their counted size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many of them were written before the replay began, and not stated again since. At the end
    /// of a log that is all there it is zero.
    #[must_use]
    pub fn unseen(&self) -> u64 {
        self.count - self.entries.len() as u64
    }

    /// One hold.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<HoldEntry> {
        self.entries.get(key).copied()
    }

    /// The holds whose keys come after `after`, or all, in key order.
    pub fn after(&self, after: Option<&[u8]>) -> impl Iterator<Item = (&Bytes, &HoldEntry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.entries.range::<[u8], _>((from, Bound::Unbounded))
    }

    /// What a prologue states: believed where the replay begins, and checked everywhere else.
    pub(super) fn restate(&mut self, count: u64, bytes: u64) -> Result<(), StateError> {
        if !self.begun {
            (self.begun, self.count, self.bytes) = (true, count, bytes);
            self.unseen_bytes = bytes;
        }
        if (self.count, self.bytes) == (count, bytes) {
            return Ok(());
        }
        Err(StateError::HoldsDisagree {
            replayed: (self.count, self.bytes),
            stated: (count, bytes),
        })
    }

    pub(super) fn hold(&mut self, key: &[u8], entry: HoldEntry) -> Result<(), StateError> {
        if self.entries.contains_key(key) {
            return Err(StateError::HeldTwice { key: name(key) });
        }
        self.begun = true;
        self.count += 1;
        self.bytes += entry.size;
        self.entries.insert(Bytes::copy_from_slice(key), entry);
        Ok(())
    }

    /// Takes a hold out; where it lay, if that is known.
    pub(super) fn drop(&mut self, key: &[u8], freed: u64) -> Result<Option<Location>, StateError> {
        match self.entries.get(key).copied() {
            Some(entry) if entry.size == freed => {
                self.entries.remove(key);
                self.count -= 1;
                self.bytes -= freed;
                Ok(Some(entry.at))
            }
            None if self.see(freed) => {
                self.count -= 1;
                self.bytes -= freed;
                Ok(None)
            }
            _ => Err(StateError::NotHeld { key: name(key) }),
        }
    }

    /// Gives a hold another place; where it lay, if that is known.
    pub(super) fn moved(
        &mut self,
        key: &[u8],
        entry: HoldEntry,
    ) -> Result<Option<Location>, StateError> {
        let known = self.entries.get(key).copied();
        let possible = match known {
            Some(known) => known.size == entry.size,
            None => self.see(entry.size),
        };
        if !possible {
            return Err(StateError::NotHeld { key: name(key) });
        }
        self.entries.insert(Bytes::copy_from_slice(key), entry);
        Ok(known.map(|known| known.at))
    }

    /// Accounts for one hold from before the replay; whether there can be one of this size.
    fn see(&mut self, size: u64) -> bool {
        let last = self.unseen() == 1;
        let possible = match self.unseen_bytes.checked_sub(size) {
            Some(left) => self.unseen() > 0 && (!last || left == 0),
            None => false,
        };
        if possible {
            self.unseen_bytes -= size;
        }
        possible
    }
}

fn name(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
