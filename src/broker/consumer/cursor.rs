//! What both kinds of consumer share: a bounded buffer of records read ahead, and the offsets on
//! their way.

use std::collections::{BTreeMap, VecDeque};

use super::selection::Selection;
use crate::storage::{ReadLimit, Record};

/// How much one consumer may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// One read ahead: records, and counted bytes beyond which it stops.
    pub read: ReadBound,
    /// Deliveries sent and not acknowledged, at most.
    pub in_flight: usize,
}

/// The size of one read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBound {
    /// At most this many records, at least 1.
    pub records: usize,
    /// Counted bytes at which the read stops.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            read: ReadBound {
                records: 64,
                bytes: 256 * 1024,
            },
            in_flight: 1024,
        }
    }
}

/// A stretch of reading that nothing older reaches into: a seek or a reset begins another, and
/// what was read or is acknowledged under an earlier one is void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Era(pub u32);

/// What a consumer wants read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest {
    /// From here on.
    pub offset: u64,
    /// No more than this.
    pub limit: ReadLimit,
    serial: u64,
}

/// A record to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The record.
    pub record: Record,
    /// QoS and Subscription Identifiers.
    pub selection: Selection,
    /// The RETAIN flag.
    pub retain: bool,
    /// To be handed back with its acknowledgement.
    pub era: Era,
}

/// What a consumer can do now.
#[derive(Clone, Debug)]
pub enum Next {
    /// Send this, and say `sent` if it was taken.
    Send(Box<Delivery>),
    /// Read this, and hand the answer to `filled`.
    Read(ReadRequest),
    /// Nothing, until a wake, an acknowledgement or the answer to a read.
    Wait,
}

/// Records read ahead, and the offsets sent and not acknowledged.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) bounds: Bounds,
    pub(super) era: Era,
    pub(super) buffer: VecDeque<Record>,
    /// The read that is waited for.
    pending: Option<u64>,
    next_serial: u64,
    /// The last read failed; nothing is asked for until a wake.
    pub(super) failed: bool,
    /// Deliveries on their way, by offset: a latest value may be on its way twice.
    in_flight: BTreeMap<u64, u32>,
    in_flight_count: usize,
}

impl Cursor {
    pub(super) fn new(bounds: Bounds) -> Self {
        Cursor {
            bounds,
            era: Era::default(),
            buffer: VecDeque::new(),
            pending: None,
            next_serial: 0,
            failed: false,
            in_flight: BTreeMap::new(),
            in_flight_count: 0,
        }
    }

    /// A read from `offset`, where there is room for one: what is buffered is sent first, so the
    /// buffer never holds more than one read.
    pub(super) fn request(&mut self, offset: u64) -> Next {
        if self.pending.is_some() || self.failed || !self.buffer.is_empty() {
            return Next::Wait;
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.pending = Some(serial);
        Next::Read(ReadRequest {
            offset,
            limit: ReadLimit {
                records: self.bounds.read.records.max(1),
                bytes: self.bounds.read.bytes,
            },
            serial,
        })
    }

    /// Whether an answer is to the read that is waited for, which it then no longer is.
    pub(super) fn answers(&mut self, request: &ReadRequest) -> bool {
        let waited_for = self.pending == Some(request.serial);
        if waited_for {
            self.pending = None;
        }
        waited_for
    }

    /// Forgets what was read and what is on its way.
    pub(super) fn begin_era(&mut self) {
        self.era = Era(self.era.0.wrapping_add(1));
        self.drop_buffer();
        self.in_flight.clear();
        self.in_flight_count = 0;
    }

    /// Forgets what was read, and a read that is under way.
    pub(super) fn drop_buffer(&mut self) {
        self.buffer = VecDeque::new();
        self.pending = None;
    }

    pub(super) fn has_window(&self) -> bool {
        self.in_flight_count < self.bounds.in_flight
    }

    pub(super) fn launch(&mut self, offset: u64) {
        *self.in_flight.entry(offset).or_default() += 1;
        self.in_flight_count += 1;
    }

    pub(super) fn is_in_flight(&self, offset: u64) -> bool {
        self.in_flight.contains_key(&offset)
    }

    pub(super) fn land(&mut self, offset: u64) {
        if let Some(count) = self.in_flight.get_mut(&offset) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(&offset);
            }
            self.in_flight_count -= 1;
        }
    }

    pub(super) fn lowest_in_flight(&self) -> Option<u64> {
        self.in_flight.keys().next().copied()
    }

    pub(super) fn in_flight_count(&self) -> usize {
        self.in_flight_count
    }
}
