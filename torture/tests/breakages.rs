//! Every deliberate defect is found: `cargo test -p saguin-torture --features breakages`.
#![cfg(feature = "breakages")]

use saguin_log_engine::breakage::{Breakage, set};
use saguin_torture::sim::sweep;

/// One test, because a defect is switched on for the whole process.
#[test]
fn every_deliberate_defect_is_found_within_two_thousand_seeds() {
    for &breakage in Breakage::ALL {
        set(Some(breakage));
        let swept = sweep(0, 2000, 2);
        set(None);
        assert!(swept.violation.is_some(), "{} is missed", breakage.name());
    }
}
