//! A moment to wake at. `epoll_wait` itself counts in whole milliseconds, which is longer than a PUBACK takes.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::failure::Failure;

/// What the alarm is called among the connections.
pub const ALARM: u64 = u64::MAX;

/// A timer in an epoll set.
#[derive(Debug)]
pub struct Alarm {
    timer: OwnedFd,
    set_to: Option<Instant>,
}

impl Alarm {
    /// One that is not set.
    ///
    /// # Errors
    /// The system's.
    pub fn new(epoll: &OwnedFd) -> Result<Self, Failure> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(Failure::system("make a timer"))?;
        epoll::add(epoll, &timer, EventData::new_u64(ALARM), EventFlags::IN)
            .map_err(Failure::system("wait for a timer"))?;
        Ok(Alarm {
            timer,
            set_to: None,
        })
    }

    /// Rings at `until`, which is `left` away; never where there is nothing.
    ///
    /// # Errors
    /// The system's.
    pub fn set(&mut self, until: Option<(Instant, Duration)>) -> Result<(), Failure> {
        if self.set_to == until.map(|(until, _)| until) {
            return Ok(());
        }
        let never = Timespec::try_from(Duration::ZERO).unwrap_or_default();
        let left = until.and_then(|(_, left)| Timespec::try_from(left).ok());
        let at = Itimerspec {
            it_interval: never,
            it_value: left.unwrap_or(never),
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &at)
            .map_err(Failure::system("set a timer"))?;
        self.set_to = until.map(|(until, _)| until);
        Ok(())
    }
}
