//! Queues: durable work, one worker at a time, under a lease.
//!
//! [`QueueState`] decides, purely; [`QueueChannel`] stores what it decides and reaches workers.

mod channel;
mod dead_letter;
mod delivery_id;
mod settings;
mod state;
mod terms;

pub use channel::{Alarm, AnswerOutcome, Clock, JobOffer, QueueChannel, QueueSetup, Worker};
pub use dead_letter::moved_at;
pub use delivery_id::{DeliveryId, Epoch};
pub use settings::{Backoff, QueueSettings, Retry};
pub use state::QueueState;
pub use terms::{
    Answer, Counts, Effect, Ignored, JobStanding, JobView, Offer, Reason, Totals, Verb, WorkerId,
};
