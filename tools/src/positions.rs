//! `positions`: where every durable reader is.

use std::io::Write;
use std::path::Path;

use saguin_log_engine::state::{Channel, State};
use saguin_recovery::keys::{self, holds_positions};
use serde::Serialize;

use crate::channels::type_name;
use crate::cli::{Code, Failure};
use crate::records::choose;
use crate::source::Log;
use crate::text::{escape, hex, json_line, table};

#[derive(Serialize)]
struct Positions {
    positions: Vec<Position>,
    /// Entries of the namespace that are no positions, by key in hexadecimal.
    unreadable: Vec<String>,
}

#[derive(Serialize)]
struct Position {
    /// Null where that is not known: the position may be of a channel in another provider.
    channel: Option<String>,
    /// The channel of this log that has the number, where it is not known whether it is meant.
    perhaps: Option<String>,
    channel_id: u32,
    #[serde(rename = "type")]
    kind: Option<&'static str>,
    reader: String,
    /// The next offset the reader is owed.
    position: u64,
    floor: Option<u64>,
    next: Option<u64>,
    /// Offsets from the position, or the floor where that is higher, to the end.
    behind: Option<u64>,
    below_floor: bool,
    /// Offsets between the position and the floor, that this reader can never be given.
    missed: u64,
}

pub(crate) fn run(
    dir: &Path,
    channel: Option<&str>,
    json: bool,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    let Log { report, walk, .. } = Log::read(dir)?;
    let only = match channel {
        Some(name) => Some(choose(&report, Some(name))?.0),
        None => None,
    };
    let mut positions = read(&walk.state);
    positions
        .positions
        .retain(|p| only.is_none_or(|id| p.channel_id == id));
    if json {
        json_line(out, &positions)?;
    } else {
        print(&positions, out)?;
    }
    Ok(Code::Good)
}

/// Every position, by channel, the one furthest behind first.
fn read(state: &State) -> Positions {
    let mut all = Positions {
        positions: Vec::new(),
        unreadable: Vec::new(),
    };
    for ((space, key), entry) in state.keyspace() {
        if !holds_positions(*space) {
            continue;
        }
        match keys::Position::read(*space, key, &entry.value) {
            Some(found) => all.positions.push(Position::new(state, &found)),
            None => all.unreadable.push(hex(key)),
        }
    }
    all.positions.sort_by_key(|p| (p.channel_id, p.position));
    all
}

impl Position {
    fn new(state: &State, found: &keys::Position<'_>) -> Position {
        let position = found.offset;
        let here = state.channel(found.channel);
        let name = |c: &Channel| String::from_utf8_lossy(&c.name).into_owned();
        let channel = here.filter(|_| found.judged);
        let numbers = channel.map(|c| c.numbers);
        let floor = numbers.map(|n| n.floor);
        let missed = floor.map_or(0, |floor| floor.saturating_sub(position));
        Position {
            channel: channel.map(name),
            perhaps: here.filter(|_| !found.judged).map(name),
            channel_id: found.channel,
            kind: channel.map(|c| type_name(c.kind)),
            reader: String::from_utf8_lossy(found.reader).into_owned(),
            position,
            floor,
            next: numbers.map(|n| n.next),
            behind: numbers.map(|n| n.next.saturating_sub(position.max(n.floor))),
            below_floor: missed > 0,
            missed,
        }
    }
}

fn print(positions: &Positions, out: &mut dyn Write) -> std::io::Result<()> {
    let head = [
        "channel", "reader", "position", "floor", "next", "behind", "",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
    for p in &positions.positions {
        let channel = match (&p.channel, &p.perhaps) {
            (Some(name), _) => escape(name),
            (None, Some(name)) => format!(
                "number {}, perhaps {} and perhaps in another provider",
                p.channel_id,
                escape(name)
            ),
            (None, None) => format!("number {}, not in this log", p.channel_id),
        };
        let missed = match p.missed {
            0 => String::new(),
            n => format!("BELOW THE FLOOR: missed {n}"),
        };
        rows.push(vec![
            channel,
            escape(&p.reader),
            p.position.to_string(),
            number(p.floor),
            number(p.next),
            number(p.behind),
            missed,
        ]);
    }
    table(out, &[2, 3, 4, 5], &rows)?;
    for key in &positions.unreadable {
        writeln!(out, "unreadable: key {key} is no position")?;
    }
    Ok(())
}
