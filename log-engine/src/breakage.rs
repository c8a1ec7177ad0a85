//! Deliberate defects, so that a rig can show that it would notice them.
//!
//! Compiled in with the feature `breakages` alone, which the torture rigs enable for themselves and
//! nothing else does. Without it [`is`] is a constant and every call site disappears.

macro_rules! breakages {
    ($($variant:ident $name:literal $what:literal,)*) => {
        /// One deliberate defect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Breakage {
            $(#[doc = $what] $variant,)*
        }

        impl Breakage {
            /// All of them.
            pub const ALL: &[Breakage] = &[$(Breakage::$variant,)*];

            /// Its name on a command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Breakage::$variant => $name,)* }
            }

            /// What it does, in a few words.
            #[must_use]
            pub fn what(self) -> &'static str {
                match self { $(Breakage::$variant => $what,)* }
            }
        }
    };
}

breakages! {
    SkipFrameSync "skip-frame-sync" "A frame is acknowledged without a sync.",
    AckBeforeSync "ack-before-sync" "Tickets complete before the frame is written and synced.",
    ShowBeforeSync "show-before-sync" "Readers see a frame before it is written and synced.",
    SkipSealSync "skip-seal-sync" "The log goes on in a new segment before the old one's seal is synced.",
    SkipDirSync "skip-dir-sync" "A new segment's name is not made durable.",
    SkipSegmentSync "skip-segment-sync" "A new segment gets its name before its content is synced.",
    SkipWitnessSync "skip-witness-sync" "A roll does not make an unsynced witness durable first.",
    BelieveFailedSync "believe-failed-sync" "A sync that failed counts as one that worked.",
    Unlatched "unlatched" "After a failure the engine takes writes again.",
    UndoUnsynced "undo-unsynced" "A frame without room is taken back in memory only.",
    NextFromSurvivors "next-from-survivors" "A sequence's next offset is derived from what survives.",
    ReuseOffset "reuse-offset" "Resolving the newest job gives its offset to the next one.",
    FloorWithoutDeletion "floor-without-deletion" "A trim raises the floor and deletes nothing.",
    DeletionWithoutFloor "deletion-without-floor" "A trim deletes and leaves the floor where it was.",
    HalfDeadLetter "half-dead-letter" "A job that moves to the dead letters stays in its queue.",
    HalfRelease "half-release" "A hold that is released is dropped and goes nowhere.",
    BoundRefusesRelief "bound-refuses-relief" "A log at its bound refuses what would relieve it.",
    HalfBatch "half-batch" "What a refused batch did before it was refused is kept.",
    ForgetAttempts "forget-attempts" "A restart forgets how often jobs were tried.",
    TornTailAccepts "torn-tail-accepts" "A frame whose checksum does not match is believed.",
    DamageAsTornTail "damage-as-torn-tail" "Damage below acknowledged frames is cut off like a torn tail.",
    UnlinkBeforeFloor "unlink-before-floor" "Old segments are unlinked before the log is said to begin after them.",
    UnlinkLive "unlink-live" "Segments are unlinked though something in them is alive.",
    ReuseBeforeSync "reuse-before-sync" "A dead segment's file is overwritten before its old name is durably gone.",
    IgnoreLsnGap "ignore-lsn-gap" "A frame that is not the next one is believed.",
    StartEmpty "start-empty" "A directory whose segments are gone is taken for a new one.",
    SkipParentSync "skip-parent-sync" "A new log's own directory is not made durable.",
    BelievePageCache "believe-page-cache" "Recovery syncs what it read and does not write it again.",
    SkipCheckpointSync "skip-checkpoint-sync" "A checkpoint gets its name before its content is synced.",
    UnflushedCheckpoint "unflushed-checkpoint" "A checkpoint says that it reaches a frame that is not synced.",
    BelieveCopy "believe-copy" "What a checkpoint copied of what came after its prologue is believed.",
    SkipFooterRuns "skip-footer-runs" "A footer leaves out the last run of a channel.",
    IgnoreCeiling "ignore-ceiling" "An opening goes on at the next offset that survived, not at the ceiling.",
    MixedUnsynced "mixed-unsynced" "A batch that asks for a sync is acknowledged without one where another in its frame does not ask.",
    SkipRecoverySync "skip-recovery-sync" "Recovery builds on what it read without making it durable.",
}

#[cfg(feature = "breakages")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::Breakage;

    const NONE: u8 = u8::MAX;
    static ACTIVE: AtomicU8 = AtomicU8::new(NONE);

    /// Whether this defect is switched on.
    #[must_use]
    pub fn is(breakage: Breakage) -> bool {
        ACTIVE.load(Ordering::Relaxed) == breakage as u8
    }

    /// Switches one defect on, for the whole process, or all off.
    pub fn set(breakage: Option<Breakage>) {
        ACTIVE.store(breakage.map_or(NONE, |b| b as u8), Ordering::Relaxed);
    }
}

#[cfg(feature = "breakages")]
pub use switch::{is, set};

/// Whether this defect is switched on: never, in this build.
#[cfg(not(feature = "breakages"))]
#[must_use]
pub const fn is(_: Breakage) -> bool {
    false
}
