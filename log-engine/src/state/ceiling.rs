//! The offset ceiling: a number that a consumer may have seen is never issued again (invariant 9),
//! though a power cut took the frame that issued it.
//!
//! A frame that is shown before it is synced may only use offsets below its channel's ceiling, which
//! a synced frame stated before. An opening that finds a ceiling above the next offset cannot know
//! how much of what lies between was handed out and lost: it goes on at the ceiling.

use super::{State, StateError};
use crate::format::Op;

/// Offsets that a ceiling is above the next one, at least, whenever one is handed out below it.
pub(crate) const BLOCK: u64 = 4096;

/// How far a ceiling can be above the next offset.
pub const CEILING_REACH: u64 = 2 * BLOCK;

/// The ceiling that has to be stated, in a synced frame, before `offset` may be handed out in one
/// that is not: `None` where the present one is far enough away.
pub(crate) fn raised(ceiling: u64, offset: u64) -> Option<u64> {
    (ceiling < offset.saturating_add(BLOCK)).then(|| offset.saturating_add(CEILING_REACH))
}

impl State {
    pub(super) fn set_ceiling(&mut self, id: u32, ceiling: u64) -> Result<(), StateError> {
        let numbers = &mut self.channel_mut(id)?.numbers;
        if ceiling != 0 && ceiling <= numbers.next {
            return Err(StateError::ImpossibleCeiling {
                channel: id,
                next: numbers.next,
                found: ceiling,
            });
        }
        numbers.ceiling = ceiling;
        Ok(())
    }

    pub(super) fn skip(&mut self, id: u32, next: u64) -> Result<(), StateError> {
        let numbers = &mut self.channel_mut(id)?.numbers;
        if next < numbers.next {
            return Err(StateError::ImpossibleCeiling {
                channel: id,
                next: numbers.next,
                found: next,
            });
        }
        // Counts and bytes stay: they are kept, not computed from offsets.
        (numbers.next, numbers.ceiling) = (next, 0);
        Ok(())
    }

    /// What an opening has to state before anything else: no offset below a ceiling is issued again.
    pub(crate) fn skips(&self) -> impl Iterator<Item = Op<'static>> + '_ {
        self.channels()
            .filter(|(_, channel)| channel.numbers.ceiling > channel.numbers.next)
            .map(|(channel, known)| Op::Skip {
                channel,
                next: known.numbers.ceiling,
            })
    }

    /// What a stop has to state once everything is synced: nothing that was handed out can be lost
    /// any more.
    pub(crate) fn lowered_ceilings(&self) -> impl Iterator<Item = Op<'static>> + '_ {
        self.channels()
            .filter(|(_, channel)| channel.numbers.ceiling != 0)
            .map(|(channel, _)| Op::Ceiling {
                channel,
                ceiling: 0,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Location;
    use super::*;
    use crate::format::{Kind, RecordRef};

    const AT: Location = Location {
        segment: 1,
        frame: 4096,
    };

    fn state() -> State {
        let mut state = State::default();
        let define = Op::Define {
            channel: 0,
            kind: Kind::Sequence,
            name: b"log",
        };
        state.apply(&define, AT).expect("define");
        state
    }

    fn append(state: &mut State, offset: u64) -> Result<(), StateError> {
        let record = RecordRef {
            timestamp: None,
            size: 3,
            body: b"abc",
        };
        let channel = 0;
        let op = Op::Append {
            channel,
            offset,
            record,
        };
        state.apply(&op, AT)
    }

    #[test]
    fn a_skip_goes_on_at_the_ceiling_and_counts_stay_what_they_were() {
        let mut state = state();
        let (channel, ceiling) = (0, 8193);
        state
            .apply(&Op::Ceiling { channel, ceiling }, AT)
            .expect("raised");
        append(&mut state, 1).expect("append");
        let skips: Vec<_> = state.skips().collect();
        assert_eq!(
            skips,
            [Op::Skip {
                channel,
                next: 8193
            }]
        );
        state.apply(&skips[0], AT).expect("skip");
        let numbers = state.channel(0).expect("channel").numbers;
        assert_eq!((numbers.next, numbers.ceiling), (8193, 0));
        assert_eq!((numbers.floor, numbers.count, numbers.bytes), (1, 1, 3));
        assert_eq!(state.skips().count(), 0, "once");
        assert!(append(&mut state, 2).is_err(), "never below it again");
        append(&mut state, 8193).expect("goes on");
    }

    #[test]
    fn a_ceiling_or_skip_below_the_next_offset_is_refused_and_changes_nothing() {
        let mut state = state();
        for offset in 1..=5 {
            append(&mut state, offset).expect("append");
        }
        let before = state.channel(0).expect("channel").numbers;
        for op in [
            Op::Ceiling {
                channel: 0,
                ceiling: 6,
            },
            Op::Skip {
                channel: 0,
                next: 5,
            },
        ] {
            let refused = state.apply(&op, AT);
            assert!(
                matches!(refused, Err(StateError::ImpossibleCeiling { .. })),
                "{op:?}"
            );
        }
        assert_eq!(state.channel(0).expect("channel").numbers, before);
    }

    #[test]
    fn a_ceiling_is_raised_once_in_a_block_and_is_always_a_block_away() {
        let (mut ceiling, mut raises) = (0, 0);
        for offset in 1..=10 * BLOCK {
            if let Some(higher) = raised(ceiling, offset) {
                (ceiling, raises) = (higher, raises + 1);
            }
            assert!(ceiling >= offset + BLOCK);
        }
        assert!(raises <= 10, "{raises}");
    }
}
