//! Several publishers at work on one set of connections.

use std::time::Instant;

use crate::connections::{Connections, Out, connect_packet, unexpected};
use crate::failure::Failure;
use crate::frame::Frame;
use crate::latency::Latencies;
use crate::publisher::{Message, Publisher, Window};
use crate::target::Target;

/// Publishers whose connections were opened one after the other.
#[derive(Debug)]
pub struct Crew {
    first: usize,
    publishers: Vec<Publisher>,
    /// How many each has to send.
    shares: Vec<u64>,
}

impl Crew {
    /// Opens as many publishers as there are shares; `message` says what each sends, and `shape` what
    /// is patched into it.
    ///
    /// # Errors
    /// Those of [`Publisher::open`].
    pub fn open(
        target: &Target,
        connections: &mut Connections,
        window: Window,
        shares: Vec<u64>,
        message: impl Fn(usize) -> Message,
        shape: impl Fn(usize, Publisher) -> Publisher,
    ) -> Result<Self, Failure> {
        let mut publishers = Vec::with_capacity(shares.len());
        for number in 0..shares.len() {
            let connect = connect_packet(&target.client("pub", number), false, true)?;
            let publisher = Publisher::open(connections, connect, &message(number), window)?;
            publishers.push(shape(number, publisher));
        }
        let first = publishers
            .first()
            .map_or(0, |publisher| publisher.connection);
        Ok(Crew {
            first,
            publishers,
            shares,
        })
    }

    /// Whether a connection is one of a publisher's.
    pub fn has(&self, at: usize) -> bool {
        at >= self.first && at - self.first < self.publishers.len()
    }

    /// Sends as much as each window has room for.
    ///
    /// # Errors
    /// A connection that is gone.
    pub fn begin(&mut self, connections: &mut Connections) -> Result<(), Failure> {
        for (publisher, share) in self.publishers.iter_mut().zip(&self.shares) {
            let now = Instant::now();
            let out = connections.out(publisher.connection);
            for _ in 0..publisher.room().min(*share - publisher.sent) {
                publisher.send(now, out);
            }
            connections.flush(publisher.connection)?;
        }
        Ok(())
    }

    /// Takes a packet of a publisher's connection and sends the next message in its place.
    ///
    /// # Errors
    /// A packet that is no PUBACK of the next publish.
    pub fn take(
        &mut self,
        at: usize,
        frame: &Frame<'_>,
        now: Instant,
        out: &mut Out,
        latencies: &mut Latencies,
    ) -> Result<(), Failure> {
        let place = at.wrapping_sub(self.first);
        let publisher = self.publishers.get_mut(place);
        match (frame, publisher, self.shares.get(place)) {
            (Frame::PubAck { id, .. }, Some(publisher), Some(share)) => {
                latencies.record(publisher.acknowledge(*id, now)?);
                if publisher.sent < *share {
                    publisher.send(now, out);
                }
                Ok(())
            }
            (frame, ..) => Err(stray(frame)),
        }
    }

    /// At QoS 0: sends `batch` more on every connection whose last ones are written. Whether there was any.
    ///
    /// # Errors
    /// A connection that is gone.
    pub fn push(&mut self, connections: &mut Connections, batch: u64) -> Result<bool, Failure> {
        let mut pushed = false;
        for (publisher, share) in self.publishers.iter_mut().zip(&self.shares) {
            let out = connections.out(publisher.connection);
            if !out.is_empty() {
                continue;
            }
            let now = Instant::now();
            for _ in 0..batch.min(*share - publisher.sent) {
                publisher.send(now, out);
                pushed = true;
            }
            connections.flush(publisher.connection)?;
        }
        Ok(pushed)
    }

    /// How many were sent.
    pub fn sent(&self) -> u64 {
        self.publishers.iter().map(|p| p.sent).sum()
    }

    /// Everybody stops with what is sent.
    pub fn stop(&mut self) {
        for (publisher, share) in self.publishers.iter().zip(&mut self.shares) {
            *share = publisher.sent;
        }
    }

    /// Everybody has so many more to send.
    pub fn allow(&mut self, more: u64) {
        for share in &mut self.shares {
            *share += more;
        }
    }

    /// How many were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.publishers.iter().map(|p| p.acknowledged).sum()
    }

    /// Whether everybody has sent its share and had it acknowledged.
    pub fn is_done(&self) -> bool {
        let mut all = self.publishers.iter().zip(&self.shares);
        all.all(|(publisher, share)| publisher.acknowledged >= *share)
    }

    /// Publishes everything and waits until all of it is acknowledged.
    ///
    /// # Errors
    /// A broker that does not acknowledge all of it, in order.
    pub fn load(&mut self, connections: &mut Connections) -> Result<Latencies, Failure> {
        let mut latencies = Latencies::default();
        self.begin(connections)?;
        while !self.is_done() {
            connections.turn(
                "PUBACKs",
                None,
                &mut |at, frame: Frame<'_>, now, out: &mut Out| {
                    self.take(at, &frame, now, out, &mut latencies)
                },
            )?;
        }
        Ok(latencies)
    }
}

/// A packet on a connection that expects another.
pub fn stray(frame: &Frame<'_>) -> Failure {
    match frame {
        Frame::PubAck { id, .. } => Failure::Broken(format!(
            "the broker acknowledged the publish {id}, which was never sent"
        )),
        Frame::Publish(delivery) => crate::connections::stranger(delivery.topic),
        Frame::Other(packet) => unexpected(packet),
    }
}

/// `count` shared out as evenly as it goes.
pub fn shares(count: u64, among: usize) -> Vec<u64> {
    let among = among as u64;
    (0..among)
        .map(|number| count / among + u64::from(number < count % among))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_come_to_the_whole() {
        assert_eq!(shares(10, 4), [3, 3, 2, 2]);
        assert_eq!(shares(2, 3), [1, 1, 0]);
        assert_eq!(shares(9, 1), [9]);
    }
}
