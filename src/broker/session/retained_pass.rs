//! Retained values a SUBSCRIBE asked for, on their way to one client.
//!
//! Each filter that asked has a *pass*: over every retained value below the store's next offset at the
//! moment of the SUBSCRIBE; what is set from there on comes live. Passes run one after the other and
//! read a step ahead at a time. While what was read waits, no live broadcast is sent, so that no older
//! value of a topic follows a newer one.
//!
//! A filter has one pass at most, so a client has no more of them than subscriptions (invariant 13).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::broker::session::{Form, Subscription};
use crate::storage::{ReadLimit, Record};

/// Most filters without a wildcard that are looked up in one read.
const LOOK_UPS: usize = 64;

/// One step of a filter with a wildcard.
const STEP: ReadLimit = ReadLimit {
    records: 256,
    bytes: 64 * 1024,
};

/// One filter's pass.
#[derive(Debug)]
struct Pass {
    filter: Arc<str>,
    subscription: Arc<Subscription>,
    /// The lowest offset not yet sent or stepped past.
    next: u64,
    /// What was set from here on comes live.
    end: u64,
}

/// What was read and waits to be sent.
#[derive(Debug)]
struct Found {
    record: Option<Record>,
    /// Where the pass goes on behind it; `None`: it is over.
    next: Option<u64>,
}

/// What the store is asked.
#[derive(Clone, Debug)]
pub(crate) struct RetainedRead {
    /// Whose answer it is: an answer to an earlier one is dropped.
    number: u64,
    pub what: Asked,
}

/// A question.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// The current value of each topic, if it is below its offset.
    Topics(Vec<(Arc<str>, u64)>),
    /// What lies from an offset on.
    From(u64, ReadLimit),
}

/// The answer to either.
#[derive(Debug)]
pub(crate) enum RetainedAnswer {
    /// One for each topic asked for.
    Topics(Vec<Option<Record>>),
    /// In offset order.
    From(Vec<Record>),
}

/// The passes of one session.
#[derive(Debug, Default)]
pub(crate) struct RetainedPasses {
    waiting: VecDeque<Pass>,
    found: VecDeque<Found>,
    reads: u64,
    reading: bool,
    /// A read failed. It is made again for the next connection.
    failed: bool,
}

impl RetainedPasses {
    /// Begins the pass of a filter, over what is retained below `end`. One that waits already
    /// starts over.
    pub fn begin(
        &mut self,
        filter: Arc<str>,
        subscription: Arc<Subscription>,
        replaces: bool,
        end: u64,
    ) {
        if replaces {
            self.end(&filter);
        }
        self.waiting.push_back(Pass {
            filter,
            subscription,
            next: 0,
            end,
        });
    }

    /// The subscription has ended or is replaced: nothing more is sent for it.
    pub fn end(&mut self, filter: &str) {
        if self.waiting.iter().any(|pass| *pass.filter == *filter) {
            self.give_up_reads();
            self.waiting.retain(|pass| *pass.filter != *filter);
        }
    }

    /// Whether something that was read waits to be sent.
    pub fn holds_back(&self) -> bool {
        !self.found.is_empty()
    }

    /// The next value and the filter it is for.
    pub fn front(&mut self) -> Option<(&Record, &Arc<str>)> {
        while self.found.front()?.record.is_none() {
            self.advance();
        }
        let record = self.found.front()?.record.as_ref()?;
        Some((record, &self.waiting.front()?.filter))
    }

    /// The value in front was sent, or is not for this client.
    pub fn advance(&mut self) {
        let Some(found) = self.found.pop_front() else {
            return;
        };
        match found.next {
            Some(next) => {
                if let Some(pass) = self.waiting.front_mut() {
                    pass.next = next;
                }
            }
            None => {
                self.waiting.pop_front();
            }
        }
        if self.waiting.is_empty() {
            *self = RetainedPasses {
                reads: self.reads,
                ..RetainedPasses::default()
            };
        }
    }

    /// What to ask the store for now.
    pub fn next_read(&mut self) -> Option<RetainedRead> {
        if self.reading || self.failed || !self.found.is_empty() {
            return None;
        }
        let first = self.waiting.front()?;
        let what = if exact(&first.subscription).is_some() {
            let topics = self.waiting.iter().take(LOOK_UPS);
            let topics = topics.map_while(|pass| {
                exact(&pass.subscription)?;
                Some((pass.filter.clone(), pass.end))
            });
            Asked::Topics(topics.collect())
        } else {
            Asked::From(first.next, STEP)
        };
        self.reading = true;
        self.reads += 1;
        Some(RetainedRead {
            number: self.reads,
            what,
        })
    }

    /// The answer; the passes stay where they are until what it holds is sent.
    pub fn filled(&mut self, number: u64, answer: RetainedAnswer) {
        if !self.reading || number != self.reads {
            return;
        }
        self.reading = false;
        match answer {
            RetainedAnswer::Topics(records) => {
                let found = |record: Option<Record>| Found { record, next: None };
                self.found.extend(records.into_iter().map(found));
            }
            RetainedAnswer::From(records) => {
                let Some(pass) = self.waiting.front() else {
                    return;
                };
                let end = pass.end;
                let is_last = records.last().is_none_or(|last| last.offset + 1 >= end);
                for record in records.into_iter().filter(|record| record.offset < end) {
                    let next = Some(record.offset + 1);
                    let record = wanted(&pass.subscription, &record).then(|| Record {
                        offset: record.offset,
                        message: record.message.detached(),
                    });
                    self.found.push_back(Found { record, next });
                }
                if is_last {
                    self.found.push_back(Found {
                        record: None,
                        next: None,
                    });
                }
            }
        }
    }

    /// The store could not be read.
    pub fn failed(&mut self, number: u64) {
        if self.reading && number == self.reads {
            (self.reading, self.failed) = (false, true);
        }
    }

    /// The connection ended: what was read ahead is read again by the next.
    pub fn away(&mut self) {
        self.give_up_reads();
        self.failed = false;
    }

    fn give_up_reads(&mut self) {
        self.found.clear();
        self.reading = false;
        self.reads += 1;
    }
}

impl RetainedRead {
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// The one topic a subscription is to, if it is to one.
fn exact(subscription: &Subscription) -> Option<&str> {
    match &subscription.form {
        Form::Plain(filter) if !filter.has_wildcard() => Some(filter.as_str()),
        _ => None,
    }
}

fn wanted(subscription: &Subscription, record: &Record) -> bool {
    let topic = &record.message.topic;
    let matches = match &subscription.form {
        Form::Plain(filter) => filter.matches(crate::broker::publish::text(topic)),
        _ => false,
    };
    matches && !record.message.payload.is_empty() && subscription.takes(topic)
}
