//! A client moves its own position in an append channel, by `$saguin/consumer/<channel>/seek`.
//!
//! The position is stored before the client is told, and the client is told before it is sent
//! anything from there. What was on its way before belongs to an era that is over: late
//! acknowledgements of it move nothing.

use bytes::Bytes;

use super::moment::{ago, rfc_3339};
use super::{Reply, Request};
use crate::broker::channel::Channel;
use crate::broker::connection::Connection;
use crate::broker::counters::bump;
use crate::broker::reason::{Reason, Refusal};
use crate::broker::session::reader::Reader;
use crate::broker::topic::ChannelIndex;
use crate::storage::{Batch, ReadError, ReadLimit, Receipt, StoreError};

/// Where a seek goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Floor,
    Next,
    Offset(u64),
    /// Unix milliseconds.
    Moment(u64),
}

impl Target {
    /// `0`, `-1`, an offset, so long ago, or a moment of RFC 3339.
    fn parse(payload: &[u8], now_unix_ms: u64) -> Option<Self> {
        let text = std::str::from_utf8(payload).ok()?;
        if text == "-1" {
            return Some(Target::Next);
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return match text.parse().ok()? {
                0 => Some(Target::Floor),
                offset => Some(Target::Offset(offset)),
            };
        }
        ago(text, now_unix_ms)
            .or_else(|| rfc_3339(text))
            .map(Target::Moment)
    }

    /// The offset it stands for in a channel now.
    fn resolve(self, channel: &Channel, now_unix_ms: u64) -> Result<u64, Refused> {
        let counters = channel.store.counters(channel.id);
        let (floor, next) = (counters.floor, counters.next);
        match self {
            Target::Floor => Ok(floor),
            Target::Next => Ok(next),
            // What is gone is never served as if it had not been there (invariant 1).
            Target::Offset(offset) if offset < floor => Err(Refused::BelowFloor(floor)),
            Target::Offset(offset) if offset > next => Err(Refused::BeyondEnd(next)),
            Target::Offset(offset) => Ok(offset),
            Target::Moment(moment) => moment_offset(channel, floor, moment, now_unix_ms),
        }
    }
}

/// The earliest record at or after a moment. Where retention has removed records, a moment before
/// the oldest one left is refused: some of those it asks for may be gone (invariant 1).
fn moment_offset(
    channel: &Channel,
    floor: u64,
    moment: u64,
    now_unix_ms: u64,
) -> Result<u64, Refused> {
    let offset = channel.store.at_or_after(channel.id, moment)?;
    if floor <= 1 {
        return Ok(offset);
    }
    let limit = ReadLimit {
        records: 1,
        bytes: 1,
    };
    let oldest = channel.store.read_from(channel.id, floor, limit)?;
    let is_older = match oldest.records.first() {
        Some(oldest) => {
            offset <= oldest.offset && oldest.message.received_at.is_none_or(|at| moment < at)
        }
        // Everything is gone, and nothing says when it came.
        None => moment < now_unix_ms,
    };
    if is_older {
        return Err(Refused::BelowFloor(floor));
    }
    Ok(offset)
}

/// Why a seek was refused, as its reply says it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refused {
    BelowFloor(u64),
    BeyondEnd(u64),
    NoSession,
    Malformed,
    Storage(String),
}

impl From<ReadError> for Refused {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::BelowFloor { floor } => Refused::BelowFloor(floor),
            ReadError::Failed(why) => Refused::Storage(why),
        }
    }
}

impl Refused {
    fn word(&self) -> &'static str {
        match self {
            Refused::BelowFloor(_) => "below-floor",
            Refused::BeyondEnd(_) => "beyond-end",
            Refused::NoSession => "no-session",
            Refused::Malformed => "malformed",
            Refused::Storage(_) => "storage",
        }
    }

    fn label(&self) -> Option<(&'static str, String)> {
        match self {
            Refused::BelowFloor(floor) => Some(("saguin-floor", floor.to_string())),
            Refused::BeyondEnd(next) => Some(("saguin-next", next.to_string())),
            _ => None,
        }
    }

    fn sentence(&self) -> String {
        match self {
            Refused::BelowFloor(floor) => {
                format!("below-floor: that was removed; the oldest offset kept is {floor}")
            }
            Refused::BeyondEnd(next) => format!("beyond-end: the next offset is {next}"),
            Refused::NoSession => {
                "no-session: a position is kept only in a session that outlives its connection"
                    .into()
            }
            Refused::Malformed => {
                "malformed: seek to 0, -1, an offset, so long ago (12h) or an RFC 3339 moment"
                    .into()
            }
            Refused::Storage(why) => format!("storage: the position was not moved: {why}"),
        }
    }
}

/// A seek on its way to the store.
struct Moving {
    request: Request,
    channel: ChannelIndex,
    offset: u64,
    /// Where the session stood before; `None` where it had no place in the channel.
    before: Option<u64>,
}

