//! What an open engine says it holds, in the model's terms: everything is read back through the
//! calls that readers use.

use std::collections::BTreeMap;

use bytes::Bytes;
use saguin_log_engine::format::{Kind, POSITIONS, decode_position};
use saguin_log_engine::{ChannelId, Engine, ReadError, ReadLimit, StoredRecord};

use super::model::{Channel, Content, Job, Model, Record, Value};
use super::workload::{NAMES, SPACES};

/// Records one read of the view asks for.
const AT_ONCE: ReadLimit = ReadLimit {
    records: 7,
    bytes: 4000,
};

/// Reads everything.
///
/// # Errors
/// A sentence, where a read fails or contradicts another.
pub fn view(engine: &Engine) -> Result<Model, String> {
    let mut found = Vec::new();
    for (name, _) in NAMES {
        if let Some((id, kind)) = engine.channel_named(name.as_bytes()) {
            found.push((id, channel(engine, id, kind, name)?));
        }
    }
    found.sort_by_key(|(id, _)| *id);
    for (i, (id, channel)) in found.iter().enumerate() {
        if id.0 as usize != i {
            return Err(format!("channel {:?} has id {}", channel.name, id.0));
        }
    }
    let mut values = BTreeMap::new();
    for space in 0..SPACES {
        for (key, value) in engine.values(space, b"") {
            values.insert((space, key), value);
        }
    }
    Ok(Model {
        channels: found.into_iter().map(|(_, channel)| channel).collect(),
        values,
        holds: holds(engine)?,
        positions: positions(engine)?,
    })
}

/// Everything held, by pages of three.
fn holds(engine: &Engine) -> Result<BTreeMap<Bytes, Record>, String> {
    let (mut holds, mut after) = (BTreeMap::new(), None::<Bytes>);
    loop {
        let page = engine.holds(b"", after.as_deref(), 3);
        for (key, entry) in &page {
            let stored = engine.held(key).map_err(|e| format!("hold {key:?}: {e}"))?;
            let stored = stored.ok_or_else(|| format!("hold {key:?} has no record"))?;
            if (stored.size, stored.timestamp) != (entry.size, entry.timestamp) {
                return Err(format!(
                    "hold {key:?} is listed as {entry:?}, is {stored:?}"
                ));
            }
            holds.insert(key.clone(), record(&stored));
        }
        after = match page.last() {
            Some((key, _)) => Some(key.clone()),
            None => return Ok(holds),
        };
    }
}

/// Every position; what the engine says of each channel has to add up to them.
fn positions(engine: &Engine) -> Result<BTreeMap<(u32, Bytes), u64>, String> {
    let mut positions = BTreeMap::new();
    for (key, value) in engine.values(POSITIONS, b"") {
        let (channel, position) =
            decode_position(&key, &value).ok_or_else(|| format!("{key:?} is not a position"))?;
        positions.insert((channel, key.slice(4..)), position);
    }
    for channel in 0..NAMES.len() as u32 {
        let here = positions.iter().filter(|((c, _), _)| *c == channel);
        let here: Vec<u64> = here.map(|(_, position)| *position).collect();
        let expected = (here.len() as u64, here.iter().min().copied());
        let said = engine.positions(ChannelId(channel));
        if said != expected {
            return Err(format!(
                "channel {channel} says positions {said:?}, its entries {expected:?}"
            ));
        }
    }
    Ok(positions)
}

fn channel(engine: &Engine, id: ChannelId, kind: Kind, name: &str) -> Result<Channel, String> {
    let numbers = engine
        .numbers(id)
        .ok_or_else(|| format!("channel {name} has no numbers"))?;
    let content = match kind {
        Kind::Sequence => Content::Sequence(sequence(engine, id, numbers.floor)?),
        Kind::Map => Content::Map(map(engine, id)?),
        Kind::Work => Content::Work(work(engine, id)?),
    };
    Ok(Channel {
        name: Bytes::copy_from_slice(name.as_bytes()),
        next: numbers.next,
        floor: numbers.floor,
        count: numbers.count,
        bytes: numbers.bytes,
        content,
    })
}

fn record(stored: &StoredRecord) -> Record {
    Record {
        timestamp: stored.timestamp,
        size: stored.size,
        body: stored.body.clone(),
    }
}

fn sequence(engine: &Engine, id: ChannelId, floor: u64) -> Result<BTreeMap<u64, Record>, String> {
    if floor > 1 {
        match engine.read_from(id, floor - 1, AT_ONCE) {
            Err(ReadError::BelowFloor { floor: said }) if said == floor => {}
            other => {
                return Err(format!(
                    "a read below floor {floor} of channel {} answered {other:?}",
                    id.0
                ));
            }
        }
    }
    let (mut records, mut at) = (BTreeMap::new(), floor);
    loop {
        let read = engine.read_from(id, at, AT_ONCE);
        let read = read.map_err(|e| format!("channel {} from {at}: {e}", id.0))?;
        let Some(last) = read.records.last() else {
            if read.next < at {
                return Err(format!(
                    "channel {}: nothing to read at {at}, but next is {}",
                    id.0, read.next
                ));
            }
            return Ok(records);
        };
        let after = last.offset + 1;
        let mut lowest = at;
        for (i, stored) in read.records.iter().enumerate() {
            // There may be gaps; whether a record is missing in one is for whoever knows them.
            if stored.offset < lowest {
                return Err(format!(
                    "channel {}: a read from {at} shows offset {} as number {i}",
                    id.0, stored.offset
                ));
            }
            lowest = stored.offset + 1;
            records.insert(stored.offset, record(stored));
        }
        at = after;
    }
}

fn map(engine: &Engine, id: ChannelId) -> Result<BTreeMap<Bytes, Value>, String> {
    let (mut map, mut at) = (BTreeMap::new(), 0);
    loop {
        let read = engine.changes_from(id, at, AT_ONCE);
        let read = read.map_err(|e| format!("changes of channel {} from {at}: {e}", id.0))?;
        let Some(last) = read.records.last() else {
            return Ok(map);
        };
        at = last.offset + 1;
        for stored in &read.records {
            let value = Value {
                offset: stored.offset,
                record: record(stored),
                deletion: stored.deletion,
            };
            if map.insert(stored.key.clone(), value).is_some() {
                return Err(format!("channel {} shows {:?} twice", id.0, stored.key));
            }
        }
    }
}

fn work(engine: &Engine, id: ChannelId) -> Result<BTreeMap<u64, Job>, String> {
    let unresolved = engine.unresolved(id).map_err(|e| e.to_string())?;
    let mut jobs = BTreeMap::new();
    for (offset, item) in unresolved {
        let stored = engine.job(id, offset);
        let stored = stored.map_err(|e| format!("job {offset} of channel {}: {e}", id.0))?;
        let stored =
            stored.ok_or_else(|| format!("job {offset} of channel {} has no record", id.0))?;
        let job = Job {
            record: record(&stored),
            attempts: item.attempts,
            attempted: item.attempted,
        };
        jobs.insert(offset, job);
    }
    Ok(jobs)
}
