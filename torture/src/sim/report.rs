//! What a run has to tell: the broken promise, or what happened on the way.

/// A broken promise.
#[derive(Debug)]
pub struct Violation {
    /// The run.
    pub seed: u64,
    /// Step of the run.
    pub step: u64,
    /// What had to be.
    pub expected: String,
    /// What was.
    pub found: String,
    /// The last steps.
    pub steps: Vec<String>,
    /// The last operations of the disk.
    pub disk: Vec<String>,
}

impl Violation {
    pub(super) fn panicked(seed: u64, found: &str) -> Violation {
        Violation {
            seed,
            step: 0,
            expected: "no panic".to_owned(),
            found: found.to_owned(),
            steps: Vec::new(),
            disk: Vec::new(),
        }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "seed {} step {}: a promise is broken",
            self.seed, self.step
        )?;
        writeln!(f, "  expected: {}", self.expected)?;
        writeln!(f, "  found:    {}", self.found)?;
        writeln!(f, "  last steps:")?;
        for line in &self.steps {
            writeln!(f, "    {line}")?;
        }
        writeln!(f, "  last operations of the disk:")?;
        for line in &self.disk {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

/// What happened in a run: a rig that never gets to the hard parts proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Batches acknowledged.
    pub acknowledged: u64,
    /// Batches refused for a reason of their own.
    pub refused: u64,
    /// Batches refused because there was no room.
    pub no_room: u64,
    /// Batches refused because the log was at its bound.
    pub at_bound: u64,
    /// Times the engine failed and latched.
    pub failed: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Of these, inside a recovery.
    pub cuts_in_recovery: u64,
    /// Processes that died.
    pub deaths: u64,
    /// Logs closed on purpose.
    pub closes: u64,
    /// Recoveries that ended with a log.
    pub opens: u64,
    /// Of these, with what was on its way.
    pub in_flight_kept: u64,
    /// Of these, without some of what was acknowledged unsynced.
    pub unsynced_lost: u64,
    /// Of these, with a channel that went on at its ceiling.
    pub skipped: u64,
    /// Torn tails.
    pub torn: u64,
    /// Rolls cut short.
    pub rolls_cut: u64,
    /// Steps in which old segments were emptied or let go.
    pub tidied: u64,
    /// Checkpoints written on the way.
    pub checkpoints: u64,
    /// Files changed behind everybody's back.
    pub tampered: u64,
    /// Of these, refused as damage.
    pub damage_named: u64,
    /// Operations of the disk.
    pub disk_operations: u64,
    /// A digest of everything that was seen: the same for the same seed.
    pub digest: u64,
}

impl Counts {
    /// Adds another run's.
    pub fn add(&mut self, other: &Counts) {
        let fields = [
            (&mut self.acknowledged, other.acknowledged),
            (&mut self.refused, other.refused),
            (&mut self.no_room, other.no_room),
            (&mut self.at_bound, other.at_bound),
            (&mut self.failed, other.failed),
            (&mut self.cuts, other.cuts),
            (&mut self.cuts_in_recovery, other.cuts_in_recovery),
            (&mut self.deaths, other.deaths),
            (&mut self.closes, other.closes),
            (&mut self.opens, other.opens),
            (&mut self.in_flight_kept, other.in_flight_kept),
            (&mut self.unsynced_lost, other.unsynced_lost),
            (&mut self.skipped, other.skipped),
            (&mut self.torn, other.torn),
            (&mut self.rolls_cut, other.rolls_cut),
            (&mut self.tidied, other.tidied),
            (&mut self.checkpoints, other.checkpoints),
            (&mut self.tampered, other.tampered),
            (&mut self.damage_named, other.damage_named),
            (&mut self.disk_operations, other.disk_operations),
        ];
        for (mine, more) in fields {
            *mine += more;
        }
        self.digest ^= other.digest;
    }
}
