//! How a run's log is closed, ends, and is opened again, through as many accidents as come.

use std::path::Path;
use std::sync::Arc;

use saguin_log_engine::Engine;
use saguin_log_engine::storage::FileSystem;
use saguin_recovery::{Ending, RecoverError, Rejected, Report, inspect, recover};

use super::kept::Accident;
use super::model::difference;
use super::run::{Checked, DIR, Run, broken};
use super::tamper;
use super::view::view;
use crate::disk::{End, Fault};

impl Run {
    /// Closes the log on purpose; then the process goes on, ends, or the power goes.
    pub(super) fn close(&mut self) -> Checked {
        self.note("close");
        self.counts.closes += 1;
        let before = self.disk.failures();
        // An engine that failed cannot say that it was closed.
        let latched = std::mem::take(&mut self.latched);
        self.engine = None;
        if let Some(end) = self.disk.ended() {
            return self.end(end);
        }
        if !latched && self.disk.failures() == before {
            self.kept.closed();
        } else {
            self.kept.may_lose();
        }
        match self.rng.below(3) {
            0 => self.end(End::Cut),
            1 => self.end(End::Death),
            _ => Ok(()),
        }
    }

    /// The process or the power goes, now.
    pub(super) fn end(&mut self, end: End) -> Checked {
        self.note(&format!("{end:?}"));
        self.disk.stop_process();
        self.engine = None;
        // A failed sync may have taken from the page cache what it did not bring to the disk.
        if std::mem::take(&mut self.latched) {
            self.kept.may_lose();
        }
        match end {
            End::Cut => {
                self.kept.may_lose();
                self.counts.cuts += 1;
                self.disk.power_cut();
                if self.rng.one_in(4) {
                    self.disk.set_free(None);
                    return tamper::try_one(self);
                }
            }
            End::Death => {
                self.counts.deaths += 1;
                self.disk.next_process();
            }
        }
        Ok(())
    }

    /// One attempt to recover, with no accident of its own.
    pub(super) fn recover(&self) -> Result<(Engine, Report), RecoverError> {
        let fs: Arc<dyn FileSystem> = Arc::new(self.disk.process());
        recover(&fs, Path::new(DIR), &self.options)
    }

    /// Recovers, through as many accidents as come, and judges what is there.
    pub(super) fn open(&mut self) -> Checked {
        for attempt in 0..8 {
            // Tampering that did no harm leaves it open.
            if self.engine.is_some() {
                return Ok(());
            }
            if attempt == 7 {
                self.calm();
            } else if self.rng.one_in(4) {
                self.arm(16);
            } else if self.rng.one_in(8) {
                let fault = [Fault::Io, Fault::NoSpace][self.rng.index(2)];
                let after = self.rng.below(9);
                self.note(&format!("{fault:?} in {after} operations"));
                self.disk.set_fault(Some((after, fault)));
            }
            self.inspect()?;
            self.note("recover");
            let before = self.disk.failures();
            match self.recover() {
                Ok((engine, report)) => {
                    // Removing leftovers is the one thing that may fail without a word.
                    if let Some(end) = self.disk.ended() {
                        drop(engine);
                        self.end(end)?;
                        continue;
                    }
                    let untouched = |r: &&Rejected| !self.tampered.contains(&r.path);
                    if let Some(rejected) = report.rejected.iter().find(untouched) {
                        let found = format!("{}: {}", rejected.path.display(), rejected.why);
                        return broken("what has a checkpoint's name is a whole one", found);
                    }
                    return self.opened(engine, &report, Accident::Fair);
                }
                Err(RecoverError::Damage(damage)) => {
                    return broken("a log that opens after any accident", damage.to_string());
                }
                Err(error) => {
                    let reason = self.disk.failures() != before;
                    match self.disk.ended() {
                        Some(End::Cut) => {
                            self.counts.cuts_in_recovery += 1;
                            self.end(End::Cut)?;
                        }
                        Some(End::Death) => self.end(End::Death)?,
                        None if reason => {
                            self.kept.may_lose();
                            self.note(&format!("not opened: {error}"));
                            self.disk.set_free(None);
                            self.end(End::Death)?;
                        }
                        None => {
                            return broken("a log that opens", error.to_string());
                        }
                    }
                }
            }
        }
        broken("a log that opens when nothing fails any more", "none")
    }

    /// Inspecting writes nothing and finds no damage where only an accident was.
    pub(super) fn inspect(&mut self) -> Checked {
        if !self.rng.one_in(3) {
            return Ok(());
        }
        let before = self.disk.operations();
        let inspected = inspect(&self.disk.process(), Path::new(DIR), &mut ());
        if self.disk.operations() != before {
            return broken("inspecting changes nothing", "it changed something");
        }
        match inspected {
            Err(RecoverError::Damage(damage)) => broken(
                "no damage after an accident",
                format!("inspected: {damage}"),
            ),
            Ok((report, _)) => match report.contradiction {
                Some(found) => broken("a checkpoint says what the frames say", found),
                None => Ok(()),
            },
            Err(_) => Ok(()),
        }
    }

    pub(super) fn opened(
        &mut self,
        engine: Engine,
        report: &Report,
        accident: Accident,
    ) -> Checked {
        let seen = view(&engine);
        let seen = seen.or_else(|why| broken("everything recovered can be read", why))?;
        let Some(found) = self.kept.follows(&seen, accident) else {
            let difference = difference(&self.kept.model, &seen).unwrap_or_default();
            let (at_risk, on_their_way) = (self.kept.at_risk(), self.kept.in_flight.len());
            return broken(
                format!(
                    "what was acknowledged, without the last few of {at_risk} unsynced batches or with the first few of {on_their_way} batches on their way"
                ),
                format!("{difference}; the log ends {:?}", report.ending),
            );
        };
        if let Some((id, shown, next)) = self.kept.given_twice(&seen) {
            return broken(
                format!("channel {id}: a next offset of {shown} or more, as was shown"),
                format!("{next}; the log ends {:?}", report.ending),
            );
        }
        self.counts.opens += 1;
        self.counts.in_flight_kept += u64::from(found.in_flight > 0);
        self.counts.unsynced_lost += u64::from(found.lost > 0);
        self.counts.skipped += u64::from(!found.skips.is_empty());
        self.counts.torn += u64::from(matches!(report.ending, Ending::Torn(_)));
        self.counts.rolls_cut += u64::from(report.roll_cut_short);
        self.note(&format!(
            "opened, {} kept of what was on its way, {} unsynced lost, skips {:?}",
            found.in_flight, found.lost, found.skips
        ));
        let lsn = self.kept.lsn();
        if report.last_lsn < lsn {
            return broken(
                format!("a log that ends at or after frame {lsn}"),
                format!("it ends with frame {}", report.last_lsn),
            );
        }
        self.kept.opened(seen, found, report.last_lsn);
        self.engine = Some(Arc::new(engine));
        Ok(())
    }
}
