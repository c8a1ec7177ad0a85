//! Packet identifiers, and what is under way to the client beneath each.
//!
//! | phase | moved on by |
//! |---|---|
//! | published (its PUBLISH went out, or is about to) | PUBACK at QoS 1 → gone; PUBREC at QoS 2 → received, or gone where it refuses |
//! | received (QoS 2: a PUBREL is owed until its PUBCOMP) | PUBCOMP → gone |

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::broadcast::BroadcastDelivery;
use crate::broker::consumer::Era;
use crate::broker::queue::DeliveryId;
use crate::broker::topic::ChannelIndex;

/// What waits for a PUBACK.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    /// A record of an append channel, read again where it has to be sent again.
    Append {
        channel: ChannelIndex,
        offset: u64,
        era: Era,
    },
    /// A value of a latest channel.
    Latest {
        channel: ChannelIndex,
        topic: Bytes,
        offset: u64,
        era: Era,
        /// The RETAIN flag it went out with, which it keeps when it is sent again.
        retain: bool,
    },
    /// A broadcast message.
    Broadcast(BroadcastDelivery),
    /// A message that is gone while its QoS 2 exchange is not closed.
    Gone,
    /// A job under a delivery. It never outlives the connection.
    Job {
        queue: ChannelIndex,
        delivery: DeliveryId,
    },
}

impl Held {
    /// Whether a session that outlives its connection has the store know of the delivery before it
    /// goes out.
    pub fn is_stored_first(&self, qos: u8) -> bool {
        let is_logged = matches!(self, Held::Broadcast(delivery) if delivery.logged.is_some());
        qos == 2 || is_logged
    }
}

/// How far a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its PUBLISH has not been answered.
    Published,
    /// QoS 2: the client has it, and is owed a PUBREL.
    Received,
}

/// What a PUBREC came to.
#[derive(Clone, Debug)]
pub(crate) enum Received {
    /// The delivery is received now; a PUBREL is owed.
    First,
    /// It was received before.
    Again,
    /// No QoS 2 delivery goes under this identifier.
    Unknown,
}

/// QoS 1 and 2 publishes one session has on their way at most, whatever its client's Receive Maximum. An
/// entry, its topic included, costs up to about a KiB, so this is some 4 MiB (invariant 13).
pub(crate) const MAX_IN_FLIGHT: usize = 4096;

#[derive(Debug)]
struct Entry {
    /// Rises with every identifier taken: the order in which resending happens (MQTT-4.6.0-1).
    order: u64,
    /// Whether it went out on the present connection.
    sent: bool,
    /// 1 or 2.
    qos: u8,
    phase: Phase,
    held: Held,
}

/// A delivery on its way, as others see it.
#[derive(Clone, Debug)]
pub(crate) struct OnItsWay {
    pub id: u16,
    pub qos: u8,
    pub phase: Phase,
    pub held: Held,
}

/// What the client has not acknowledged. At most Receive Maximum entries are sent on one
/// connection; a resumed session may hold more from before, which wait for room
/// (MQTT-3.3.4-9). [`State::window`](super::State::window) says what may be added.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    last_id: u16,
    last_order: u64,
    entries: BTreeMap<u16, Entry>,
    /// How many entries went out on the present connection.
    sent: usize,
    resend: VecDeque<u16>,
}

impl InFlight {
    /// How many more entries may be held beneath this Receive Maximum. What waits to be sent again
    /// has its place already.
    pub fn room(&self, receive_maximum: u16) -> usize {
        usize::from(receive_maximum)
            .min(MAX_IN_FLIGHT)
            .saturating_sub(self.entries.len())
    }

    /// How many of the entries held may be sent again on the present connection.
    pub fn resend_room(&self, receive_maximum: u16) -> usize {
        usize::from(receive_maximum).saturating_sub(self.sent)
    }

    /// Whether something from an earlier connection still has to be sent again.
    pub fn owes_resend(&self) -> bool {
        !self.resend.is_empty()
    }

    /// Takes the next free identifier for `held`, which goes out now at `qos`; `None` where as much
    /// is held as may be.
    pub fn send(&mut self, held: Held, qos: u8) -> Option<u16> {
        if self.entries.len() >= MAX_IN_FLIGHT {
            return None;
        }
        let id = self.free_id()?;
        self.last_id = id;
        self.last_order += 1;
        self.sent += 1;
        self.entries.insert(
            id,
            Entry {
                order: self.last_order,
                sent: true,
                qos,
                phase: Phase::Published,
                held,
            },
        );
        Some(id)
    }

