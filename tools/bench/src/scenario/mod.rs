//! The scenarios: what each does, and what it takes.

mod backlog;
mod company;
mod crew;
mod fan;
mod idle;
mod latest;
mod publish;
mod queue;
mod recover;
mod replay;
mod slow;
mod space;
mod storm;
mod tally;

use clap::Subcommand;

use crate::cli::Plan;
use crate::failure::Failure;
use crate::report::Figure;
use crate::target::Target;

/// What is measured.
#[derive(Debug, Subcommand)]
pub enum Scenario {
    /// Publishers with a window each: messages a second, and how long an acknowledgement takes
    Pub(publish::Args),
    /// Jobs a second through a queue, and from a publish to a worker that waits for it
    Queue(queue::Args),
    /// A durable consumer that reads a filled channel, or with --consumers what many cost a publisher
    Replay(replay::Args),
    /// A subscribe pass over the current values of many topics
    Latest(latest::Args),
    /// Deliveries a second from one publisher to many subscribers, or in pairs, from memory
    Fan(fan::Args),
    /// What an idle connection takes of the broker's memory
    Idle(idle::Args),
    /// How long it takes until many clients that connect at once are all in
    Storm(storm::Args),
    /// What is stored for sessions that are away, and read when they come back
    Backlog(backlog::Args),
    /// How long a killed broker takes until it listens again
    Recover(recover::Args),
    /// What a subscriber that stops reading costs a publisher
    Slow(slow::Args),
    /// What a record takes on the disk
    Space(space::Args),
}

/// What a scenario has to say of itself.
trait Measured {
    /// In words, for the head of the table.
    fn settings(&self) -> String;
    /// Bytes of the record it stores, to be written and synced beside it; nothing where it stores none.
    fn stored_bytes(&self) -> Option<usize>;
    /// Whether its options make sense together.
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }
    /// Changes how a broker is started for it.
    fn prepare(&self, _plan: &mut Plan) {}
    /// One run.
    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure>;
}

impl Scenario {
    fn parts(&self) -> (&'static str, &dyn Measured) {
        match self {
            Scenario::Pub(args) => ("pub", args),
            Scenario::Queue(args) => ("queue", args),
            Scenario::Replay(args) => ("replay", args),
            Scenario::Latest(args) => ("latest", args),
            Scenario::Fan(args) => ("fan", args),
            Scenario::Idle(args) => ("idle", args),
            Scenario::Storm(args) => ("storm", args),
            Scenario::Backlog(args) => ("backlog", args),
            Scenario::Recover(args) => ("recover", args),
            Scenario::Slow(args) => ("slow", args),
            Scenario::Space(args) => ("space", args),
        }
    }

    /// As on the command line.
    pub(crate) fn name(&self) -> &'static str {
        self.parts().0
    }

    /// What was measured, in words.
    pub(crate) fn settings(&self) -> String {
        self.parts().1.settings()
    }

    /// Bytes of the record it stores.
    pub(crate) fn stored_bytes(&self) -> Option<usize> {
        self.parts().1.stored_bytes()
    }

    /// Whether its options make sense together.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.parts().1.check()
    }

    /// Changes how brokers are started for it.
    pub(crate) fn prepare(&self, plan: &mut Plan) {
        self.parts().1.prepare(plan);
    }

    /// One run.
    pub(crate) fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        self.parts().1.measure(target)
    }
}

/// The topic prefixes of the channels a started broker has.
mod prefix {
    /// Of the append channel.
    pub const LOG: &str = "bench/log";
    /// Of the queue.
    pub const WORK: &str = "bench/work";
    /// Of the latest channel.
    pub const NOW: &str = "bench/now";
}
