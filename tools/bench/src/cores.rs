//! The broker on one core and the generator on another.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::Failure;

/// One core for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    broker: usize,
    generator: usize,
}

impl Cores {
    /// The first two cores this process may use.
    ///
    /// # Errors
    /// Where there is one.
    pub fn choose() -> Result<Self, Failure> {
        let allowed = sched_getaffinity(None).map_err(Failure::system("ask for its cores"))?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        match (cores.next(), cores.next()) {
            (Some(broker), Some(generator)) => Ok(Cores { broker, generator }),
            _ => Err(Failure::Options(
                "--pin needs two cores and this process may use one: leave it out".into(),
            )),
        }
    }

    /// Puts this thread on the generator's core.
    ///
    /// # Errors
    /// The system's.
    pub fn generate(self) -> Result<(), Failure> {
        stay_on(self.generator)
    }

    /// Starts a process on the broker's core: it inherits where this thread is while it starts it.
    ///
    /// # Errors
    /// The system's, and those of `start`.
    pub fn start<T>(self, start: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        stay_on(self.broker)?;
        let started = start();
        stay_on(self.generator)?;
        started
    }
}

fn stay_on(core: usize) -> Result<(), Failure> {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).map_err(Failure::system("stay on one core"))
}
