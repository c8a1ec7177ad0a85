//! What must be there after an accident, and what may be gone.
//!
//! Batches are acknowledged in an order, and a log keeps a first few of them. How few it may be
//! depends on the accident: a process that dies takes none, a power cut those after the last one known
//! to be synced, and damage to bytes those that no later synced frame vouches for. What is known to be
//! synced is a lower bound: the engine may sync more than it was asked to.

use std::collections::BTreeSet;

use super::model::{Model, Op};

/// A batch that was acknowledged.
#[derive(Debug)]
struct Entry {
    ops: Vec<Op>,
    /// Where its frame is the first to hold it: how many batches had been synced when it was written.
    vouches: Option<u64>,
}

/// What is kept, as far as a caller can know.
#[derive(Debug, Default)]
pub struct Kept {
    /// Everything acknowledged: what a running engine shows.
    pub model: Model,
    /// The part of it that later synced frames vouch for.
    vouched: Model,
    /// How many batches are in that part.
    folded: u64,
    /// The batches since: `model` is `vouched` and these.
    recent: Vec<Entry>,
    /// How many of these are synced, at least.
    synced: usize,
    /// Batches on their way when the engine or the power failed: a first few of them may be there.
    pub in_flight: Vec<Vec<Op>>,
    /// Of a frame on its way that had no room, those that relieve: then they alone may be there.
    pub relief_in_flight: Vec<Vec<Op>>,
    /// Highest LSN acknowledged, and the same of what is synced.
    last_lsn: u64,
    synced_lsn: u64,
    /// What was not synced may be gone.
    may_lose: bool,
    /// The next offset anybody was shown, by channel.
    shown: Vec<u64>,
    /// Channels that unsynced batches took offsets of since the last opening, and ever.
    unsynced: BTreeSet<u32>,
    ever_unsynced: BTreeSet<u32>,
}

/// How what is seen follows from what was acknowledged.
#[derive(Debug)]
pub struct Match {
    recent: usize,
    /// Of those on their way, how many are there.
    pub in_flight: usize,
    /// These are of those that relieve.
    relief: bool,
    /// Acknowledged batches that are gone.
    pub lost: usize,
    /// Channels that go on at their ceiling.
    pub skips: Vec<Op>,
}

/// What may have happened to what is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accident {
    /// What was done to the disk by its own rules.
    Fair,
    /// Bytes were changed that no later frame vouches for.
    Damage,
}

impl Kept {
    /// Notes what a batch may do before its answer is known.
    pub fn submitted(&mut self, ops: &[Op], unsynced: bool) {
        if unsynced {
            let channels = ops.iter().filter_map(Op::takes_offset_of);
            for channel in channels {
                self.unsynced.insert(channel);
                self.ever_unsynced.insert(channel);
            }
        }
    }

    /// A batch was acknowledged with the frame `lsn`; `model` is with it. With `synced`, it promises
    /// that a power cut takes neither it nor anything before it.
    pub fn acknowledged(&mut self, ops: Vec<Op>, lsn: u64, synced: bool) {
        let first_in_frame = lsn > self.last_lsn;
        let vouches = first_in_frame.then_some(self.folded + self.synced as u64);
        self.recent.push(Entry { ops, vouches });
        self.last_lsn = lsn;
        if synced {
            self.all_synced();
        }
    }

    /// Sets what is shown now.
    pub fn now(&mut self, model: Model) {
        self.shown.resize(model.channels.len(), 1);
        for (shown, channel) in self.shown.iter_mut().zip(&model.channels) {
            *shown = channel.next.max(*shown);
        }
        self.model = model;
    }

    /// Everything acknowledged is synced.
    pub fn all_synced(&mut self) {
        self.synced = self.recent.len();
        self.synced_lsn = self.last_lsn;
        let vouched = self.recent.iter().filter_map(|entry| entry.vouches).max();
        let count = vouched.unwrap_or(0).saturating_sub(self.folded) as usize;
        for entry in self.recent.drain(..count) {
            // It was acknowledged after the same.
            let _ = self.vouched.apply(&entry.ops);
        }
        self.folded += count as u64;
        self.synced -= count;
    }

