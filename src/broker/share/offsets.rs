//! A set of offsets that mostly lie side by side.

use std::collections::BTreeMap;

/// Offsets, as runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Offsets {
    /// The first of a run, and the one behind its last. No two runs touch.
    runs: BTreeMap<u64, u64>,
}

impl Offsets {
    /// The run that begins at or below `offset`.
    fn run_at(&self, offset: u64) -> Option<(u64, u64)> {
        let (first, end) = self.runs.range(..=offset).next_back()?;
        Some((*first, *end))
    }

    pub fn contains(&self, offset: u64) -> bool {
        self.run_at(offset).is_some_and(|(_, end)| offset < end)
    }

    pub fn insert(&mut self, offset: u64) {
        if self.contains(offset) {
            return;
        }
        let (mut first, mut end) = (offset, offset + 1);
        if let Some((before, its_end)) = self.run_at(offset)
            && its_end == offset
        {
            first = before;
        }
        if let Some(its_end) = self.runs.remove(&end) {
            end = its_end;
        }
        self.runs.insert(first, end);
    }

    /// Returns whether it was there.
    pub fn remove(&mut self, offset: u64) -> bool {
        let Some((first, end)) = self.run_at(offset).filter(|(_, end)| offset < *end) else {
            return false;
        };
        self.runs.remove(&first);
        if first < offset {
            self.runs.insert(first, offset);
        }
        if offset + 1 < end {
            self.runs.insert(offset + 1, end);
        }
        true
    }

    /// Of each run, how many offsets lie between it and the run before, and how many it has.
    pub fn runs(&self) -> Vec<(u64, u64)> {
        let mut behind = 0;
        let run = |(first, end): (&u64, &u64)| {
            let run = (first - behind, end - first);
            behind = *end;
            run
        };
        self.runs.iter().map(run).collect()
    }

    /// The set that [`runs`](Self::runs) wrote down. What no set writes down ends where it goes wrong.
    pub fn of_runs(runs: &[(u64, u64)]) -> Self {
        let mut behind = 0u64;
        let mut found = BTreeMap::new();
        for (gap, count) in runs {
            let first = behind.checked_add(*gap);
            let run = first.and_then(|first| Some((first, first.checked_add(*count)?)));
            let Some((first, end)) = run.filter(|(first, end)| first < end) else {
                break;
            };
            found.insert(first, end);
            behind = end;
        }
        Offsets { runs: found }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_set_it_stands_for(steps in proptest::collection::vec((any::<bool>(), 0u64..24), 0..80)) {
            let (mut offsets, mut model) = (Offsets::default(), BTreeSet::new());
            for (adds, offset) in steps {
                if adds {
                    offsets.insert(offset);
                    model.insert(offset);
                } else {
                    prop_assert_eq!(offsets.remove(offset), model.remove(&offset));
                }
                for offset in 0..25 {
                    prop_assert_eq!(offsets.contains(offset), model.contains(&offset));
                }
                let again = Offsets::of_runs(&offsets.runs());
                prop_assert_eq!(&again, &offsets);
            }
        }
    }

    #[test]
    fn what_no_set_writes_down_does_no_harm() {
        let wrong = [(3, 2), (u64::MAX, 9), (1, 1)];
        assert!(Offsets::of_runs(&wrong).contains(4));
        assert!(!Offsets::of_runs(&[(0, 0)]).contains(0));
    }
}
