//! `verify`: whether every byte is what was written, and where not.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use saguin_log_engine::format::{FrameError, HeaderError, Op};
use saguin_log_engine::state::StateError;
use saguin_log_engine::{Layout, Segment};
use saguin_recovery::body::Body;
use saguin_recovery::{Damage, DamageKind, RecoverError, Report, Visitor, Walk};
use serde::Serialize;

use crate::cli::{Code, Failure, quiet};
use crate::live;
use crate::source::{self, Open, Reading, explain, segment_files};
use crate::summary::{End, ROLL_CUT_SHORT, TornTail};
use crate::text::{counted, escape, file_name, json_line, table};

/// Unreadable records that are named; the others are counted.
const NAMED_RECORDS: usize = 100;

#[derive(Serialize)]
struct Verdict {
    directory: String,
    open: Open,
    /// Null where the damage hides it.
    log_id: Option<String>,
    /// Nothing acknowledged is damaged, and every live record can be read.
    whole: bool,
    segments: Vec<SegmentVerdict>,
    damage: Option<DamageVerdict>,
    ending: Option<End>,
    roll_cut_short: Option<CutShort>,
    /// Live records, each of them read.
    live_records: Option<u64>,
    unreadable_records: u64,
    /// The first of them.
    unreadable: Vec<Unreadable>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    Damaged,
    NotRead,
}

#[derive(Serialize)]
struct SegmentVerdict {
    file: String,
    status: Status,
    number: Option<u64>,
    first_lsn: Option<u64>,
    /// The last frame that was read and verified.
    last_lsn: Option<u64>,
    frames: u64,
}

#[derive(Serialize)]
struct DamageVerdict {
    file: String,
    position: u64,
    what: String,
    expected: Option<String>,
    found: Option<String>,
}

#[derive(Serialize)]
struct CutShort {
    file: String,
    position: u64,
    torn_tail: Option<TornTail>,
}

#[derive(Serialize)]
struct Unreadable {
    channel: String,
    offset: u64,
    file: String,
    position: u64,
    what: String,
}

/// What was read, as far as it could be.
#[derive(Default)]
struct Seen {
    segments: Vec<SeenSegment>,
    /// Channels in which some record, live or not, cannot be read.
    unreadable: BTreeSet<u32>,
}

struct SeenSegment {
    number: u64,
    path: PathBuf,
    first_lsn: u64,
    last_lsn: u64,
    /// Where that frame lies.
    last_at: u64,
}

impl SeenSegment {
    /// The last frame before the damage; `None` where that is in the first one.
    fn last_before(&self, damage: &Damage) -> Option<u64> {
        let last = match &damage.kind {
            // Frames without operations are read too, and not seen by a visitor.
            DamageKind::Frame { lsn, .. } | DamageKind::Unsealed { lsn, .. } => {
                lsn.saturating_sub(1)
            }
            // The frame contradicts itself or those before it; some of it was seen.
            _ if self.last_at == damage.at => self.last_lsn.saturating_sub(1),
            _ => self.last_lsn,
        };
        (last >= self.first_lsn).then_some(last)
    }
}

impl Visitor for Seen {
    fn operation(&mut self, segment: &Segment, at: u64, lsn: u64, op: &Op<'_>) {
        let number = segment.header.number;
        match self.segments.last_mut() {
            Some(last) if last.number == number => (last.last_lsn, last.last_at) = (lsn, at),
            _ => self.segments.push(SeenSegment {
                number,
                path: segment.path.clone(),
                first_lsn: segment.header.first_lsn,
                last_lsn: lsn,
                last_at: at,
            }),
        }
        self.unreadable.extend(live::unreadable(op));
    }
}

pub(crate) fn run(dir: &Path, json: bool, out: &mut dyn Write) -> Result<Code, Failure> {
    let Reading {
        open,
        visitor,
        found,
    } = source::read::<Seen>(dir);
    let verdict = match found {
        Ok((report, walk)) => Verdict::read(dir, open, &visitor, &report, &walk)?,
        Err(RecoverError::Damage(damage)) => Verdict::damaged(dir, open, &visitor, &damage),
        Err(other) => return Err(explain(other, dir)),
    };
    let code = match verdict.whole {
        true => Code::Good,
        false => Code::Failed,
    };
    let written = if json {
        json_line(out, &verdict)
    } else {
        print(&verdict, out)
    };
    // The exit code is the verdict, also for a reader that went away.
    written.and_then(|()| out.flush()).or_else(quiet)?;
    Ok(code)
}

