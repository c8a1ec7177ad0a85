//! What came of what was published: everything, once.

use crate::failure::Failure;
use crate::publisher::stamp;

/// Which messages of each publisher have come.
#[derive(Clone, Debug)]
pub struct Tally {
    came: Vec<Vec<bool>>,
}

impl Tally {
    /// Of publishers with so many messages each.
    pub fn new(shares: &[u64]) -> Self {
        let none = |share: &u64| vec![false; usize::try_from(*share).unwrap_or(usize::MAX)];
        Tally {
            came: shares.iter().map(none).collect(),
        }
    }

    /// Counts one.
    ///
    /// # Errors
    /// One that came before, or that nobody published.
    pub fn take(&mut self, payload: &[u8]) -> Result<(), Failure> {
        let read = stamp(payload);
        let place = read.and_then(|(publisher, message)| {
            self.came
                .get_mut(publisher as usize)?
                .get_mut(message as usize)
        });
        match (place, read) {
            (Some(came), _) if !*came => {
                *came = true;
                Ok(())
            }
            (Some(_), Some((publisher, message))) => Err(Failure::Broken(format!(
                "the broker delivered message {message} of publisher {publisher} twice, and nothing gave it back"
            ))),
            _ => Err(Failure::Broken(
                "the broker delivered a payload that nobody published".into(),
            )),
        }
    }
}

/// Which message of each publisher comes next, where all come in order.
#[derive(Clone, Debug)]
pub struct Order {
    next: Vec<u32>,
    count: u64,
}

impl Order {
    /// Of so many publishers.
    pub fn new(publishers: usize) -> Self {
        Order {
            next: vec![0; publishers],
            count: 0,
        }
    }

    /// Counts one.
    ///
    /// # Errors
    /// One that is not the next of its publisher.
    pub fn take(&mut self, payload: &[u8]) -> Result<(), Failure> {
        let nobody =
            || Failure::Broken("the broker delivered a payload that nobody published".into());
        let (publisher, message) = stamp(payload).ok_or_else(nobody)?;
        let next = self.next.get_mut(publisher as usize).ok_or_else(nobody)?;
        if message != *next {
            return Err(Failure::Broken(format!(
                "the broker delivered message {message} of publisher {publisher} where {next} was next: one was lost, repeated or overtaken"
            )));
        }
        *next += 1;
        self.count += 1;
        Ok(())
    }

    /// How many came.
    pub fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(publisher: u32, message: u32) -> Vec<u8> {
        [publisher.to_be_bytes(), message.to_be_bytes()].concat()
    }

    #[test]
    fn a_message_that_comes_twice_is_an_error() {
        let mut tally = Tally::new(&[2, 1]);
        for (publisher, message) in [(0, 1), (1, 0), (0, 0)] {
            tally.take(&payload(publisher, message)).unwrap();
        }
        let twice = tally.take(&payload(0, 1)).unwrap_err().to_string();
        assert!(twice.contains("twice"), "{twice}");
        for strange in [payload(2, 0), payload(0, 2), vec![1]] {
            assert!(tally.take(&strange).is_err());
        }
    }

    #[test]
    fn a_message_that_is_not_the_next_is_an_error() {
        let mut order = Order::new(2);
        order.take(&payload(0, 0)).unwrap();
        order.take(&payload(1, 0)).unwrap();
        for wrong in [payload(0, 0), payload(0, 2), payload(2, 0), vec![]] {
            assert!(order.take(&wrong).is_err());
        }
        order.take(&payload(0, 1)).unwrap();
        assert_eq!(order.count(), 3);
    }
}
