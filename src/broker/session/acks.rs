//! PUBACKs owed to a publisher, in the order of its PUBLISHes (MQTT-4.6.0-2).

use std::collections::VecDeque;

use crate::broker::reason::Refusal;
use crate::broker::settings::RECEIVE_MAXIMUM;

/// What a publish came to.
pub(crate) type Outcome = Result<(), Refusal>;

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
    pub fn reserve(&mut self, packet_id: u16) -> u64 {
        self.slots.push_back(Slot {
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
    pub fn pop(&mut self) -> Option<(u16, Outcome)> {
        self.slots.front()?.outcome.as_ref()?;
        let slot = self.slots.pop_front()?;
        self.first += 1;
        Some((slot.packet_id, slot.outcome?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_leave_in_the_order_of_their_publishes() {
        let mut acks = AckQueue::default();
        let first = acks.reserve(7);
        let second = acks.reserve(3);
        assert!(!acks.settle(second, Ok(())));
        assert_eq!(acks.pop(), None);
        assert!(acks.settle(first, Ok(())));
        assert_eq!(acks.pop(), Some((7, Ok(()))));
        assert_eq!(acks.pop(), Some((3, Ok(()))));
        assert_eq!(acks.pop(), None);
        let third = acks.reserve(9);
        assert!(acks.settle(third, Ok(())));
        assert_eq!(acks.pop(), Some((9, Ok(()))));
    }

    #[test]
    fn there_is_room_for_receive_maximum_answers() {
        let mut acks = AckQueue::default();
        for id in 0..RECEIVE_MAXIMUM {
            assert!(acks.has_room());
            acks.reserve(id);
        }
        assert!(!acks.has_room());
    }
}