    /// The log was closed on purpose and nothing failed: nothing of it is lost, damage to it is
    /// damage, and no offset is skipped.
    pub fn closed(&mut self) {
        self.vouched = self.model.clone();
        self.recent.clear();
        self.synced = 0;
        self.synced_lsn = self.last_lsn;
        self.unsynced.clear();
    }

    /// What is not synced may be gone: the power went, or a sync failed.
    pub fn may_lose(&mut self) {
        self.may_lose = true;
    }

    /// The highest LSN a log must reach.
    #[must_use]
    pub fn lsn(&self) -> u64 {
        if self.may_lose {
            self.synced_lsn
        } else {
            self.last_lsn
        }
    }

    /// The highest LSN acknowledged.
    #[must_use]
    pub fn last_lsn(&self) -> u64 {
        self.last_lsn
    }

    /// How what is seen follows from what was acknowledged, if it does.
    #[must_use]
    pub fn follows(&self, seen: &Model, accident: Accident) -> Option<Match> {
        self.follows_with(seen, accident, &self.in_flight, false)
            .or_else(|| self.follows_with(seen, accident, &self.relief_in_flight, true))
    }

    fn follows_with(
        &self,
        seen: &Model,
        accident: Accident,
        in_flight: &[Vec<Op>],
        relief: bool,
    ) -> Option<Match> {
        let from = match accident {
            Accident::Damage => 0,
            Accident::Fair if self.may_lose => self.synced,
            Accident::Fair => self.recent.len(),
        };
        let may_skip = match accident {
            Accident::Damage => &self.ever_unsynced,
            Accident::Fair => &self.unsynced,
        };
        let mut expected = self.vouched.clone();
        let entries = self.recent.iter().map(|entry| &entry.ops);
        let all = entries.chain(in_flight);
        for (i, ops) in all.map(Some).chain([None]).enumerate() {
            if i >= from
                && let Some(skips) = skips(&expected, seen, may_skip)
            {
                let recent = i.min(self.recent.len());
                return Some(Match {
                    recent,
                    in_flight: i - recent,
                    relief,
                    lost: self.recent.len() - recent,
                    skips,
                });
            }
            expected.apply(ops?).ok()?;
        }
        None
    }

    /// The channel that would give an offset again that somebody was shown, and that offset.
    #[must_use]
    pub fn given_twice(&self, seen: &Model) -> Option<(usize, u64, u64)> {
        let channels = self.shown.iter().zip(&seen.channels).enumerate();
        channels
            .map(|(id, (shown, channel))| (id, *shown, channel.next))
            .find(|(_, shown, next)| next < shown)
    }

    /// Damage may have taken what stated the ceilings.
    pub fn damaged(&mut self, last_lsn: u64) {
        self.shown.clear();
        self.last_lsn = self.last_lsn.min(last_lsn);
        self.synced_lsn = self.synced_lsn.min(last_lsn);
    }

    /// The log was opened and this is what it holds, all of it durable: readers have seen it.
    pub fn opened(&mut self, seen: Model, found: Match, last_lsn: u64) {
        self.recent.truncate(found.recent);
        let relief = std::mem::take(&mut self.relief_in_flight);
        let in_flight = std::mem::take(&mut self.in_flight);
        let on_their_way = if found.relief { relief } else { in_flight };
        let on_their_way = on_their_way.into_iter().take(found.in_flight);
        let skips = (!found.skips.is_empty()).then_some(found.skips);
        self.recent.extend(
            on_their_way
                .chain(skips)
                .map(|ops| Entry { ops, vouches: None }),
        );
        self.last_lsn = last_lsn;
        self.all_synced();
        self.unsynced.clear();
        self.may_lose = false;
        self.now(seen);
    }

    /// How many acknowledged batches may still be lost to a power cut.
    #[must_use]
    pub fn at_risk(&self) -> usize {
        self.recent.len() - self.synced
    }
}

/// Where the two are the same but for channels that may go on at their ceiling: which do.
fn skips(expected: &Model, seen: &Model, may_skip: &BTreeSet<u32>) -> Option<Vec<Op>> {
    let (mut expected, mut skips) = (expected.clone(), Vec::new());
    for ((id, want), have) in (0u32..).zip(&mut expected.channels).zip(&seen.channels) {
        if have.next > want.next && may_skip.contains(&id) {
            want.next = have.next;
            skips.push(Op::Skip(id, have.next));
        }
    }
    (expected == *seen).then_some(skips)
}
