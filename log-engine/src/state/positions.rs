//! Where the consumers of each channel are: how many there are, and the one furthest behind.

use std::collections::BTreeMap;

/// Positions of one log, by channel. A position takes about 50 bytes here, beside its entry in the
/// keyspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PositionIndex {
    channels: BTreeMap<u32, Positions>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Positions {
    count: u64,
    /// How many consumers are at each.
    at: BTreeMap<u64, u64>,
}

impl PositionIndex {
    /// How many consumers have a position in a channel, and the lowest of these.
    #[must_use]
    pub fn of(&self, channel: u32) -> (u64, Option<u64>) {
        self.channels.get(&channel).map_or((0, None), |positions| {
            let lowest = positions.at.first_key_value();
            (positions.count, lowest.map(|(&position, _)| position))
        })
    }

    pub(super) fn add(&mut self, channel: u32, position: u64) {
        let positions = self.channels.entry(channel).or_default();
        positions.count += 1;
        *positions.at.entry(position).or_default() += 1;
    }

    pub(super) fn remove(&mut self, channel: u32, position: u64) {
        let Some(positions) = self.channels.get_mut(&channel) else {
            return;
        };
        let Some(here) = positions.at.get_mut(&position) else {
            return;
        };
        *here -= 1;
        if *here == 0 {
            positions.at.remove(&position);
        }
        positions.count -= 1;
        if positions.count == 0 {
            self.channels.remove(&channel);
        }
    }
}
