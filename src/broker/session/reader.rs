//! A session's place in one channel.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Subscription;
use super::matching::Matching;
use crate::broker::consumer::{
    AppendConsumer, Bounds, Delivery, Era, LatestConsumer, Next, Options, PassId, ReadBound,
    ReadRequest, Scope, Selection, TooManyPasses, select,
};
use crate::broker::topic::ChannelIndex;
use crate::storage::{ChannelId, Counters, ReadError, Record, Records};

/// One read ahead. A session holds at most this for each channel it reads, or one record; the
/// client's own window bounds what is under way.
const BOUNDS: Bounds = Bounds {
    read: ReadBound {
        records: 64,
        bytes: 64 * 1024,
    },
    in_flight: u16::MAX as usize,
};

/// A consumer and what goes with it.
#[derive(Debug)]
pub(crate) enum Reader {
    Append {
        id: ChannelId,
        consumer: AppendConsumer,
        /// It has read all there was, and nothing that matches has been stored since.
        at_end: bool,
        /// A read was asked for and has not been answered.
        reading: bool,
        /// The last read failed; it is asked for again after a wake.
        failed: bool,
    },
    Latest {
        id: ChannelId,
        consumer: LatestConsumer,
        /// The subscriptions each waiting pass is for.
        passes: BTreeMap<PassId, Vec<Arc<Subscription>>>,
    },
}

/// A record to be sent, and whether it is labelled with its channel's name.
pub(crate) struct Chosen {
    pub delivery: Box<Delivery>,
    pub names_channel: bool,
}

/// What a reader can do now.
pub(crate) enum Step {
    Send(Chosen),
    Read(ReadRequest),
    Wait,
}

impl Reader {
    pub fn append(id: ChannelId, position: u64) -> Self {
        Reader::Append {
            id,
            consumer: AppendConsumer::new(position, BOUNDS),
            at_end: false,
            reading: false,
            failed: false,
        }
    }

    pub fn latest(id: ChannelId, counters: Counters) -> Self {
        Reader::Latest {
            id,
            consumer: LatestConsumer::new(counters.next, BOUNDS),
            passes: BTreeMap::new(),
        }
    }

    pub fn id(&self) -> ChannelId {
        match self {
            Reader::Append { id, .. } | Reader::Latest { id, .. } => *id,
        }
    }

    pub fn wake(&mut self, next: u64, floor: u64) {
        match self {
            Reader::Append {
                consumer,
                at_end,
                failed,
                ..
            } => {
                (*at_end, *failed) = (false, false);
                consumer.wake(next, floor);
            }
            Reader::Latest { consumer, .. } => consumer.wake(next),
        }
    }

    /// A reader of a session that was served up to an offset, and has these below it on its way and
    /// sends them again itself.
    pub fn resume(id: ChannelId, served_to: u64, on_their_way: &[u64]) -> Self {
        Reader::Append {
            id,
            consumer: AppendConsumer::resume(served_to, on_their_way, BOUNDS),
            at_end: false,
            reading: false,
            failed: false,
        }
    }

    /// The era an append channel's deliveries are sent under now.
    pub fn era(&self) -> Era {
        match self {
            Reader::Append { consumer, .. } => consumer.era(),
            Reader::Latest { .. } => Era::default(),
        }
    }

    /// Whether an append channel's position waits for the acknowledgement of a delivery.
    pub fn waits_for(&self, era: Era, offset: u64) -> bool {
        match self {
            Reader::Append { consumer, .. } => consumer.waits_for(era, offset),
            Reader::Latest { .. } => false,
        }
    }

    /// Moves a reader that stands at the end past records that do not match it, up to `offset`;
    /// returns whether that could be done without reading them.
    pub fn skip_to(&mut self, offset: u64) -> bool {
        match self {
            Reader::Append {
                consumer, at_end, ..
            } if *at_end && consumer.in_flight() == 0 => {
                if consumer.position() < offset {
                    consumer.seek(offset);
                }
                true
            }
            _ => false,
        }
    }

    /// The position a durable session keeps on an append channel.
    pub fn stored_position(&self) -> Option<(ChannelId, u64)> {
        match self {
            Reader::Append { id, consumer, .. } => Some((*id, consumer.position())),
            Reader::Latest { .. } => None,
        }
    }

    /// Of an append channel, the lowest offset neither sent nor stepped past.
    pub fn served_to(&self) -> Option<(ChannelId, u64)> {
        match self {
            Reader::Append { id, consumer, .. } => Some((*id, consumer.served_to())),
            Reader::Latest { .. } => None,
        }
    }

    /// Goes on at `offset` of an append channel; what is under way is void.
    pub fn seek(&mut self, offset: u64) {
        if let Reader::Append {
            consumer, at_end, ..
        } = self
        {
            *at_end = false;
            consumer.seek(offset);
        }
    }

    /// Asks for every current value again, for these subscriptions.
    pub fn begin_pass(
        &mut self,
        head: u64,
        deletions: bool,
        subscriptions: Vec<Arc<Subscription>>,
    ) -> Result<(), TooManyPasses> {
        if let Reader::Latest {
            consumer, passes, ..
        } = self
        {
            let pass = consumer.begin_pass(head, deletions)?;
            passes.insert(pass, subscriptions);
        }
        Ok(())
    }

