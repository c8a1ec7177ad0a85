//! `queue`: jobs to completion, and from a publish to a worker that waits for it.

use std::time::Instant;

use bytes::Bytes;
use saguin_mqtt_codec::{Packet, Publish, PublishProperties, QoS};

use super::crew::{Crew, shares, stray};
use super::tally::Tally;
use super::{Measured, prefix};
use crate::connections::{Connections, Out, append, append_puback, connect_packet};
use crate::failure::Failure;
use crate::frame::{Delivery, Frame};
use crate::latency::Latencies;
use crate::publisher::{Message, STAMP, Window};
use crate::report::{Figure, figure, known, per_second};
use crate::target::{Cost, Target};

/// What `queue` takes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Connections that publish jobs
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    publishers: u32,
    /// Publishes each has unacknowledged at most
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    window: u16,
    /// Connections that work; each acknowledges its job at once
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: u32,
    /// Jobs each run has
    #[arg(long, default_value_t = 50_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    jobs: u32,
    /// Jobs published one at a time to a worker that waits
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    singles: u32,
    /// Bytes of payload
    #[arg(long, default_value_t = 128, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(STAMP as i64..=16_777_216))]
    size: u32,
    /// The topics are below this one, which is the queue's
    #[arg(long, default_value = prefix::WORK, value_name = "TOPIC")]
    topic: String,
}

impl Measured for Args {
    fn settings(&self) -> String {
        format!(
            "{} publishers x window {}, {} workers, {} jobs of {} B; then {} one at a time",
            self.publishers, self.window, self.workers, self.jobs, self.size, self.singles
        )
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.size as usize)
    }

    fn measure(&self, target: &mut Target) -> Result<Vec<Figure>, Failure> {
        let mut figures = self.many(target)?;
        figures.extend(self.one_at_a_time(target)?);
        Ok(figures)
    }
}

impl Args {
    fn message(&self, target: &Target) -> Message {
        Message {
            topic: format!("{}/{}", self.topic, target.run),
            size: self.size as usize,
            qos: QoS::AtLeastOnce,
            retain: false,
        }
    }

    fn many(&self, target: &Target) -> Result<Vec<Figure>, Failure> {
        let mut connections = target.connections()?;
        let jobs = u64::from(self.jobs);
        let shares = shares(jobs, self.publishers as usize);
        let tally = Tally::new(&shares);
        let workers = Workers::open(target, &mut connections, self, tally)?;
        let mut bench = Bench {
            crew: self.crew(target, &mut connections, shares)?,
            workers,
            latencies: Latencies::default(),
            received_at: None,
        };
        let (cost, begun) = (Cost::begin(target), Instant::now());
        bench.crew.begin(&mut connections)?;
        while !(bench.crew.is_done() && bench.workers.are_done(jobs)) {
            bench.turn(&mut connections)?;
        }
        let took = begun.elapsed();
        let figures = [
            Some(figure(
                "jobs, to completion",
                "/s",
                per_second(jobs, took.as_secs_f64()),
            )),
            known("broker CPU per job", "µs", cost.broker_micros(jobs)),
            known("generator CPU per job", "µs", cost.generator_micros(jobs)),
        ];
        Ok(figures.into_iter().flatten().collect())
    }

    fn crew(
        &self,
        target: &Target,
        connections: &mut Connections,
        shares: Vec<u64>,
    ) -> Result<Crew, Failure> {
        let message = |_| self.message(target);
        Crew::open(
            target,
            connections,
            Window::Asked(self.window),
            shares,
            message,
            |number, publisher| publisher.stamped(u32::try_from(number).unwrap_or_default()),
        )
    }

    fn one_at_a_time(&self, target: &Target) -> Result<Vec<Figure>, Failure> {
        let mut connections = target.connections()?;
        let singles = u64::from(self.singles);
        let one = Args {
            workers: 1,
            window: 1,
            publishers: 1,
            topic: self.topic.clone(),
            ..*self
        };
        let workers = Workers::open(target, &mut connections, &one, Tally::new(&[singles]))?;
        let mut bench = Bench {
            crew: one.crew(target, &mut connections, vec![0])?,
            workers,
            latencies: Latencies::default(),
            received_at: None,
        };
        let mut latencies = Latencies::default();
        for done in 1..=singles {
            let sent_at = Instant::now();
            bench.crew.allow(1);
            bench.crew.begin(&mut connections)?;
            while !(bench.crew.is_done() && bench.workers.are_done(done)) {
                bench.turn(&mut connections)?;
            }
            if let Some(received_at) = bench.received_at.take() {
                latencies.record(received_at.saturating_duration_since(sent_at));
            }
        }
        Ok(vec![
            figure("publish to idle worker p50", "µs", latencies.micros(0.5)),
            figure("publish to idle worker p99", "µs", latencies.micros(0.99)),
        ])
    }
}

