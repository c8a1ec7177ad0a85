//! What operations do to maps and work sets. Each is judged before anything is changed.

use bytes::Bytes;

use super::{Location, MapEntry, State, StateError, WorkEntry};
use crate::breakage::{self, Breakage};
use crate::format::RecordRef;

impl State {
    #[allow(clippy::too_many_arguments, reason = "the fields of one operation")]
    pub(super) fn replace(
        &mut self,
        channel: u32,
        offset: u64,
        replaced: Option<u64>,
        key: &[u8],
        record: &RecordRef<'_>,
        deletion: bool,
        at: Location,
    ) -> Result<(), StateError> {
        let whole = self.channel_mut(channel)?.known_from <= 1;
        let (numbers, index) = self.map_mut(channel)?;
        numbers.check_offset(channel, offset)?;
        let known = index.get(key);
        // Of a log whose front is gone, the entry that goes may be unknown.
        if known.map(|entry| entry.size) != replaced && (whole || known.is_some()) {
            return Err(StateError::NoSuchItem { channel, offset });
        }
        if let Some(size) = replaced {
            numbers.subtract(channel, offset, size)?;
        }
        numbers.add(offset, record.size);
        index.remove(key);
        let entry = MapEntry {
            offset,
            at,
            size: record.size,
            timestamp: record.timestamp,
            deletion,
        };
        index.insert(Bytes::copy_from_slice(key), entry);
        self.placed(at);
        if let Some(old) = known {
            self.left(old.at);
        }
        Ok(())
    }

    pub(super) fn forget(
        &mut self,
        channel: u32,
        offset: u64,
        freed: u64,
        key: &[u8],
    ) -> Result<(), StateError> {
        let gone = offset < self.channel_mut(channel)?.known_from;
        let (numbers, index) = self.map_mut(channel)?;
        let known = index.get(key).filter(|entry| entry.offset == offset);
        if known.map_or(!gone, |entry| entry.size != freed) {
            return Err(StateError::NoSuchItem { channel, offset });
        }
        numbers.subtract(channel, offset, freed)?;
        if let Some(old) = known {
            index.remove(key);
            self.left(old.at);
        }
        Ok(())
    }

    pub(super) fn move_entry(
        &mut self,
        channel: u32,
        offset: u64,
        deletion: bool,
        key: &[u8],
        record: &RecordRef<'_>,
        at: Location,
    ) -> Result<(), StateError> {
        let gone = offset < self.channel_mut(channel)?.known_from;
        let (_, index) = self.map_mut(channel)?;
        let known = index.get(key);
        let movable = match known {
            Some(entry) => entry.offset == offset,
            None => gone,
        };
        if !movable {
            return Err(StateError::NoSuchItem { channel, offset });
        }
        index.remove(key);
        let entry = MapEntry {
            offset,
            at,
            size: record.size,
            timestamp: record.timestamp,
            deletion,
        };
        index.insert(Bytes::copy_from_slice(key), entry);
        self.placed(at);
        if let Some(old) = known {
            self.left(old.at);
        }
        Ok(())
    }

    pub(super) fn enqueue(
        &mut self,
        channel: u32,
        offset: u64,
        record: &RecordRef<'_>,
        at: Location,
    ) -> Result<(), StateError> {
        let (numbers, work) = self.work_mut(channel)?;
        numbers.check_offset(channel, offset)?;
        numbers.add(offset, record.size);
        work.insert(offset, WorkEntry::new(at, record));
        self.placed(at);
        Ok(())
    }

    pub(super) fn attempt(
        &mut self,
        channel: u32,
        offset: u64,
        attempts: u32,
        attempted: (u64, u64),
    ) -> Result<(), StateError> {
        let gone = offset < self.channel_mut(channel)?.known_from;
        let (_, work) = self.work_mut(channel)?;
        match work.get_mut(offset) {
            Some(item) => {
                item.attempts = attempts;
                item.attempted = Some(attempted);
                Ok(())
            }
            // It is stated again, attempts and all, further on; or it went before that.
            None if gone => Ok(()),
            None => Err(StateError::NoSuchItem { channel, offset }),
        }
    }

    pub(super) fn resolve(
        &mut self,
        channel: u32,
        offset: u64,
        freed: u64,
    ) -> Result<(), StateError> {
        let gone = offset < self.channel_mut(channel)?.known_from;
        let (numbers, work) = self.work_mut(channel)?;
        let known = work.get(offset).copied();
        if known.map_or(!gone, |item| item.size != freed) {
            return Err(StateError::NoSuchItem { channel, offset });
        }
        numbers.subtract(channel, offset, freed)?;
        if breakage::is(Breakage::ReuseOffset) && numbers.next == offset + 1 {
            numbers.next = offset;
        }
        if let Some(item) = known {
            work.remove(offset);
            self.left(item.at);
        }
        Ok(())
    }

    pub(super) fn move_job(
        &mut self,
        channel: u32,
        offset: u64,
        attempts: (u32, Option<(u64, u64)>),
        record: &RecordRef<'_>,
        at: Location,
    ) -> Result<(), StateError> {
        let gone = offset < self.channel_mut(channel)?.known_from;
        let (_, work) = self.work_mut(channel)?;
        let known = work.get(offset).copied();
        if known.is_none() && !gone {
            return Err(StateError::NoSuchItem { channel, offset });
        }
        let mut item = WorkEntry::new(at, record);
        (item.attempts, item.attempted) = attempts;
        work.insert(offset, item);
        self.placed(at);
        if let Some(old) = known {
            self.left(old.at);
        }
        Ok(())
    }
}
