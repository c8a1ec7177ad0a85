//! `segments`: what lies in each file, and what keeps it from being let go of.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use saguin_log_engine::Segment as File;
use saguin_log_engine::format::Op;
use saguin_log_engine::state::{Channel, Content, State};
use saguin_recovery::stored::Stored;
use saguin_recovery::{FooterReport, SegmentReport, Visitor};
use serde::Serialize;

use crate::cli::{Code, Failure};
use crate::source::{self, Reading, explain};
use crate::text::{escape, file_name, json_line, rfc3339, table, time};

#[derive(Serialize)]
struct Segments {
    segments: Vec<Segment>,
}

#[derive(Serialize)]
struct Segment {
    number: u64,
    file: String,
    first_lsn: u64,
    last_lsn: u64,
    frames: u64,
    operations: u64,
    bytes_used: u64,
    capacity_bytes: u64,
    sealed: bool,
    /// Null where it is not sealed.
    footer: Option<FooterState>,
    /// Why it does not hold.
    footer_fault: Option<String>,
    writer: String,
    written_at: Option<String>,
    written_at_ms: u64,
    /// Records, entries, jobs, small values and records held back in it that are alive.
    alive: u64,
    /// What was written into it, alive or not.
    channels: Vec<Stretch>,
}

/// Whether a sealed segment says at its end where the records in it lie. Nothing is lost by one that does
/// not: the next start says it again.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FooterState {
    Good,
    Missing,
    Bad,
}

impl FooterState {
    /// Of a segment, and why it does not hold.
    pub(crate) fn of(segment: &SegmentReport) -> (Option<FooterState>, Option<String>) {
        match &segment.footer {
            FooterReport::Good => (Some(FooterState::Good), None),
            FooterReport::Missing => (segment.sealed.then_some(FooterState::Missing), None),
            FooterReport::Bad(why) => (Some(FooterState::Bad), Some(why.clone())),
        }
    }

    pub(crate) fn words(state: Option<FooterState>) -> &'static str {
        match state {
            Some(FooterState::Good) => ", footer good",
            Some(FooterState::Missing) => ", footer missing",
            Some(FooterState::Bad) => ", footer bad",
            None => "",
        }
    }
}

#[derive(Serialize)]
struct Stretch {
    channel: String,
    first: u64,
    last: u64,
    records: u64,
}

/// Per segment and channel: first and last offset, and how many records.
#[derive(Default)]
struct Seen(BTreeMap<(u64, u32), (u64, u64, u64)>);

impl Visitor for Seen {
    fn operation(&mut self, segment: &File, _: u64, _: u64, op: &Op<'_>) {
        let Some(stored) = Stored::of(op) else { return };
        let offset = stored.offset;
        let seen = self.0.entry((segment.header.number, stored.channel));
        let (first, last, records) = seen.or_insert((offset, offset, 0));
        (*first, *last) = ((*first).min(offset), (*last).max(offset));
        *records += 1;
    }
}

pub(crate) fn run(dir: &Path, json: bool, out: &mut dyn Write) -> Result<Code, Failure> {
    let Reading { visitor, found, .. } = source::read::<Seen>(dir);
    let (report, walk) = found.map_err(|e| explain(e, dir))?;
    let alive = alive(&walk.state);
    let segments = report.segments.iter();
    let segments = Segments {
        segments: segments
            .map(|segment| Segment::new(segment, &walk.state, &visitor, &alive))
            .collect(),
    };
    if json {
        json_line(out, &segments)?;
    } else {
        print(&segments, out)?;
    }
    Ok(Code::Good)
}

/// How much of what is alive lies in each segment.
fn alive(state: &State) -> BTreeMap<u32, u64> {
    let mut alive = BTreeMap::new();
    let mut add = |segment: u32, n: u64| *alive.entry(segment).or_default() += n;
    for (
        _,
        Channel {
            numbers, content, ..
        },
    ) in state.channels()
    {
        match content {
            Content::Sequence(index) => {
                for anchor in index.from_offset(numbers.floor) {
                    let anchor = anchor.from_floor(numbers.floor);
                    add(anchor.at.segment, anchor.records.into());
                }
            }
            Content::Map(index) => {
                for (_, entry) in index.from_offset(0) {
                    add(entry.at.segment, 1);
                }
            }
            Content::Work(index) => {
                for (_, job) in index.iter() {
                    add(job.at.segment, 1);
                }
            }
        }
    }
    for entry in state.keyspace().values() {
        add(entry.at.segment, 1);
    }
    for (_, hold) in state.holds().after(None) {
        add(hold.at.segment, 1);
    }
    alive
}

impl Segment {
    fn new(
        report: &SegmentReport,
        state: &State,
        seen: &Seen,
        alive: &BTreeMap<u32, u64>,
    ) -> Segment {
        let number = report.number;
        let here = seen.0.range((number, 0)..=(number, u32::MAX));
        let stretch = |(&(_, id), &(first, last, records)): (&(u64, u32), &(u64, u64, u64))| {
            let name = state.channel(id).map(|channel| &channel.name);
            Stretch {
                channel: name.map_or(id.to_string(), |name| {
                    String::from_utf8_lossy(name).into_owned()
                }),
                first,
                last,
                records,
            }
        };
        let (footer, footer_fault) = FooterState::of(report);
        let alive = u32::try_from(number).ok().and_then(|n| alive.get(&n));
        Segment {
            number,
            file: file_name(&report.path),
            first_lsn: report.first_lsn,
            last_lsn: report.last_lsn,
            frames: report.frames,
            operations: report.operations,
            bytes_used: report.end,
            capacity_bytes: report.capacity,
            sealed: report.sealed,
            footer,
            footer_fault,
            writer: report.writer.clone(),
            written_at: rfc3339(report.written_at),
            written_at_ms: report.written_at,
            alive: alive.copied().unwrap_or(0),
            channels: here.map(stretch).collect(),
        }
    }
}

fn print(segments: &Segments, out: &mut dyn Write) -> std::io::Result<()> {
    for s in &segments.segments {
        let Segment {
            number,
            first_lsn,
            last_lsn,
            frames,
            operations,
            bytes_used,
            capacity_bytes,
            alive,
            ..
        } = s;
        let sealed = if s.sealed { "sealed" } else { "not sealed" };
        let (file, footer) = (escape(&s.file), FooterState::words(s.footer));
        writeln!(out, "segment {number} in {file}, {sealed}{footer}")?;
        writeln!(
            out,
            "    frames {first_lsn} to {last_lsn} ({frames}), {operations} operations, \
             {bytes_used} bytes of {capacity_bytes}, {alive} alive"
        )?;
        let (writer, at) = (escape(&s.writer), time(s.written_at_ms));
        writeln!(out, "    written by {writer} at {at}")?;
        if let Some(why) = &s.footer_fault {
            writeln!(
                out,
                "    {}; it is written again from the frames",
                escape(why)
            )?;
        }
        let rows: Vec<_> = s.channels.iter().map(row).collect();
        table(out, &[], &rows)?;
    }
    Ok(())
}

fn row(stretch: &Stretch) -> Vec<String> {
    let Stretch {
        channel,
        first,
        last,
        records,
    } = stretch;
    vec![
        format!("    channel {}", escape(channel)),
        format!("offsets {first} to {last}"),
        format!("records {records}"),
    ]
}
