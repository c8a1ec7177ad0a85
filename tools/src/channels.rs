//! `channels`: what each channel holds, in numbers.

use std::io::Write;
use std::path::Path;

use saguin_log_engine::format::Kind;
use saguin_recovery::ChannelReport;
use serde::Serialize;

use crate::cli::{Code, Failure};
use crate::source::Log;
use crate::text::{escape, json_line, table};

#[derive(Serialize)]
struct Channels<'a> {
    channels: Vec<Channel<'a>>,
}

#[derive(Serialize)]
struct Channel<'a> {
    id: u32,
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    next: u64,
    floor: u64,
    count: u64,
    bytes: u64,
}

/// The channel's type as the configuration spells it.
pub(crate) fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Sequence => "append",
        Kind::Map => "latest",
        Kind::Work => "queue",
    }
}

pub(crate) fn run(dir: &Path, json: bool, out: &mut dyn Write) -> Result<Code, Failure> {
    let log = Log::read(dir)?;
    let channels = log.report.channels.iter().map(Channel::new).collect();
    let channels = Channels { channels };
    if json {
        json_line(out, &channels)?;
    } else {
        print(&channels, out)?;
    }
    Ok(Code::Good)
}

impl Channel<'_> {
    fn new(report: &ChannelReport) -> Channel<'_> {
        Channel {
            id: report.id,
            name: &report.name,
            kind: type_name(report.kind),
            next: report.next,
            floor: report.floor,
            count: report.count,
            bytes: report.bytes,
        }
    }
}

fn print(channels: &Channels<'_>, out: &mut dyn Write) -> std::io::Result<()> {
    let head = ["id", "name", "type", "next", "floor", "records", "bytes"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for c in &channels.channels {
        rows.push(vec![
            c.id.to_string(),
            escape(c.name),
            c.kind.to_owned(),
            c.next.to_string(),
            c.floor.to_string(),
            c.count.to_string(),
            c.bytes.to_string(),
        ]);
    }
    table(out, &[0, 3, 4, 5, 6], &rows)
}
