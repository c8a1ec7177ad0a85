//! The broadcast messages of one publisher reach subscribers in the order they were published, though
//! one waits for a store and the next waits for nothing (MQTT-4.6.0-5, MQTT-4.6.0-6).
//!
//! A message that waits takes a turn, and so does whatever comes behind it; what a turn has to hand out
//! is handed out once all turns before it are over. Most messages wait for nothing and find no turn
//! taken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use super::settings::RECEIVE_MAXIMUM;
use super::{Wake, lock};

/// Turns of one connection. Past this many its socket is not read (invariant 13).
const MAX_TURNS: usize = RECEIVE_MAXIMUM as usize;

/// Hands a message out.
pub(crate) type HandOut = Box<dyn FnOnce() + Send>;

enum Slot {
    Waiting,
    /// Known; `None` where there is nothing to hand out.
    Over(Option<HandOut>),
}

/// The turns of one connection's messages.
pub(crate) struct Turns {
    slots: Mutex<Slots>,
    /// How many there are, for those who ask without the lock. Falls only behind the handing out.
    len: AtomicUsize,
    wake_reader: Wake,
}

#[derive(Default)]
struct Slots {
    /// The number of the turn in front.
    first: u64,
    waiting: VecDeque<Slot>,
}

/// One message's turn. Dropped, it has nothing to hand out.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    number: u64,
    is_over: bool,
}

impl Turns {
    /// None taken. The wake-up is called when there is room for more.
    pub fn new(wake_reader: Wake) -> Arc<Self> {
        Arc::new(Turns {
            slots: Mutex::default(),
            len: AtomicUsize::new(0),
            wake_reader,
        })
    }

    /// Whether no message waits: what comes now may be handed out at once.
    pub fn is_empty(&self) -> bool {
        self.len.load(SeqCst) == 0
    }

    /// Whether one more may be taken.
    pub fn has_room(&self) -> bool {
        self.len.load(SeqCst) < MAX_TURNS
    }

    /// The next turn.
    pub fn take(self: &Arc<Self>) -> Turn {
        let mut slots = lock(&self.slots);
        let number = slots.first + slots.waiting.len() as u64;
        slots.waiting.push_back(Slot::Waiting);
        self.len.store(slots.waiting.len(), SeqCst);
        Turn {
            turns: self.clone(),
            number,
            is_over: false,
        }
    }

    fn over(&self, number: u64, hand_out: Option<HandOut>) {
        let mut slots = lock(&self.slots);
        let had_room = self.has_room();
        let at = usize::try_from(number - slots.first).unwrap_or(usize::MAX);
        if let Some(slot) = slots.waiting.get_mut(at) {
            *slot = Slot::Over(hand_out);
        }
        while let Some(Slot::Over(_)) = slots.waiting.front() {
            let Some(Slot::Over(hand_out)) = slots.waiting.pop_front() else {
                break;
            };
            slots.first += 1;
            // Under the lock, so that the next does not overtake it.
            if let Some(hand_out) = hand_out {
                hand_out();
            }
            self.len.store(slots.waiting.len(), SeqCst);
        }
        if slots.waiting.is_empty() {
            slots.waiting = VecDeque::new();
        }
        drop(slots);
        if !had_room && self.has_room() {
            (self.wake_reader)();
        }
    }
}

impl Turn {
    /// What it has to hand out, now or once those before it are over.
    pub fn come(mut self, hand_out: HandOut) {
        self.is_over = true;
        self.turns.over(self.number, Some(hand_out));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over {
            self.turns.over(self.number, None);
        }
    }
}

/// Hands out in a turn, or at once where none was taken.
pub(crate) fn hand_out_in(turn: Option<Turn>, hand_out: impl FnOnce() + Send + 'static) {
    match turn {
        Some(turn) => turn.come(Box::new(hand_out)),
        None => hand_out(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_first_waits_for_what_came_first() {
        let woken = Arc::new(AtomicUsize::new(0));
        let wakes = woken.clone();
        let turns = Turns::new(Arc::new(move || {
            wakes.fetch_add(1, SeqCst);
        }));
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = |number: u32| {
            let told = told.clone();
            move || lock(&told).push(number)
        };
        let (first, second, third) = (turns.take(), turns.take(), turns.take());
        third.come(Box::new(tell(3)));
        assert!(lock(&told).is_empty() && !turns.is_empty());
        first.come(Box::new(tell(1)));
        assert_eq!(*lock(&told), [1]);
        // It was refused.
        drop(second);
        assert_eq!(*lock(&told), [1, 3]);
        assert!(turns.is_empty());
        let many: Vec<Turn> = (0..MAX_TURNS).map(|_| turns.take()).collect();
        assert!(!turns.has_room());
        assert_eq!(woken.load(SeqCst), 0);
        drop(many);
        assert_eq!(woken.load(SeqCst), 1);
    }
}
