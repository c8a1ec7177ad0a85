//! Recent records in memory, so that a consumer that keeps up never reads the file.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::batch::ChannelId;

/// A record as readers get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its offset in its channel.
    pub offset: u64,
    /// Unix milliseconds.
    pub timestamp: Option<u64>,
    /// Counted size, in bytes.
    pub size: u64,
    /// Its key; empty outside maps.
    pub key: Bytes,
    /// A map's deletion.
    pub deletion: bool,
    /// The caller's bytes.
    pub body: Bytes,
}

/// Memory one cached record is charged beyond its bytes.
const ENTRY_BYTES: u64 = 160;

fn cost(record: &StoredRecord) -> u64 {
    (record.body.len() + record.key.len()) as u64 + ENTRY_BYTES
}

/// The newest records of all channels together, first in first out, bounded in bytes.
#[derive(Debug)]
pub(crate) struct TailCache {
    max_bytes: u64,
    bytes: u64,
    /// By channel id: ids are dense, and a look-up a record is too much to hash for.
    channels: Vec<VecDeque<StoredRecord>>,
    order: VecDeque<ChannelId>,
}

impl TailCache {
    pub(crate) fn new(max_bytes: u64) -> TailCache {
        TailCache {
            max_bytes,
            bytes: 0,
            channels: Vec::new(),
            order: VecDeque::new(),
        }
    }

    /// Adds a channel's newest record, and lets the oldest go until the bound holds.
    pub(crate) fn push(&mut self, channel: ChannelId, record: StoredRecord) {
        let cost = cost(&record);
        if cost > self.max_bytes {
            // What follows must not seem to follow directly on what is cached before it.
            self.forget(channel);
            return;
        }
        self.bytes += cost;
        let at = channel.0 as usize;
        if self.channels.len() <= at {
            self.channels.resize_with(at + 1, VecDeque::new);
        }
        self.channels[at].push_back(record);
        self.order.push_back(channel);
        while self.bytes > self.max_bytes {
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            self.pop(oldest);
        }
    }

    fn pop(&mut self, channel: ChannelId) {
        if let Some(record) = self
            .channels
            .get_mut(channel.0 as usize)
            .and_then(VecDeque::pop_front)
        {
            self.bytes -= self::cost(&record);
        }
    }

    fn forget(&mut self, channel: ChannelId) {
        let gone = self
            .channels
            .get_mut(channel.0 as usize)
            .map(std::mem::take)
            .unwrap_or_default();
        self.bytes -= gone.iter().map(self::cost).sum::<u64>();
        self.order.retain(|&other| other != channel);
    }

    /// The cached records of a channel, in offset order.
    fn of(&self, channel: ChannelId) -> Option<&VecDeque<StoredRecord>> {
        self.channels.get(channel.0 as usize)
    }

    /// One record.
    pub(crate) fn get(&self, channel: ChannelId, offset: u64) -> Option<&StoredRecord> {
        let records = self.of(channel)?;
        let at = records.partition_point(|r| r.offset < offset);
        records.get(at).filter(|r| r.offset == offset)
    }

    /// The records of a sequence from exactly `offset` on; empty where that one is not cached. A
    /// sequence's cached records have no gap: they are its newest, and go from the oldest.
    pub(crate) fn from(
        &self,
        channel: ChannelId,
        offset: u64,
    ) -> impl Iterator<Item = &StoredRecord> {
        let records = self.of(channel).map(|records| {
            let at = records.partition_point(|r| r.offset < offset);
            let here = records.get(at).is_some_and(|r| r.offset == offset);
            records.range(if here { at } else { records.len() }..)
        });
        records.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: u64, len: usize) -> StoredRecord {
        StoredRecord {
            offset,
            timestamp: None,
            size: 0,
            key: Bytes::new(),
            deletion: false,
            body: Bytes::from(vec![0; len]),
        }
    }

    #[test]
    fn the_cache_never_holds_more_than_its_bound_and_keeps_the_newest() {
        let mut cache = TailCache::new(1000);
        let (a, b) = (ChannelId(1), ChannelId(2));
        for offset in 1..=10 {
            cache.push(a, record(offset, 40));
            cache.push(b, record(offset, 0));
            assert!(cache.bytes <= 1000);
        }
        assert!(cache.get(a, 1).is_none());
        assert!(cache.get(b, 10).is_some());
        assert_eq!(cache.from(a, 9).count(), 2);
        assert_eq!(cache.from(a, 1).count(), 0, "a gap is never skipped");
        cache.push(a, record(11, 2000));
        assert_eq!(
            cache.from(a, 10).count(),
            0,
            "nothing seems to follow what was not cached"
        );
        cache.push(a, record(12, 10));
        assert!(cache.get(a, 12).is_some() && cache.bytes <= 1000);
    }
}