impl Verdict {
    /// A log that was read to its end.
    fn read(
        dir: &Path,
        open: Open,
        seen: &Seen,
        report: &Report,
        walk: &Walk,
    ) -> Result<Verdict, Failure> {
        let (unreadable_records, unreadable) = unreadable_records(seen, report, walk)?;
        let segments = report.segments.iter().map(|s| SegmentVerdict {
            file: file_name(&s.path),
            status: Status::Ok,
            number: Some(s.number),
            first_lsn: Some(s.first_lsn),
            last_lsn: (s.frames > 0).then_some(s.last_lsn),
            frames: s.frames,
        });
        let cut_short = walk.unsealed.as_ref().map(|unsealed| CutShort {
            file: unsealed.path.to_string_lossy().into_owned(),
            position: unsealed.at,
            torn_tail: unsealed.torn.as_ref().map(TornTail::new),
        });
        Ok(Verdict {
            directory: dir.to_string_lossy().into_owned(),
            open,
            log_id: Some(report.engine_id.clone()),
            whole: unreadable_records == 0,
            segments: segments.collect(),
            damage: None,
            ending: Some(End::new(&report.ending)),
            roll_cut_short: cut_short,
            live_records: Some(report.channels.iter().map(|c| c.count).sum()),
            unreadable_records,
            unreadable,
        })
    }

    /// A log that could be read as far as `seen` got.
    fn damaged(dir: &Path, open: Open, seen: &Seen, damage: &Damage) -> Verdict {
        let segment_dir = Layout::new(dir).segment_dir();
        let mut files: Vec<String> = segment_files(&segment_dir).collect();
        files.sort();
        let damaged = files
            .iter()
            .position(|file| segment_dir.join(file) == damage.path);
        let segment = |(i, file): (usize, &String)| {
            let found = seen
                .segments
                .iter()
                .find(|s| s.path == segment_dir.join(file));
            let status = match (damaged, found) {
                (Some(at), _) if i == at => Status::Damaged,
                // Frames after the damage are not believed, whatever they say.
                (Some(at), _) if i > at => Status::NotRead,
                (_, None) => Status::NotRead,
                (_, Some(_)) => Status::Ok,
            };
            let found = found.filter(|_| status != Status::NotRead);
            let last_lsn = found.and_then(|s| match status {
                Status::Damaged => s.last_before(damage),
                _ => Some(s.last_lsn),
            });
            SegmentVerdict {
                file: file.clone(),
                status,
                number: found.map(|s| s.number),
                first_lsn: found.map(|s| s.first_lsn),
                last_lsn,
                // Frames are numbered without gaps, or reading would have stopped.
                frames: found
                    .zip(last_lsn)
                    .map_or(0, |(s, last)| last + 1 - s.first_lsn),
            }
        };
        Verdict {
            directory: dir.to_string_lossy().into_owned(),
            open,
            log_id: None,
            whole: false,
            segments: files.iter().enumerate().map(segment).collect(),
            damage: Some(DamageVerdict::new(damage)),
            ending: None,
            roll_cut_short: None,
            live_records: None,
            unreadable_records: 0,
            unreadable: Vec::new(),
        }
    }
}

