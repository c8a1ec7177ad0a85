//! One session's cursor over the current values of one latest channel.
//!
//! A SUBSCRIBE begins a *pass*: every current value below the channel's next offset at that
//! moment, marked RETAIN. What comes from there on is a *live* change. Passes run first and one
//! after the other, each reading the store as it is then, and live changes go on where they stood:
//! as the store yields each topic once, at its newest offset, and the cursor only moves forward,
//! no older value follows a newer one.

use std::collections::{BTreeSet, VecDeque};

use super::cursor::{Bounds, Cursor, Delivery, Era, Next, ReadRequest};
use super::selection::Selection;
use crate::storage::{ReadError, Record, Records};

/// Names one SUBSCRIBE's pass of current values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PassId(pub u64);

/// Which subscriptions a record is matched against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of the SUBSCRIBE that began this pass.
    Pass(PassId),
    /// All, each from the offset it was made at.
    Live,
}

/// Passes that may wait at one time in one consumer.
const MAX_PASSES: usize = 256;

/// A client asked for current values faster than it takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPasses;

impl std::fmt::Display for TooManyPasses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{MAX_PASSES} subscribe passes of this client wait on this channel; read what was asked for before asking again"
        )
    }
}

impl std::error::Error for TooManyPasses {}

#[derive(Debug)]
struct Pass {
    id: PassId,
    /// The lowest offset not yet sent or stepped past.
    next: u64,
    /// Where it ends. Comes down to the last value there is once that has been read.
    end: u64,
    deletions: bool,
}

/// Sends the values that are current, then those that change; the slower the subscriber, the fewer
/// it sees in between.
#[derive(Debug)]
pub struct LatestConsumer {
    cursor: Cursor,
    passes: VecDeque<Pass>,
    next_pass: u64,
    /// The lowest offset whose live change was neither sent nor stepped past.
    live: u64,
    head: u64,
    /// The channel's next offset when the buffer was read.
    read_at: u64,
    /// The session could not take what was next: what is buffered has waited, and may have been
    /// replaced meanwhile.
    waited: bool,
    /// The delivery handed out and not yet sent.
    handed_out: Option<u64>,
    /// Offsets given up with a buffer that waited, until the re-read says which are still there.
    given_up: BTreeSet<u64>,
    superseded: u64,
}

impl LatestConsumer {
    /// A consumer of what changes from `head` on, the channel's next offset. Current values are
    /// asked for with [`begin_pass`](Self::begin_pass).
    #[must_use]
    pub fn new(head: u64, bounds: Bounds) -> Self {
        LatestConsumer {
            cursor: Cursor::new(bounds),
            passes: VecDeque::new(),
            next_pass: 0,
            live: head,
            head,
            read_at: head,
            waited: false,
            handed_out: None,
            given_up: BTreeSet::new(),
            superseded: 0,
        }
    }

    /// Begins a pass of every current value below `head`, the channel's next offset; deletions
    /// that are still kept are part of it only if asked for. Retain Handling 0, 1 on a new
    /// subscription, and a resumed QoS 0 subscription call for one; Retain Handling 2 does not.
    ///
    /// # Errors
    /// [`TooManyPasses`] where 256 wait already.
    pub fn begin_pass(&mut self, head: u64, deletions: bool) -> Result<PassId, TooManyPasses> {
        if self.passes.len() >= MAX_PASSES {
            return Err(TooManyPasses);
        }
        self.head = self.head.max(head);
        if self.passes.is_empty() {
            // The pass may send a newer value of a topic whose older one is buffered for live.
            self.give_up_buffer();
        }
        let id = PassId(self.next_pass);
        self.next_pass += 1;
        self.passes.push_back(Pass {
            id,
            next: 0,
            end: head,
            deletions,
        });
        Ok(id)
    }

    /// The channel's next offset is `head` now. Clears a failed read.
    pub fn wake(&mut self, head: u64) {
        self.head = self.head.max(head);
        self.cursor.failed = false;
    }

    /// What to do now. `matches` says how a record goes to this session under a scope, if it does.
    /// A delivery not [`sent`](Self::sent) by the next call has waited: what has replaced it since
    /// is sent in its stead.
    pub fn next(&mut self, matches: &mut dyn FnMut(Scope, &Record) -> Option<Selection>) -> Next {
        self.waited |= self.handed_out.take().is_some();
        if self.waited && self.head > self.read_at {
            self.give_up_buffer();
        }
        while let Some(record) = self.cursor.buffer.front() {
            let (scope, skip) = match self.passes.front() {
                Some(pass) => (
                    Scope::Pass(pass.id),
                    record.message.payload.is_empty() && !pass.deletions,
                ),
                None => (Scope::Live, false),
            };
            let selection = if skip { None } else { matches(scope, record) };
            let Some(selection) = selection else {
                let offset = record.offset;
                self.cursor.buffer.pop_front();
                self.step_past(offset);
                continue;
            };
            if selection.qos > 0 && !self.cursor.has_window() {
                self.waited = true;
                return Next::Wait;
            }
            self.handed_out = Some(record.offset);
            return Next::Send(Box::new(Delivery {
                record: record.clone(),
                retain: scope != Scope::Live || selection.retain,
                selection,
                era: self.cursor.era,
            }));
        }
        self.next_read()
    }

