//! A connection as a queue sees it: a worker.

use std::sync::Arc;

use super::Broker;
use super::connection::Connection;
use super::counters::bump;
use super::packet::{Protocol, Publish};
use super::publish::{Answer, Publisher, text};
use super::queue::{AnswerOutcome, JobOffer, Verb, Worker, WorkerId};
use super::reason::{Reason, Refusal};
use super::session::{Form, Link, Session, State};
use super::topic::ChannelIndex;
use crate::storage::{ChannelKind, Message};

/// The subscription that makes a worker. It has one spelling.
fn queue_filter(queue: &str) -> String {
    format!("$saguin/queue/{queue}")
}

/// One connection's place at one queue.
pub(crate) struct SessionWorker {
    session: Arc<Session>,
    /// The connection.
    number: u64,
    queue: ChannelIndex,
    /// The subscription that makes it one.
    filter: String,
}

impl Worker for SessionWorker {
    fn id(&self) -> WorkerId {
        WorkerId(self.number)
    }

    fn reserve(&self) -> bool {
        let mut state = self.session.lock();
        let live = state
            .owned_by(self.number)
            .is_some_and(|link| !link.handle.is_closing());
        if !live || !state.subscribes(&self.filter) {
            return false;
        }
        if state.window() == 0 {
            // Asked again when a PUBACK makes room.
            state.refused_queues.insert(self.queue);
            return false;
        }
        state.reserved += 1;
        true
    }

    fn release(&self) {
        let mut state = self.session.lock();
        if state.owned_by(self.number).is_some() {
            state.reserved = state.reserved.saturating_sub(1);
        }
    }

    fn offer(&self, offer: JobOffer) {
        let mut state = self.session.lock();
        // On a connection that has ended the queue is told by `worker_gone`, which returns it.
        if state.owned_by(self.number).is_none() {
            return;
        }
        state.reserved = state.reserved.saturating_sub(1);
        state.offers.push_back((self.queue, offer));
        state.wake_writer();
    }
}

impl Broker {
    /// Has a queue keep a job.
    pub(crate) fn enqueue(self: &Arc<Self>, index: ChannelIndex, message: Message, answer: Answer) {
        let channel = self.channel(index);
        let Some(queue) = &channel.queue else {
            return answer(Err(Refusal::new(
                Reason::ImplementationSpecific,
                "this queue is not open",
            )));
        };
        let broker = self.clone();
        queue.publish(
            message,
            Box::new(move |stored| {
                answer(broker.outcome(index, stored.map(|_| Default::default())));
            }),
        );
    }

    /// A publish to `$saguin/queue/<queue>/response`. An answer that cannot be read or is no
    /// longer current changes nothing; it is logged and acknowledged all the same (invariant 3).
    pub(crate) fn take_answer(
        self: &Arc<Self>,
        queue: &str,
        publisher: &Publisher<'_>,
        publish: &Publish,
        answer: Answer,
    ) {
        let index = self
            .routes
            .by_name(queue)
            .filter(|index| self.channel(*index).kind == ChannelKind::Queue);
        let Some((index, channel)) = index.and_then(|index| {
            let channel = self.channel(index).queue.clone()?;
            Some((index, channel))
        }) else {
            let refusal = Refusal::new(Reason::TopicNameInvalid, "there is no such queue");
            self.counters
                .refuse(super::counters::Refused::Publish, refusal.reason);
            return answer(Err(refusal));
        };
        let verb = Verb::parse(&publish.payload);
        let correlation = publish.properties.correlation_data.as_deref();
        let (Some(verb), Some(correlation), Some(worker)) = (verb, correlation, publisher.worker)
        else {
            self.ignore_answer(
                text(publisher.client_id),
                queue,
                "it carries no `ack` or `return`, or no Correlation Data",
            );
            return answer(Ok(()));
        };
        let broker = self.clone();
        let client = text(publisher.client_id).to_owned();
        let name = queue.to_owned();
        channel.answer(
            correlation,
            WorkerId(worker),
            verb,
            Box::new(move |outcome| match outcome {
                Ok(AnswerOutcome::Applied) => answer(Ok(())),
                Ok(AnswerOutcome::Ignored(why)) => {
                    broker.ignore_answer(&client, &name, &format!("{why:?}"));
                    answer(Ok(()));
                }
                Err(error) => {
                    answer(broker.outcome(index, Err(error)));
                }
            }),
        );
    }

    fn ignore_answer(&self, client: &str, queue: &str, why: &str) {
        bump(&self.counters.answers_ignored);
        tracing::info!(client, queue, why, "an answer changed nothing");
    }

    /// Whether the session is subscribed to a queue.
    pub(crate) fn works_on(&self, state: &State, queue: ChannelIndex) -> bool {
        state.subscribes(&queue_filter(&self.channel(queue).name))
    }

    /// Makes the session's connection `number` a worker of `queue`. Called without a lock held.
    pub(crate) fn add_worker(&self, session: &Arc<Session>, number: u64, queue: ChannelIndex) {
        let Some(channel) = &self.channel(queue).queue else {
            return;
        };
        {
            let mut state = session.lock();
            // An UNSUBSCRIBE may have overtaken the SUBSCRIBE's way to the store.
            if state.owned_by(number).is_none() || !self.works_on(&state, queue) {
                return;
            }
            state.queues.insert(queue);
        }
        channel.add_worker(Arc::new(SessionWorker {
            session: session.clone(),
            number,
            queue,
            filter: queue_filter(&self.channel(queue).name),
        }));
        // The connection, or its subscription, may have ended between the two; that end then did
        // not know of this worker.
        let (gone, left) = {
            let mut state = session.lock();
            let gone = state.owned_by(number).is_none();
            (gone, !self.works_on(&state, queue))
        };
        if gone {
            channel.worker_gone(WorkerId(number));
        } else if left {
            channel.remove_worker(WorkerId(number));
        }
    }
}

impl Connection {
    /// A resumed session's queue forms take effect again, under this connection's name.
    pub(crate) fn rejoin_queues(&self) {
        let queues: Vec<ChannelIndex> = {
            let state = self.session.lock();
            // Its subscription is kept, and it is no worker as long as it cannot answer.
            let answers = |link: &Link| link.protocol == Protocol::V5;
            if !state.link.as_ref().is_some_and(answers) {
                return;
            }
            let forms = state.subscriptions.values();
            forms
                .filter_map(|subscription| match subscription.form {
                    Form::Queue(queue) => Some(queue),
                    Form::Plain(_) | Form::Shared(_) | Form::SeekReplies => None,
                })
                .collect()
        };
        for queue in queues {
            self.broker.add_worker(&self.session, self.number, queue);
        }
    }

    /// Offers that were taken and then not sent go back with their attempt unspent.
    pub(crate) fn return_unsent(&self, unsent: Vec<(ChannelIndex, JobOffer)>) {
        for (queue, offer) in unsent {
            if let Some(channel) = &self.broker.channel(queue).queue {
                channel.unsent(&offer.delivery);
            }
        }
    }
}
