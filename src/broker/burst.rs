//! What one client published in one go, on its way to the store.
//!
//! A client that keeps a window full sends many publishes at a time. They are judged one by one and
//! handed to the store together, which costs one hand-over, one wake-up and one lock for all of
//! them. Each is kept or refused by itself, and answered in its turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::storage::{ChannelKind, Message, Operation, Record, Store, StoreError};

use super::Broker;
use super::connection::Connection;
use super::counters::bump;
use super::packet::Publish;
use super::session::acks::Outcome;
use super::time::Now;
use super::topic::ChannelIndex;
use super::turns::Turn;
use super::wake::Committed;

/// Most publishes of one burst. With fewer a burst costs more, with more its first waits longer.
const MAX_PUBLISHES: usize = 64;

/// Topics and payloads after which a burst takes no more, bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Publishes that were taken and not yet handed to the store. They stay in the read buffer they
/// came in.
#[derive(Default)]
pub struct Burst {
    store: Option<Arc<dyn Store>>,
    operations: Vec<Operation>,
    owed: Vec<Owed>,
    bytes: usize,
    /// The last topic that led to a channel, and which: a client publishes to
    /// the same topic most of the time, and what holds a topic does not change.
    last: Option<(Bytes, ChannelIndex)>,
}

/// Who is told of one of them.
struct Owed {
    /// Its place among the PUBACKs; `None` at QoS 0.
    ticket: Option<u64>,
    by: Kept,
}

/// What keeps one of them.
enum Kept {
    Channel {
        channel: ChannelIndex,
        topic: Bytes,
    },
    /// A queue: what a worker may be offered as soon as it is stored.
    Queue {
        channel: ChannelIndex,
        job: Box<Message>,
    },
    /// The broadcast log.
    Log(Arc<Message>, Turn),
}

impl Burst {
    /// The channel of a topic, if it is the same as before.
    pub(super) fn known(&self, topic: &[u8]) -> Option<ChannelIndex> {
        let (last, channel) = self.last.as_ref()?;
        (last == topic).then_some(*channel)
    }

    fn has_room(&self) -> bool {
        self.operations.len() < MAX_PUBLISHES && self.bytes < MAX_BYTES
    }

    fn goes_to(&self, store: &Arc<dyn Store>) -> bool {
        self.store
            .as_ref()
            .is_none_or(|own| Arc::ptr_eq(own, store))
    }
}

impl Connection {
    /// Takes a publish for a channel.
    pub(super) fn keep(
        &self,
        burst: &mut Burst,
        ticket: Option<u64>,
        channel: ChannelIndex,
        publish: Publish,
        now: Now,
    ) {
        let kept = self.broker.channel(channel);
        if !burst.goes_to(&kept.store) {
            self.flush(burst);
        }
        let mut message = Broker::message(self.session.publisher.clone(), publish, now);
        if kept.kind == ChannelKind::Queue {
            if std::mem::take(&mut message.retain) {
                bump(&self.broker.counters.queue_retain_dropped);
            }
            message = message.detached();
        }
        burst.bytes += message.topic.len() + message.payload.len();
        let topic = match &burst.last {
            Some((last, _)) if last == &message.topic => last.clone(),
            // Copied: a slice would keep the buffer the publish came in.
            _ => Bytes::copy_from_slice(&message.topic),
        };
        burst.last = Some((topic.clone(), channel));
        burst.owed.push(Owed {
            ticket,
            by: if kept.kind == ChannelKind::Queue {
                let job = Box::new(message.clone());
                Kept::Queue { channel, job }
            } else {
                Kept::Channel { channel, topic }
            },
        });
        let id = kept.id;
        burst.operations.push(match kept.kind {
            ChannelKind::Latest => Operation::Set {
                channel: id,
                message,
            },
            ChannelKind::Append => Operation::Append {
                channel: id,
                message,
            },
            ChannelKind::Queue => Operation::Enqueue {
                channel: id,
                message,
            },
        });
        burst.store.get_or_insert_with(|| kept.store.clone());
        if !burst.has_room() {
            self.flush(burst);
        }
    }

    /// Takes a broadcast message that somebody is owed, for the broadcast log.
    pub(super) fn log(&self, burst: &mut Burst, ticket: Option<u64>, message: Message) {
        let log = &self.broker.log;
        if !burst.goes_to(&log.store) {
            self.flush(burst);
        }
        burst.bytes += message.topic.len() + message.payload.len();
        burst.owed.push(Owed {
            ticket,
            by: Kept::Log(Arc::new(message.clone()), self.handle.turns.take()),
        });
        burst.operations.push(Operation::Enqueue {
            channel: log.channel,
            message,
        });
        burst.store.get_or_insert_with(|| log.store.clone());
        if !burst.has_room() {
            self.flush(burst);
        }
    }

    /// Hands what was taken to the store. The reader does so before it waits for anything, and
    /// before any packet that may build on it.
    pub fn flush(&self, burst: &mut Burst) {
        let Some(store) = burst.store.take() else {
            return;
        };
        burst.bytes = 0;
        let operations = std::mem::take(&mut burst.operations);
        let owed = std::mem::take(&mut burst.owed);
        let connection = self.clone();
        store.submit_each(
            operations,
            Box::new(move |outcomes| connection.kept(owed, outcomes)),
        );
    }

    fn kept(&self, owed: Vec<Owed>, outcomes: Vec<Result<Option<u64>, StoreError>>) {
        let mut committed: Vec<Committed> = Vec::new();
        let mut jobs: BTreeMap<ChannelIndex, Vec<Record>> = BTreeMap::new();
        let mut answers: Vec<(u64, Outcome)> = Vec::with_capacity(owed.len());
        let mut broadcast: Vec<(Arc<Message>, Turn, u64)> = Vec::new();
        for (Owed { ticket, by }, outcome) in owed.into_iter().zip(outcomes) {
            let offset = *outcome.as_ref().unwrap_or(&None);
            let outcome = outcome.map(|_| ()).map_err(|error| match &by {
                Kept::Channel { channel, .. } | Kept::Queue { channel, .. } => {
                    self.broker.not_stored(*channel, &error)
                }
                Kept::Log(..) => self.broker.refused_by_store(&error),
            });
            answers.extend(ticket.map(|ticket| (ticket, outcome)));
            let Some(offset) = offset else { continue };
            let (channel, topic) = match by {
                Kept::Log(message, turn) => {
                    broadcast.push((message, turn, offset));
                    continue;
                }
                Kept::Queue { channel, job } => {
                    let message = *job;
                    let jobs = jobs.entry(channel).or_default();
                    jobs.push(Record { offset, message });
                    continue;
                }
                Kept::Channel { channel, topic } => (channel, topic),
            };
            // Its readers are the same.
            match committed.last_mut() {
                Some(last) if last.channel == channel && last.topic == topic => {
                    last.offset = offset;
                }
                _ => committed.push(Committed {
                    channel,
                    topic,
                    offset,
                }),
            }
        }
        self.session.settle_all(self.number, answers);
        self.broker.committed(committed);
        for (message, turn, offset) in broadcast {
            let broker = self.broker.clone();
            turn.come(Box::new(move || {
                broker.hand_out(message, Some(offset), broker.now());
            }));
        }
        for (index, jobs) in jobs {
            if let Some(queue) = &self.broker.channel(index).queue {
                queue.enqueued(&jobs);
            }
        }
    }
}
