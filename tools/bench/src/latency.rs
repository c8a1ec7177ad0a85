//! Latencies, in memory that does not grow with their number.

use std::time::Duration;

/// Steps between two powers of two: a figure read back is at most one part in 128 above the truth.
const STEPS: u64 = 128;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Below this every nanosecond has a place of its own; above, each power of two has `STEPS`.
const PLACES: usize = (STEPS as usize) * (64 - STEP_BITS as usize + 1);

/// How often each latency occurred.
#[derive(Clone, Debug)]
pub struct Latencies {
    counts: Vec<u64>,
    count: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies {
            counts: vec![0; PLACES],
            count: 0,
        }
    }
}

impl Latencies {
    /// Counts one.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(place(nanos)) {
            *count += 1;
            self.count += 1;
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latency that `share` (0 to 1) of all are no longer than; nothing where there are none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        if self.count == 0 {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank between 1 and the count"
        )]
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (place, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Some(Duration::from_nanos(top_of(place)));
            }
        }
        None
    }

    /// A quantile in microseconds, NaN where there is nothing: for a table.
    pub fn micros(&self, share: f64) -> f64 {
        self.quantile(share)
            .map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6)
    }
}

/// Where a latency is counted.
fn place(nanos: u64) -> usize {
    let place = match nanos.checked_ilog2() {
        Some(power) if power >= STEP_BITS => {
            let shift = power - STEP_BITS;
            u64::from(shift) * STEPS + (nanos >> shift)
        }
        _ => nanos,
    };
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// The largest latency counted there.
fn top_of(place: usize) -> u64 {
    let place = place as u64;
    if place < 2 * STEPS {
        return place;
    }
    let shift = place / STEPS - 1;
    let step = place % STEPS + STEPS;
    let next = u128::from(step + 1) << shift;
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

/// The median; of an even number the mean of the two in the middle. NaN where there is nothing.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (None, _) => f64::NAN,
        (Some(at), 1) => *at,
        (Some(at), _) => {
            let below = sorted.get(middle.wrapping_sub(1)).unwrap_or(at);
            f64::midpoint(*below, *at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_read_back_no_shorter_and_at_most_one_part_in_128_longer() {
        let mut nanos = 1_u64;
        while nanos < u64::MAX / 3 {
            for at in [nanos - 1, nanos, nanos + nanos / 3] {
                let mut one = Latencies::default();
                one.record(Duration::from_nanos(at));
                let read = one.quantile(0.5).unwrap().as_nanos();
                assert!(read >= u128::from(at), "{read} of {at}");
                assert!(read <= u128::from(at + at / 128), "{read} of {at}");
            }
            nanos = nanos * 3 / 2 + 1;
        }
        let mut one = Latencies::default();
        one.record(Duration::MAX);
        assert_eq!(one.quantile(0.5), Some(Duration::from_nanos(u64::MAX)));
    }

    #[test]
    fn a_quantile_is_the_latency_of_that_rank() {
        let mut all = Latencies::default();
        assert_eq!(all.quantile(0.5), None);
        assert!(all.micros(0.5).is_nan());
        for nanos in 1..=100 {
            all.record(Duration::from_nanos(nanos));
        }
        assert_eq!(all.count(), 100);
        for (share, nanos) in [(0.0, 1), (0.5, 50), (0.501, 51), (0.99, 99), (1.0, 100)] {
            let expected = Some(Duration::from_nanos(nanos));
            assert_eq!(all.quantile(share), expected, "{share}");
        }
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert!(median(&[]).is_nan());
        assert!((median(&[3.0]) - 3.0).abs() < 1e-9);
        assert!((median(&[9.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[9.0, 1.0, 2.0, 4.0]) - 3.0).abs() < 1e-9);
    }
}