impl Connection {
    /// Moves the session's position and has that stored.
    pub(super) fn seek(&self, request: Request, index: ChannelIndex, payload: &[u8]) {
        let channel = self.broker.channel(index);
        let now = self.broker.now();
        let durable = self.session.lock().expiry_seconds > 0;
        let target = match Target::parse(payload, now.unix_ms) {
            None => Err(Refused::Malformed),
            Some(_) if !durable => Err(Refused::NoSession),
            Some(target) => target.resolve(channel, now.unix_ms),
        };
        let moved = target.and_then(|offset| self.begin_seek(&request, index, offset));
        if let Err(refused) = moved {
            self.refuse_seek(&request, index, &refused);
        }
    }

    /// The new era begins at once, and nothing of it is sent until the store has the position.
    fn begin_seek(
        &self,
        request: &Request,
        index: ChannelIndex,
        offset: u64,
    ) -> Result<(), Refused> {
        let channel = self.broker.channel(index);
        let mut state = self.session.lock();
        if state.claimed {
            let why = "another connection takes this session over; seek again there";
            return Err(Refused::Storage(why.into()));
        }
        let Some(link) = state.owned_by(self.number) else {
            // There is nobody left to tell.
            return Ok(());
        };
        link.pending_grants += 1;
        state.seeking = true;
        let before = match state.readers.get_mut(&index) {
            Some(reader) => {
                let before = reader.stored_position().map(|(_, position)| position);
                let counters = channel.store.counters(channel.id);
                reader.seek(offset);
                reader.wake(counters.next, counters.floor);
                before
            }
            None => state.sought.insert(index, offset),
        };
        state.dirty_positions.remove(&index);
        state.stored_positions.insert(channel.id);
        // What is on its way is no longer the reader's, and the window says so with the position.
        let batch = Batch {
            operations: vec![
                self.session.put_position(channel.id, offset),
                self.session.put_window(&mut state),
            ],
        };
        let connection = self.clone();
        let moving = Moving {
            request: request.clone(),
            channel: index,
            offset,
            before,
        };
        // Submitted under the session's lock, as every write of a session is.
        self.broker.session_store.submit(
            batch,
            Box::new(move |stored| connection.sought(&moving, stored)),
        );
        Ok(())
    }

    fn sought(&self, moving: &Moving, stored: Result<Receipt, StoreError>) {
        let mut state = self.session.lock();
        state.seeking = false;
        if let Some(link) = state.owned_by(self.number) {
            link.pending_grants = link.pending_grants.saturating_sub(1);
        }
        // A SUBSCRIBE that waited for this goes on.
        state.wake_reader();
        state.wake_writer();
        if let Err(error) = stored {
            bump(&self.broker.counters.session_store_errors);
            // Back to the lowest that was not acknowledged: what was on its way comes again.
            match (state.readers.get_mut(&moving.channel), moving.before) {
                (Some(reader), Some(before)) => reader.seek(before),
                (None, Some(before)) => {
                    state.sought.insert(moving.channel, before);
                }
                (_, None) => {
                    state.sought.remove(&moving.channel);
                }
            }
            if state.readers.get(&moving.channel).is_some_and(is_append) {
                state.dirty_positions.insert(moving.channel);
            }
            drop(state);
            let refused = Refused::Storage(error.to_string());
            return self.refuse_seek(&moving.request, moving.channel, &refused);
        }
        let reply = self.seek_reply(
            &moving.request,
            moving.channel,
            moving.offset.to_string(),
            &[],
        );
        self.reply(&mut state, reply);
        drop(state);
        self.conclude_request(moving.request.ticket, Ok(()));
    }

    fn refuse_seek(&self, request: &Request, index: ChannelIndex, refused: &Refused) {
        let label = refused.label();
        let labels: &[_] = label.as_slice();
        let reply = self.seek_reply(request, index, refused.word().into(), labels);
        self.reply(&mut self.session.lock(), reply);
        let refusal = Refusal::new(Reason::ImplementationSpecific, refused.sentence());
        self.conclude_request(request.ticket, Err(refusal));
    }

    fn seek_reply<'a>(
        &self,
        request: &'a Request,
        index: ChannelIndex,
        payload: String,
        labels: &'a [(&'static str, String)],
    ) -> Reply<'a> {
        let own = || {
            let name = &self.broker.channel(index).name;
            Bytes::from(format!("$saguin/consumer/{name}/seek/reply"))
        };
        Reply {
            topic: request.response_topic.clone().unwrap_or_else(own),
            payload: payload.into(),
            correlation_data: request.correlation_data.as_ref(),
            labels,
        }
    }
}

fn is_append(reader: &Reader) -> bool {
    reader.stored_position().is_some()
}