/// Publishers and workers on one set of connections.
struct Bench {
    crew: Crew,
    workers: Workers,
    latencies: Latencies,
    /// When the last job was read.
    received_at: Option<Instant>,
}

impl Bench {
    fn turn(&mut self, connections: &mut Connections) -> Result<(), Failure> {
        let take = &mut |at, frame: Frame<'_>, now, out: &mut Out| {
            if self.crew.has(at) {
                return self.crew.take(at, &frame, now, out, &mut self.latencies);
            }
            if matches!(frame, Frame::Publish(_)) {
                self.received_at = Some(now);
            }
            self.workers.take(at, &frame, out)
        };
        connections.turn("the jobs that are not done", None, take)?;
        Ok(())
    }
}

/// Connections that do jobs by saying so. Theirs are the first numbers.
struct Workers {
    topic: String,
    tally: Tally,
    /// Whether a job is answered; otherwise its PUBACK is all.
    answers: bool,
    /// Each worker's answers.
    answers_of: Vec<Answers>,
    done: u64,
}

impl Workers {
    fn open(
        target: &Target,
        connections: &mut Connections,
        args: &Args,
        tally: Tally,
    ) -> Result<Self, Failure> {
        let answers = target.kind.has_channels();
        let topic = format!("{}/{}", args.topic, target.run);
        let filter = match answers {
            true => format!("$saguin/queue/{}", target.queue),
            false => format!("$share/workers/{topic}"),
        };
        for number in 0..args.workers as usize {
            let (at, _) =
                connections.open(connect_packet(&target.client("work", number), false, true)?)?;
            connections.subscribe(at, &filter, QoS::AtLeastOnce)?;
        }
        Ok(Workers {
            topic,
            tally,
            answers,
            answers_of: vec![Answers::default(); args.workers as usize],
            done: 0,
        })
    }

    fn take(&mut self, at: usize, frame: &Frame<'_>, out: &mut Out) -> Result<(), Failure> {
        match (frame, self.answers_of.get_mut(at)) {
            (Frame::Publish(job), Some(answers)) => {
                if job.topic != self.topic.as_bytes() {
                    // It is somebody's, who will have it back when this connection ends.
                    return Err(crate::connections::stranger(job.topic));
                }
                self.tally.take(job.payload)?;
                append_puback(job.id, out);
                if self.answers {
                    return answers.send(job, out);
                }
                self.done += 1;
            }
            (Frame::PubAck { id, .. }, Some(answers)) => {
                if !answers.take(*id) {
                    return Err(stray(frame));
                }
                self.done += 1;
            }
            (frame, _) => return Err(stray(frame)),
        }
        Ok(())
    }

    fn are_done(&self, jobs: u64) -> bool {
        self.done >= jobs
    }
}

/// The answers of one worker. The next job may come before the answer to the last one is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// The identifier of the last one sent, and of the last one acknowledged.
    sent: u16,
    acknowledged: u16,
}

impl Answers {
    /// Says of a job that it is done.
    fn send(&mut self, job: &Delivery<'_>, out: &mut Out) -> Result<(), Failure> {
        let asked = job.properties()?;
        let Some(topic) = asked.response_topic else {
            return Err(Failure::Broken(
                "a job came without a Response Topic: is --queue the name of a queue?".into(),
            ));
        };
        self.sent = following(self.sent);
        let answer = Publish {
            qos: QoS::AtLeastOnce,
            topic,
            packet_id: self.sent,
            payload: Bytes::from_static(b"ack"),
            properties: PublishProperties {
                correlation_data: asked.correlation_data,
                ..PublishProperties::default()
            },
            ..Publish::default()
        };
        append(&Packet::Publish(answer), out)
    }

    /// Takes a PUBACK; whether it is that of the next answer.
    fn take(&mut self, id: u16) -> bool {
        let is_next = self.acknowledged != self.sent && id == following(self.acknowledged);
        if is_next {
            self.acknowledged = id;
        }
        is_next
    }
}

fn following(id: u16) -> u16 {
    id % u16::MAX + 1
}
