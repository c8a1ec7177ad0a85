//! PUBACKs, PUBRECs and PUBCOMPs owed to a publisher, in the order of what they answer
//! (MQTT-4.6.0-2, MQTT-4.6.0-3).

use std::collections::VecDeque;

use crate::broker::reason::Refusal;
use crate::broker::settings::RECEIVE_MAXIMUM;

/// What a publish came to.
pub(crate) type Outcome = Result<(), Refusal>;

/// What an answer is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AckKind {
    /// To a PUBLISH at QoS 1.
    Puback,
    /// To a PUBLISH at QoS 2.
    Pubrec,
    /// To a PUBREL.
    Pubcomp,
}

/// Answers waiting for their store and then for the writer. At most [`RECEIVE_MAXIMUM`] of them:
/// past that the socket is not read.
#[derive(Debug, Default)]
pub(crate) struct AckQueue {
    /// The ticket of the slot in front.
    first: u64,
    slots: VecDeque<Slot>,
}

#[derive(Debug)]
struct Slot {
    kind: AckKind,
    packet_id: u16,
    outcome: Option<Outcome>,
}

impl AckQueue {
    /// Whether one more publish may be taken.
    pub fn has_room(&self) -> bool {
        self.slots.len() < usize::from(RECEIVE_MAXIMUM)
    }

    /// Keeps the place of one answer; the ticket names it. The caller has seen
    /// [`has_room`](Self::has_room).
    pub fn reserve(&mut self, kind: AckKind, packet_id: u16) -> u64 {
        self.slots.push_back(Slot {
            kind,
            packet_id,
            outcome: None,
        });
        self.first + self.slots.len() as u64 - 1
    }

    /// Fills in an answer; returns whether it is the next to go.
    pub fn settle(&mut self, ticket: u64, outcome: Outcome) -> bool {
        let Some(index) = ticket.checked_sub(self.first) else {
            return false;
        };
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot.outcome = Some(outcome);
        }
        index == 0
    }

    /// Takes the answer in front, if it is known.
    pub fn pop(&mut self) -> Option<(AckKind, u16, Outcome)> {
        self.slots.front()?.outcome.as_ref()?;
        let slot = self.slots.pop_front()?;
        self.first += 1;
        Some((slot.kind, slot.packet_id, slot.outcome?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_leave_in_the_order_of_their_publishes() {
        let mut acks = AckQueue::default();
        let first = acks.reserve(AckKind::Puback, 7);
        let second = acks.reserve(AckKind::Pubrec, 3);
        assert!(!acks.settle(second, Ok(())));
        assert_eq!(acks.pop(), None);
        assert!(acks.settle(first, Ok(())));
        assert_eq!(acks.pop(), Some((AckKind::Puback, 7, Ok(()))));
        assert_eq!(acks.pop(), Some((AckKind::Pubrec, 3, Ok(()))));
        assert_eq!(acks.pop(), None);
        let third = acks.reserve(AckKind::Pubcomp, 9);
        assert!(acks.settle(third, Ok(())));
        assert_eq!(acks.pop(), Some((AckKind::Pubcomp, 9, Ok(()))));
    }

    #[test]
    fn there_is_room_for_receive_maximum_answers() {
        let mut acks = AckQueue::default();
        for id in 0..RECEIVE_MAXIMUM {
            assert!(acks.has_room());
            acks.reserve(AckKind::Puback, id);
        }
        assert!(!acks.has_room());
    }
}