/// The live records that are whole but no messages. Only channels in which there was any such
/// record are read again: in a good log, none.
fn unreadable_records(
    seen: &Seen,
    report: &Report,
    walk: &Walk,
) -> Result<(u64, Vec<Unreadable>), Failure> {
    let (mut count, mut named) = (0, Vec::new());
    for channel in &report.channels {
        if !seen.unreadable.contains(&channel.id) {
            continue;
        }
        live::each(walk, channel.id, 0, &mut |live| {
            let decoded = Body::decode(live.record.body, live.key.unwrap_or_default());
            if let Err(error) = decoded {
                count += 1;
                if named.len() < NAMED_RECORDS {
                    named.push(Unreadable {
                        channel: channel.name.clone(),
                        offset: live.offset,
                        file: live.path.to_string_lossy().into_owned(),
                        position: live.position,
                        what: error.to_string(),
                    });
                }
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok((count, named))
}

impl DamageVerdict {
    fn new(damage: &Damage) -> DamageVerdict {
        let (expected, found) = expected_and_found(&damage.kind).unzip();
        DamageVerdict {
            file: damage.path.to_string_lossy().into_owned(),
            position: damage.at,
            what: damage.kind.to_string(),
            expected,
            found,
        }
    }
}

/// The two values that differ, where damage is that.
fn expected_and_found(kind: &DamageKind) -> Option<(String, String)> {
    let sums = |expected: &u32, found: &u32| (format!("{expected:08x}"), format!("{found:08x}"));
    let numbers = |expected: &u64, found: &u64| (expected.to_string(), found.to_string());
    Some(match kind {
        DamageKind::Header(HeaderError::Checksum { expected, found })
        | DamageKind::Frame {
            error: FrameError::Checksum { expected, found },
            ..
        } => sums(expected, found),
        DamageKind::Frame {
            error: FrameError::Short { needed, found },
            ..
        } => numbers(needed, found),
        DamageKind::ForeignSegment { expected, found } => (expected.clone(), found.clone()),
        DamageKind::Misnamed { name, header } => numbers(name, header),
        DamageKind::Lsn { expected, found }
        | DamageKind::State(StateError::OffsetOutOfOrder {
            expected, found, ..
        }) => numbers(expected, found),
        DamageKind::Unsealed { lsn, next } => numbers(lsn, next),
        _ => return None,
    })
}

fn print(verdict: &Verdict, out: &mut dyn Write) -> std::io::Result<()> {
    let rows: Vec<_> = verdict
        .segments
        .iter()
        .map(|segment| row(verdict, segment))
        .collect();
    table(out, &[], &rows)?;
    if let Some(damage) = &verdict.damage {
        let DamageVerdict {
            file,
            position,
            what,
            ..
        } = damage;
        writeln!(
            out,
            "DAMAGE in {} at {position}: {}",
            escape(file),
            escape(what)
        )?;
        writeln!(out, "{}", read_before(verdict))?;
    }
    for record in &verdict.unreadable {
        let Unreadable {
            channel,
            offset,
            file,
            position,
            what,
        } = record;
        let (file, channel, what) = (escape(file), escape(channel), escape(what));
        writeln!(
            out,
            "UNREADABLE in {file} at {position}: channel {channel}, record {offset}: {what}"
        )?;
    }
    let unnamed = verdict.unreadable_records - verdict.unreadable.len() as u64;
    if unnamed > 0 {
        writeln!(out, "UNREADABLE: {}", counted(unnamed, "more record"))?;
    }
    if let Some(cut) = &verdict.roll_cut_short {
        let CutShort { file, position, .. } = cut;
        writeln!(out, "in {} at {position}: {ROLL_CUT_SHORT}", escape(file))?;
        if let Some(torn) = &cut.torn_tail {
            writeln!(out, "what was written of the seal is {}", torn.sentence())?;
        }
    }
    if let Some(ending) = &verdict.ending {
        writeln!(out, "the log ends {}", ending.sentence())?;
    }
    if verdict.open != Open::No {
        writeln!(out, "{}", escape(&verdict.open.sentence()))?;
    }
    if let (Some(records), true) = (verdict.live_records, verdict.whole) {
        let records = counted(records, "live record");
        writeln!(
            out,
            "whole: every frame verifies, and {records} can be read"
        )?;
    }
    Ok(())
}

fn row(verdict: &Verdict, segment: &SegmentVerdict) -> Vec<String> {
    let torn = match &verdict.ending {
        Some(End::TornTail(torn)) if file_name(Path::new(&torn.file)) == segment.file => {
            format!(", torn tail at {}", torn.position)
        }
        _ => String::new(),
    };
    let status = match (segment.status, &verdict.damage) {
        (Status::Ok, _) => "ok".to_owned(),
        (Status::Damaged, Some(damage)) => format!("DAMAGE at {}", damage.position),
        (Status::Damaged, None) => "DAMAGE".to_owned(),
        (Status::NotRead, _) => "not read".to_owned(),
    };
    let frames = match (segment.first_lsn, segment.last_lsn) {
        (Some(first), Some(last)) => {
            format!("{}: {first} to {last}", counted(segment.frames, "frame"))
        }
        _ => String::new(),
    };
    let before = match segment.status {
        Status::Damaged if !frames.is_empty() => " before it",
        _ => "",
    };
    vec![
        format!("segment {}", escape(&segment.file)),
        status,
        format!("{frames}{before}{torn}"),
    ]
}

/// How far reading got.
fn read_before(verdict: &Verdict) -> String {
    let read = verdict.segments.iter().rev().find_map(|s| s.last_lsn);
    match read {
        Some(last) => format!(
            "read and verified before it: frames up to {last}; nothing after it is believed, and \
             nothing was changed"
        ),
        None => "nothing was read before it, and nothing was changed".to_owned(),
    }
}
