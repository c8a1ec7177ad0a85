//! Reading operations back out of a verified frame.

use super::op::{Kind, MAX_NAME_BYTES, Op, OpError, RecordRef, StateLine};
use super::varint;

/// The operations of a verified frame, in order. Stops after the first error.
#[derive(Clone, Debug)]
pub struct Ops<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> Ops<'a> {
    /// Goes on where [`place`](Self::place) was asked for: `rest` is what was left of a verified body.
    #[must_use]
    pub fn resume(rest: &'a [u8], left: u16) -> Ops<'a> {
        Ops { rest, left }
    }

    /// The bytes that are left, and the number of operations in them.
    #[must_use]
    pub fn place(&self) -> (&'a [u8], u16) {
        (self.rest, self.left)
    }

    pub(super) fn new(body: &'a [u8], count: u16) -> Ops<'a> {
        Ops {
            rest: body,
            left: count,
        }
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>, OpError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            // Padding is the only thing allowed after the last operation: fewer than eight zeros.
            let rest = std::mem::take(&mut self.rest);
            if rest.len() >= super::FRAME_ALIGN || rest.iter().any(|&b| b != 0) {
                return Some(Err(OpError::Trailing { bytes: rest.len() }));
            }
            return None;
        }
        self.left -= 1;
        let op = Fields::read(&mut self.rest);
        if op.is_err() {
            self.left = 0;
            self.rest = &[];
        }
        Some(op)
    }
}

/// Reads the fields of one operation and names the one that cannot be read.
struct Fields<'r, 'a> {
    kind: u8,
    rest: &'r mut &'a [u8],
}

impl<'a> Fields<'_, 'a> {
    fn read(rest: &mut &'a [u8]) -> Result<Op<'a>, OpError> {
        let Some((&kind, tail)) = rest.split_first() else {
            return Err(OpError::Field {
                kind: 0,
                field: "kind",
            });
        };
        *rest = tail;
        let mut f = Fields { kind, rest };
        Ok(match kind {
            1 => Op::Define {
                channel: f.id()?,
                kind: f.kind_byte()?,
                name: f.name()?,
            },
            2 => Op::State(StateLine {
                channel: f.id()?,
                kind: f.kind_byte()?,
                name: f.name()?,
                next: f.number("next")?,
                floor: f.number("floor")?,
                ceiling: f.number("ceiling")?,
                count: f.number("count")?,
                bytes: f.number("bytes")?,
            }),
            3 => Op::Segments {
                oldest: f.number("oldest")?,
            },
            4 => Op::Seal {
                next_segment: f.number("next segment")?,
            },
            5 => Op::Ceiling {
                channel: f.id()?,
                ceiling: f.number("ceiling")?,
            },
            6 => Op::Skip {
                channel: f.id()?,
                next: f.number("next")?,
            },
            7 => Op::Held {
                count: f.number("count")?,
                bytes: f.number("bytes")?,
            },
            16 => Op::Append {
                channel: f.id()?,
                offset: f.offset()?,
                record: f.record()?,
            },
            17 => Op::Trim {
                channel: f.id()?,
                floor: f.number("floor")?,
                removed: f.number("removed")?,
                freed: f.number("freed")?,
            },
            18 => Op::Set {
                channel: f.id()?,
                offset: f.offset()?,
                replaced: f.number("replaced")?.checked_sub(1),
                key: f.bytes("key")?,
                record: f.record()?,
            },
            19 => Op::Remove {
                channel: f.id()?,
                offset: f.offset()?,
                replaced: f.number("replaced")?.checked_sub(1),
                key: f.bytes("key")?,
                record: f.record()?,
            },
            20 => Op::Forget {
                channel: f.id()?,
                offset: f.offset()?,
                freed: f.number("freed")?,
                key: f.bytes("key")?,
            },
            21 => Op::Enqueue {
                channel: f.id()?,
                offset: f.offset()?,
                record: f.record()?,
            },
            22 => Op::Attempt {
                channel: f.id()?,
                offset: f.offset()?,
                attempts: f.small("attempts")?,
                first: f.number("first")?,
                last: f.number("last")?,
            },
            23 => Op::Resolve {
                channel: f.id()?,
                offset: f.offset()?,
                freed: f.number("freed")?,
            },
            24 => Op::DeadLetter {
                work: f.id()?,
                work_offset: f.number("work offset")?,
                freed: f.number("freed")?,
                channel: f.id()?,
                offset: f.offset()?,
                record: f.record()?,
            },
            25 => Op::Put {
                space: f.byte("namespace")?,
                key: f.bytes("key")?,
                value: f.bytes("value")?,
            },
            26 => Op::Delete {
                space: f.byte("namespace")?,
                key: f.bytes("key")?,
            },
            27 => Op::MoveRecord {
                channel: f.id()?,
                offset: f.offset()?,
                record: f.record()?,
            },
            28 => Op::MoveEntry {
                channel: f.id()?,
                offset: f.offset()?,
                deletion: f.flag("deletion")?,
                key: f.bytes("key")?,
                record: f.record()?,
            },
            29 => {
                let (channel, offset) = (f.id()?, f.offset()?);
                let attempts = f.small("attempts")?;
                let attempted = (f.number("first")?, f.number("last")?);
                Op::MoveJob {
                    channel,
                    offset,
                    attempts,
                    attempted: (attempts > 0).then_some(attempted),
                    record: f.record()?,
                }
            }
            30 => Op::Hold {
                key: f.bytes("key")?,
                record: f.record()?,
            },
            31 => Op::Drop {
                freed: f.number("freed")?,
                key: f.bytes("key")?,
            },
            32 => Op::MoveHold {
                key: f.bytes("key")?,
                record: f.record()?,
            },
            found => return Err(OpError::UnknownKind { found }),
        })
    }

    fn error(&self, field: &'static str) -> OpError {
        OpError::Field {
            kind: self.kind,
            field,
        }
    }

    #[inline]
    fn number(&mut self, field: &'static str) -> Result<u64, OpError> {
        varint::take(self.rest).ok_or_else(|| self.error(field))
    }

    fn small(&mut self, field: &'static str) -> Result<u32, OpError> {
        u32::try_from(self.number(field)?).map_err(|_| self.error(field))
    }

    fn id(&mut self) -> Result<u32, OpError> {
        self.small("channel")
    }

    fn offset(&mut self) -> Result<u64, OpError> {
        self.number("offset")
    }

    fn byte(&mut self, field: &'static str) -> Result<u8, OpError> {
        let (&byte, tail) = self.rest.split_first().ok_or_else(|| self.error(field))?;
        *self.rest = tail;
        Ok(byte)
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, OpError> {
        match self.byte(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.error(field)),
        }
    }

    fn kind_byte(&mut self) -> Result<Kind, OpError> {
        Kind::from_byte(self.byte("kind")?).ok_or_else(|| self.error("kind"))
    }

    #[inline]
    fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], OpError> {
        let len = self.number(field)?;
        if len > self.rest.len() as u64 {
            return Err(self.error(field));
        }
        let (bytes, tail) = self.rest.split_at(len as usize);
        *self.rest = tail;
        Ok(bytes)
    }

    fn name(&mut self) -> Result<&'a [u8], OpError> {
        let name = self.bytes("name")?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(self.error("name"));
        }
        Ok(name)
    }

    #[inline]
    fn record(&mut self) -> Result<RecordRef<'a>, OpError> {
        Ok(RecordRef {
            timestamp: self.number("timestamp")?.checked_sub(1),
            size: self.number("size")?,
            body: self.bytes("body")?,
        })
    }
}