    /// Puts back what an earlier process had on its way. The order of the calls is that of resending.
    pub fn restore(&mut self, on_its_way: OnItsWay) {
        self.last_order += 1;
        self.resend.push_back(on_its_way.id);
        self.entries.insert(
            on_its_way.id,
            Entry {
                order: self.last_order,
                sent: false,
                qos: on_its_way.qos,
                phase: on_its_way.phase,
                held: on_its_way.held,
            },
        );
    }

    /// Whether anything is on its way.
    pub fn holds_any(&self) -> bool {
        !self.entries.is_empty()
    }

    /// The identifier last given.
    pub fn last_id(&self) -> u16 {
        self.last_id
    }

    /// Goes on behind this identifier.
    pub fn set_last_id(&mut self, id: u16) {
        self.last_id = id;
    }

    /// Everything on its way, in the order it was sent.
    pub fn on_their_way(&self) -> Vec<OnItsWay> {
        let mut entries: Vec<(&u16, &Entry)> = self.entries.iter().collect();
        entries.sort_unstable_by_key(|(_, entry)| entry.order);
        let one = |(id, entry): (&u16, &Entry)| OnItsWay {
            id: *id,
            qos: entry.qos,
            phase: entry.phase,
            held: entry.held.clone(),
        };
        entries.into_iter().map(one).collect()
    }

    /// A PUBREC that takes the delivery.
    pub fn received(&mut self, id: u16) -> Received {
        match self.entries.get_mut(&id) {
            Some(entry) if entry.qos == 2 => {
                match std::mem::replace(&mut entry.phase, Phase::Received) {
                    Phase::Published => {
                        if !entry.sent {
                            // The client had it on an earlier connection: nothing is sent again.
                            entry.sent = true;
                            self.sent += 1;
                            self.resend.retain(|waiting| *waiting != id);
                        }
                        Received::First
                    }
                    Phase::Received => Received::Again,
                }
            }
            _ => Received::Unknown,
        }
    }

    /// The message of a QoS 2 delivery is gone. The client may have it all the same, so its
    /// identifier is not free before a PUBREL has closed the exchange; returns whether it is at QoS 2.
    pub fn message_gone(&mut self, id: u16) -> bool {
        match self.entries.get_mut(&id) {
            Some(entry) if entry.qos == 2 => {
                entry.phase = Phase::Received;
                true
            }
            _ => false,
        }
    }

    /// The QoS of what goes under an identifier.
    pub fn qos(&self, id: u16) -> Option<u8> {
        Some(self.entries.get(&id)?.qos)
    }

    /// A broadcast message goes, its QoS 2 exchange stays.
    pub fn take_broadcast(&mut self, id: u16) -> Option<BroadcastDelivery> {
        let entry = self.entries.get_mut(&id)?;
        match std::mem::replace(&mut entry.held, Held::Gone) {
            Held::Broadcast(delivery) => Some(delivery),
            other => {
                entry.held = other;
                None
            }
        }
    }

    /// A PUBCOMP: takes the delivery out, if its PUBREC came before.
    pub fn completed(&mut self, id: u16) -> Option<Held> {
        let received = self.entries.get(&id)?.phase == Phase::Received;
        if received { self.remove(id) } else { None }
    }

    /// What goes under an identifier.
    pub fn get(&self, id: u16) -> Option<OnItsWay> {
        let entry = self.entries.get(&id)?;
        Some(OnItsWay {
            id,
            qos: entry.qos,
            phase: entry.phase,
            held: entry.held.clone(),
        })
    }

    /// The first identifier behind the last one given that is not in use. Each is looked at once.
    fn free_id(&self) -> Option<u16> {
        let next = self.last_id.checked_add(1).unwrap_or(1);
        (next..=u16::MAX)
            .chain(1..next)
            .find(|id| !self.entries.contains_key(id))
    }

    /// The next entry to send again under its own identifier, if there is one.
    pub fn next_resend(&self) -> Option<OnItsWay> {
        self.get(*self.resend.front()?)
    }

    /// The entry [`next_resend`](Self::next_resend) gave has gone out.
    pub fn resent(&mut self, id: u16) {
        if self.resend.front() == Some(&id) {
            self.resend.pop_front();
        }
        if let Some(entry) = self.entries.get_mut(&id)
            && !entry.sent
        {
            entry.sent = true;
            self.sent += 1;
        }
    }