    fn next_read(&mut self) -> Next {
        while self
            .passes
            .front()
            .is_some_and(|pass| pass.next >= pass.end)
        {
            self.passes.pop_front();
        }
        match self.passes.front() {
            Some(pass) => self.cursor.request(pass.next),
            None if self.live < self.head => self.cursor.request(self.live),
            None => Next::Wait,
        }
    }

    /// The answer to a [`Next::Read`], from `changes_from`; an answer to a read given up meanwhile
    /// is dropped.
    ///
    /// # Errors
    /// The store's words where it could not read: nothing is asked for until [`wake`](Self::wake).
    pub fn filled(
        &mut self,
        request: &ReadRequest,
        answer: Result<Records, ReadError>,
    ) -> Result<(), String> {
        if !self.cursor.answers(request) {
            return Ok(());
        }
        let read = match answer {
            Ok(read) => read,
            Err(why) => {
                self.cursor.failed = true;
                return Err(why.to_string());
            }
        };
        self.head = self.head.max(read.next);
        self.read_at = read.next;
        self.waited = false;
        self.count_superseded(&read);
        match self.passes.front_mut() {
            Some(pass) => {
                let all = read.records.len();
                let end = pass.end;
                let values = read.records.into_iter().filter(|r| r.offset < end);
                self.cursor.buffer.extend(values);
                let ended = all == 0 || self.cursor.buffer.len() < all;
                if ended {
                    let last = self
                        .cursor
                        .buffer
                        .back()
                        .map_or(pass.next, |r| r.offset + 1);
                    pass.end = pass.end.min(last);
                }
            }
            None => {
                if read.records.is_empty() {
                    self.live = self.live.max(read.next);
                }
                self.cursor.buffer.extend(read.records);
            }
        }
        Ok(())
    }

    /// What a re-read no longer shows, in the stretch it covers, was replaced while it waited.
    fn count_superseded(&mut self, read: &Records) {
        let upto = read.records.last().map_or(u64::MAX, |last| last.offset);
        for record in &read.records {
            self.given_up.remove(&record.offset);
        }
        let gone = self.given_up.len();
        self.given_up.retain(|offset| *offset > upto);
        self.superseded += (gone - self.given_up.len()) as u64;
    }

    fn give_up_buffer(&mut self) {
        let offsets = self.cursor.buffer.iter().map(|record| record.offset);
        self.given_up.extend(offsets);
        self.cursor.drop_buffer();
        self.waited = false;
    }

    fn step_past(&mut self, offset: u64) {
        match self.passes.front_mut() {
            Some(pass) => pass.next = offset + 1,
            None => self.live = offset + 1,
        }
    }

    /// A delivery was taken by the session. At QoS 0 that is as good as acknowledged.
    pub fn sent(&mut self, delivery: &Delivery) {
        let offset = delivery.record.offset;
        let waiting = self.cursor.buffer.front().map(|record| record.offset);
        if delivery.era != self.cursor.era || waiting != Some(offset) {
            return;
        }
        self.handed_out = None;
        self.cursor.buffer.pop_front();
        self.step_past(offset);
        if delivery.selection.qos > 0 {
            self.cursor.launch(offset);
        }
    }

    /// A PUBACK or PUBCOMP arrived, or the session took back a superseded value it had on its way.
    pub fn acked(&mut self, era: Era, offset: u64) {
        if era == self.cursor.era {
            self.cursor.land(offset);
        }
    }

    /// Below this everything was delivered and acknowledged, or is no longer current: what a
    /// resumed session is not sent again.
    #[must_use]
    pub fn mark(&self) -> u64 {
        let passes = self.passes.iter().map(|pass| pass.next);
        let in_flight = self.cursor.lowest_in_flight();
        let lowest = passes.chain(in_flight).min();
        lowest.map_or(self.live, |lowest| lowest.min(self.live))
    }

    /// The connection ended and the session is kept: gives up what was read ahead, keeps the mark,
    /// unfinished passes and what is on its way. The session then takes back what is superseded
    /// ([`acked`](Self::acked)) before it sends the rest again.
    pub fn away(&mut self) {
        self.handed_out = None;
        self.give_up_buffer();
    }

    /// Values were removed from the channel: what was read ahead and not sent is read again.
    pub fn read_again(&mut self) {
        self.handed_out = None;
        self.waited = false;
        // Not given up for being replaced, so not counted as such.
        self.cursor.drop_buffer();
    }

    /// Values replaced while they waited for this subscriber, since the last call.
    pub fn take_superseded(&mut self) -> u64 {
        std::mem::take(&mut self.superseded)
    }

    /// Deliveries sent and not acknowledged.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.cursor.in_flight_count()
    }
}

#[cfg(test)]
mod tests;
