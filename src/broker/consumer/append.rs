//! One session's cursor in one append channel.

use super::cursor::{Bounds, Cursor, Delivery, Era, Next, ReadRequest};
use super::selection::Selection;
use crate::storage::{ReadError, Record, Records};

/// Reads an append channel in offset order, steps past what does not match, and knows the position
/// that may be stored.
#[derive(Debug)]
pub struct AppendConsumer {
    cursor: Cursor,
    /// The lowest offset neither sent nor stepped past.
    next: u64,
    /// The lowest offset not read into the buffer.
    read_next: u64,
    head: u64,
    floor: u64,
    lost: u64,
}

impl AppendConsumer {
    /// A consumer that reads from `position`: its stored position, or the channel's floor or next
    /// offset where it has none. A position below the floor is not one to resume from: its session
    /// has ended (invariant 1).
    #[must_use]
    pub fn new(position: u64, bounds: Bounds) -> Self {
        AppendConsumer {
            cursor: Cursor::new(bounds),
            next: position,
            read_next: position,
            head: 0,
            floor: 0,
            lost: 0,
        }
    }

    /// A consumer of a session that was served up to an offset, and has these on its way and sends
    /// them again itself: served from there, and from above the highest of them, with the lowest of
    /// them as its position.
    #[must_use]
    pub fn resume(served_to: u64, on_their_way: &[u64], bounds: Bounds) -> Self {
        let after = on_their_way.iter().max().map_or(0, |highest| highest + 1);
        let mut consumer = Self::new(served_to.max(after), bounds);
        for offset in on_their_way {
            consumer.cursor.launch(*offset);
        }
        consumer
    }

    /// The channel stands at `head` (its next offset) and `floor`: there may be more to read.
    /// Clears a failed read.
    pub fn wake(&mut self, head: u64, floor: u64) {
        self.head = self.head.max(head);
        self.cursor.failed = false;
        self.raise_floor(floor);
    }

    /// What to do now. `matches` says how a record goes to this session, if it does. The same
    /// delivery is returned until it is [`sent`](Self::sent).
    pub fn next(&mut self, matches: &mut dyn FnMut(&Record) -> Option<Selection>) -> Next {
        while let Some(record) = self.cursor.buffer.front() {
            let Some(selection) = matches(record) else {
                self.next = record.offset + 1;
                self.cursor.buffer.pop_front();
                continue;
            };
            if selection.qos > 0 && !self.cursor.has_window() {
                return Next::Wait;
            }
            return Next::Send(Box::new(Delivery {
                record: record.clone(),
                // Only the publisher's flag, and only if asked for: a replay is not a retained
                // value.
                retain: selection.retain,
                selection,
                era: self.cursor.era,
            }));
        }
        if self.read_next >= self.head {
            return Next::Wait;
        }
        self.cursor.request(self.read_next)
    }

    /// The answer to a [`Next::Read`]; an answer to a read given up meanwhile is dropped.
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
        match answer {
            Ok(read) => {
                self.head = self.head.max(read.next);
                match read.records.last() {
                    Some(last) => self.read_next = last.offset + 1,
                    None => {
                        self.read_next = self.read_next.max(read.next);
                        self.next = self.read_next;
                    }
                }
                self.cursor.buffer.extend(read.records);
            }
            Err(ReadError::BelowFloor { floor }) => self.raise_floor(floor),
            Err(ReadError::Failed(why)) => {
                self.cursor.failed = true;
                return Err(why);
            }
        }
        Ok(())
    }

    /// Restarts at the floor where it has passed the reader. Nothing below a floor is served, what
    /// was read ahead included (invariant 1).
    fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        if self.next >= self.floor {
            return;
        }
        self.lost += self.floor - self.next;
        self.next = self.floor;
        self.read_next = self.read_next.max(self.floor);
        while let Some(record) = self.cursor.buffer.front()
            && record.offset < self.floor
        {
            self.cursor.buffer.pop_front();
        }
        if self.cursor.buffer.is_empty() {
            self.cursor.drop_buffer();
        }
    }

    /// A delivery was taken by the session. At QoS 0 that is as good as acknowledged.
    pub fn sent(&mut self, delivery: &Delivery) {
        let offset = delivery.record.offset;
        let waiting = self.cursor.buffer.front().map(|record| record.offset);
        if delivery.era != self.cursor.era || waiting != Some(offset) {
            return;
        }
        self.cursor.buffer.pop_front();
        self.next = offset + 1;
        if delivery.selection.qos > 0 {
            self.cursor.launch(offset);
        }
    }

    /// A PUBACK or PUBCOMP arrived, in whatever order. One of an earlier era moves nothing.
    pub fn acked(&mut self, era: Era, offset: u64) {
        if era == self.cursor.era {
            self.cursor.land(offset);
        }
    }

    /// The lowest offset not acknowledged: what may be stored. It lags what was sent and never
    /// leads it.
    #[must_use]
    pub fn position(&self) -> u64 {
        let lowest = self.cursor.lowest_in_flight().unwrap_or(self.next);
        lowest.min(self.next)
    }

    /// The lowest offset neither sent nor stepped past.
    #[must_use]
    pub fn served_to(&self) -> u64 {
        self.next
    }

    /// Reads from `offset` instead. Begins an era: what is on its way is void, and its late
    /// acknowledgements move nothing. Retain Handling 2 over a stored position is this with the
    /// channel's next offset, once that is stored.
    pub fn seek(&mut self, offset: u64) {
        self.cursor.begin_era();
        self.cursor.failed = false;
        self.next = offset;
        self.read_next = offset;
    }

    /// The era deliveries are sent under now.
    #[must_use]
    pub fn era(&self) -> Era {
        self.cursor.era
    }

    /// Offsets the floor took from under this reader since the last call: to be told to the
    /// operator.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// The connection ended and the session is kept: gives up what was read ahead, keeps the
    /// position and what is on its way.
    pub fn away(&mut self) {
        self.cursor.drop_buffer();
        self.read_next = self.next;
    }

    /// Whether a delivery is on its way and not acknowledged.
    #[must_use]
    pub fn waits_for(&self, era: Era, offset: u64) -> bool {
        era == self.cursor.era && self.cursor.is_in_flight(offset)
    }

    /// Deliveries sent and not acknowledged.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.cursor.in_flight_count()
    }
}

#[cfg(test)]
mod tests;