    /// A PUBACK, or an entry that is void: takes it out.
    pub fn remove(&mut self, id: u16) -> Option<Held> {
        let entry = self.entries.remove(&id)?;
        if entry.sent {
            self.sent -= 1;
        } else {
            self.resend.retain(|waiting| *waiting != id);
        }
        Some(entry.held)
    }

    /// Takes out everything `void` says.
    pub fn remove_where(&mut self, void: impl Fn(&Held) -> bool) {
        let gone: Vec<u16> = self
            .entries
            .iter()
            .filter(|(_, entry)| void(&entry.held))
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            self.remove(id);
        }
    }

    /// The connection is gone: jobs go with it, the rest waits to be sent again, in order.
    pub fn connection_ended(&mut self) {
        self.remove_where(|held| matches!(held, Held::Job { .. }));
        for entry in self.entries.values_mut() {
            entry.sent = false;
        }
        self.sent = 0;
        let mut order: Vec<(u64, u16)> = self
            .entries
            .iter()
            .map(|(id, entry)| (entry.order, *id))
            .collect();
        order.sort_unstable();
        self.resend = order.into_iter().map(|(_, id)| id).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(offset: u64) -> Held {
        Held::Append {
            channel: ChannelIndex(0),
            offset,
            era: Era::default(),
        }
    }

    fn offset(held: Option<Held>) -> Option<u64> {
        match held {
            Some(Held::Append { offset, .. }) => Some(offset),
            _ => None,
        }
    }

    #[test]
    fn identifiers_start_at_1_and_skip_those_in_use() {
        let mut inflight = InFlight::default();
        assert_eq!(inflight.send(record(1), 1), Some(1));
        assert_eq!(inflight.send(record(2), 1), Some(2));
        inflight.last_id = u16::MAX - 1;
        assert_eq!(inflight.send(record(3), 1), Some(u16::MAX));
        assert_eq!(inflight.send(record(4), 1), Some(3));
        assert_eq!(offset(inflight.remove(2)), Some(2));
        assert!(inflight.remove(2).is_none());
        assert_eq!(inflight.entries.len(), 3);
    }

    #[test]
    fn there_is_an_end_to_what_is_held_and_no_identifier_past_it() {
        let mut inflight = InFlight::default();
        for number in 1..=MAX_IN_FLIGHT {
            assert_eq!(inflight.room(u16::MAX), MAX_IN_FLIGHT - (number - 1));
            assert!(inflight.send(record(0), 1).is_some());
        }
        assert_eq!(inflight.room(u16::MAX), 0);
        assert_eq!(inflight.send(record(0), 1), None);
        inflight.connection_ended();
        assert_eq!(inflight.room(u16::MAX), 0);
        assert_eq!(inflight.send(record(0), 1), None);
        assert!(inflight.remove(7).is_some());
        assert!(inflight.send(record(0), 1).is_some());
    }

    #[test]
    fn no_identifier_is_found_where_all_are_in_use() {
        let mut inflight = InFlight::default();
        for id in 1..=u16::MAX {
            let held = record(0);
            inflight.entries.insert(
                id,
                Entry {
                    order: 0,
                    sent: false,
                    qos: 1,
                    phase: Phase::Published,
                    held,
                },
            );
        }
        assert_eq!(inflight.free_id(), None);
        inflight.last_id = u16::MAX;
        assert_eq!(inflight.free_id(), None);
        inflight.entries.remove(&5);
        assert_eq!(inflight.free_id(), Some(5));
    }

    #[test]
    fn what_was_under_way_is_sent_again_in_its_order_within_the_new_window() {
        let mut inflight = InFlight {
            last_id: u16::MAX - 1,
            ..InFlight::default()
        };
        let first = inflight.send(record(1), 1).unwrap();
        let second = inflight.send(record(2), 1).unwrap();
        assert!(first > second);
        inflight.connection_ended();
        assert_eq!((inflight.resend_room(1), inflight.room(1)), (1, 0));
        let next = inflight.next_resend().unwrap();
        assert_eq!((next.id, offset(Some(next.held))), (first, Some(1)));
        inflight.resent(next.id);
        assert_eq!(inflight.resend_room(1), 0);
        assert_eq!(offset(inflight.remove(first)), Some(1));
        assert_eq!((inflight.resend_room(1), inflight.room(1)), (1, 0));
        assert_eq!(inflight.next_resend().map(|next| next.id), Some(second));
        // Acknowledged before it was sent again: the client had it.
        assert!(inflight.remove(second).is_some());
        assert!(!inflight.owes_resend());
        assert_eq!(inflight.room(1), 1);
    }
}