    /// What to do now, given the session's subscriptions.
    pub fn next(&mut self, index: ChannelIndex, client: &[u8], matching: &Matching) -> Step {
        let mut names_channel = false;
        let next = match self {
            Reader::Append {
                consumer,
                at_end,
                reading,
                failed,
                ..
            } => {
                let next = consumer
                    .next(&mut |record| live(index, client, matching, record, &mut names_channel));
                *reading |= matches!(next, Next::Read(_));
                // Waiting with nothing under way: there was no more to read.
                let waits = matches!(next, Next::Wait);
                *at_end = waits && !*reading && !*failed && consumer.in_flight() == 0;
                next
            }
            Reader::Latest {
                consumer, passes, ..
            } => consumer.next(&mut |scope, record| match scope {
                Scope::Live => {
                    passes.clear();
                    live(index, client, matching, record, &mut names_channel)
                }
                Scope::Pass(pass) => {
                    passes.retain(|id, _| *id >= pass);
                    let asked = passes.get(&pass)?;
                    in_pass(client, matching, asked, record, &mut names_channel)
                }
            }),
        };
        match next {
            Next::Send(delivery) => Step::Send(Chosen {
                delivery,
                names_channel,
            }),
            Next::Read(request) => Step::Read(request),
            Next::Wait => Step::Wait,
        }
    }

    pub fn sent(&mut self, delivery: &Delivery) {
        match self {
            Reader::Append { consumer, .. } => consumer.sent(delivery),
            Reader::Latest { consumer, .. } => consumer.sent(delivery),
        }
    }

    pub fn filled(
        &mut self,
        request: &ReadRequest,
        answer: Result<Records, ReadError>,
    ) -> Result<(), String> {
        match self {
            Reader::Append {
                consumer,
                reading,
                failed,
                ..
            } => {
                let filled = consumer.filled(request, answer);
                (*reading, *failed) = (false, filled.is_err());
                filled
            }
            Reader::Latest { consumer, .. } => consumer.filled(request, answer),
        }
    }

    pub fn acked(&mut self, era: Era, offset: u64) {
        match self {
            Reader::Append { consumer, .. } => consumer.acked(era, offset),
            Reader::Latest { consumer, .. } => consumer.acked(era, offset),
        }
    }

    /// Something that was read ahead may have been removed since.
    pub fn read_again(&mut self) {
        match self {
            // Nothing below the floor is served, whatever was read.
            Reader::Append { .. } => {}
            Reader::Latest { consumer, .. } => consumer.read_again(),
        }
    }

    /// The connection ended: what was read ahead is given up.
    pub fn away(&mut self) {
        match self {
            Reader::Append {
                consumer,
                at_end,
                reading,
                ..
            } => {
                (*at_end, *reading) = (false, false);
                consumer.away();
            }
            Reader::Latest { consumer, .. } => consumer.away(),
        }
    }

    /// Records the floor took from under it since the last call.
    pub fn take_lost(&mut self) -> u64 {
        match self {
            Reader::Append { consumer, .. } => consumer.take_lost(),
            Reader::Latest { .. } => 0,
        }
    }
}

impl Reader {
    /// Values replaced while they waited for this subscriber, since the last call.
    pub fn take_superseded(&mut self) -> u64 {
        match self {
            Reader::Append { .. } => 0,
            Reader::Latest { consumer, .. } => consumer.take_superseded(),
        }
    }
}

/// How a record goes out under all of the session's subscriptions.
fn live(
    index: ChannelIndex,
    client: &[u8],
    matching: &Matching,
    record: &Record,
    names_channel: &mut bool,
) -> Option<Selection> {
    let mut options = Vec::new();
    *names_channel = false;
    let topic = crate::broker::publish::text(&record.message.topic);
    matching.visit(topic, |subscription| {
        if !subscription.takes(topic.as_bytes()) {
            return;
        }
        *names_channel |= subscription.reaches.len() > 1;
        options.push(subscription.options(subscription.from.get(&index).copied()));
    });
    select(record, client, options)
}

/// How a record goes out under the subscriptions one pass is for, as far as they are in force.
fn in_pass(
    client: &[u8],
    matching: &Matching,
    asked: &[Arc<Subscription>],
    record: &Record,
    names_channel: &mut bool,
) -> Option<Selection> {
    let mut options = Vec::new();
    *names_channel = false;
    let topic = crate::broker::publish::text(&record.message.topic);
    matching.visit(topic, |subscription| {
        let asked = asked.iter().any(|asked| asked.form == subscription.form);
        if asked && subscription.takes(topic.as_bytes()) {
            *names_channel |= subscription.reaches.len() > 1;
            options.push(subscription.options(None));
        }
    });
    select(record, client, options)
}

impl Subscription {
    pub(crate) fn options(&self, from: Option<u64>) -> Options {
        Options {
            qos: self.qos,
            no_local: self.no_local,
            retain_as_published: self.retain_as_published,
            identifier: self.identifier,
            from: from.unwrap_or(0),
        }
    }
}
