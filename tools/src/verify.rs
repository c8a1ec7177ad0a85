//! `verify`: whether every byte is what was written, and where not.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use saguin_log_engine::format::{FrameError, HeaderError, Op};
use saguin_log_engine::state::StateError;
use saguin_log_engine::storage::OsFiles;
use saguin_log_engine::{Layout, Segment};
use saguin_recovery::body::Body;
use saguin_recovery::salvage::{Cause, Salvage, salvage};
use saguin_recovery::{self as recovery, Damage, DamageKind, RecoverError};
use saguin_recovery::{Rejected, Report, Visitor, Walk};
use serde::Serialize;

use crate::cli::{Code, Failure, quiet};
use crate::live;
use crate::losses::Losses;
use crate::segments::FooterState;
use crate::source::{self, Open, Reading, Unread, explain, segment_files};
use crate::summary::{Checkpoint, End, ROLL_CUT_SHORT, TornTail};
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
    /// The newest checkpoint that holds.
    checkpoint: Option<Checkpoint>,
    /// Checkpoints that do not: nothing is lost by them.
    rejected_checkpoints: Vec<RejectedVerdict>,
    /// What the checkpoint or a footer says otherwise than the frames.
    contradiction: Option<String>,
    /// The first damage: what an opening stops at.
    damage: Option<DamageVerdict>,
    /// A start would not come upon it: it lies before the newest checkpoint.
    starts: bool,
    /// Every damaged place that was found, that one too.
    damages: Vec<DamageVerdict>,
    /// What the damage costs; null where there is none, or where nothing can be read at all.
    losses: Option<Losses>,
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
    /// After damage or beside it, and whole on its own.
    Readable,
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
    /// Null where it was not looked at, or the segment is not sealed.
    footer: Option<FooterState>,
    /// Why it does not hold.
    footer_fault: Option<String>,
}

#[derive(Serialize)]
struct RejectedVerdict {
    file: String,
    what: String,
}

#[derive(Serialize)]
struct DamageVerdict {
    file: String,
    position: u64,
    what: String,
    expected: Option<String>,
    found: Option<String>,
    /// What it costs and what it does not, where that is not said by the losses alone.
    meaning: Option<&'static str>,
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
            DamageKind::Short { last, .. } => *last,
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
        Err(Unread::Recover(RecoverError::Damage(damage))) => {
            // Read again, and on past the damage. Where not one segment can be, that says it all.
            let salvaged = salvage(&OsFiles, dir).ok();
            Verdict::damaged(dir, open, &visitor, &damage, salvaged.as_ref())
        }
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
        let segments = report.segments.iter().map(|s| {
            let (footer, footer_fault) = FooterState::of(s);
            SegmentVerdict {
                file: file_name(&s.path),
                status: Status::Ok,
                number: Some(s.number),
                first_lsn: Some(s.first_lsn),
                last_lsn: (s.frames > 0).then_some(s.last_lsn),
                frames: s.frames,
                footer,
                footer_fault,
            }
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
            whole: unreadable_records == 0 && report.contradiction.is_none(),
            segments: segments.collect(),
            checkpoint: Checkpoint::of(report),
            rejected_checkpoints: report.rejected.iter().map(RejectedVerdict::new).collect(),
            contradiction: report.contradiction.clone(),
            damage: None,
            starts: true,
            damages: Vec::new(),
            losses: None,
            ending: Some(End::new(&report.ending)),
            roll_cut_short: cut_short,
            live_records: Some(report.channels.iter().map(|c| c.count).sum()),
            unreadable_records,
            unreadable,
        })
    }

    /// A log that could be read as far as `seen` got.
    fn damaged(
        dir: &Path,
        open: Open,
        seen: &Seen,
        damage: &Damage,
        salvaged: Option<&Salvage>,
    ) -> Verdict {
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
                (Some(at), Some(_)) if i < at => Status::Ok,
                (None, Some(_)) => Status::Ok,
                _ => return beside(&segment_dir.join(file), salvaged),
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
                footer: None,
                footer_fault: None,
            }
        };
        Verdict {
            directory: dir.to_string_lossy().into_owned(),
            open,
            log_id: None,
            whole: false,
            segments: files.iter().enumerate().map(segment).collect(),
            checkpoint: salvaged
                .and_then(|s| s.checkpoint.as_ref())
                .map(|c| Checkpoint {
                    file: c.path.to_string_lossy().into_owned(),
                    reaches: c.trailer.reaches,
                }),
            rejected_checkpoints: salvaged
                .iter()
                .flat_map(|s| &s.rejected)
                .map(RejectedVerdict::new)
                .collect(),
            contradiction: None,
            damage: Some(DamageVerdict::new(damage)),
            starts: starts(dir, damage),
            damages: damages(damage, salvaged),
            losses: salvaged.map(Losses::new),
            ending: None,
            roll_cut_short: None,
            live_records: None,
            unreadable_records: 0,
            unreadable: Vec::new(),
        }
    }
}

/// Whether the broker would start all the same, because it reads from the newest checkpoint on.
fn starts(dir: &Path, damage: &Damage) -> bool {
    let layout = Layout::new(dir);
    let from = recovery::Reading::FromCheckpoint;
    // Which log this is, is asked after the walk.
    !matches!(damage.kind, DamageKind::ForeignSegment { .. })
        && recovery::walk(&OsFiles, &layout, false, from, &mut ()).is_ok()
}

/// Every damaged place: the one that stops an opening, and those that were found reading on.
fn damages(first: &Damage, salvaged: Option<&Salvage>) -> Vec<DamageVerdict> {
    let mut all: Vec<_> = salvaged
        .iter()
        .flat_map(|s| &s.findings)
        .map(|finding| {
            let (values, meaning) = match &finding.cause {
                Cause::Damage(kind) => (expected_and_found(kind), meaning(kind)),
                Cause::Unreadable(_) => (None, None),
            };
            let (expected, found) = values.unzip();
            DamageVerdict {
                file: finding.path.to_string_lossy().into_owned(),
                position: finding.at,
                what: finding.cause.to_string(),
                expected,
                found,
                meaning,
            }
        })
        .collect();
    let first = DamageVerdict::new(first);
    let same = |d: &DamageVerdict| (&d.file, d.position) == (&first.file, first.position);
    if !all.iter().any(same) {
        all.insert(0, first);
    }
    all
}

/// A segment after the damage, or beside it: as much of it as vouches for itself.
fn beside(path: &Path, salvaged: Option<&Salvage>) -> SegmentVerdict {
    let file = file_name(path);
    let found = salvaged.and_then(|s| s.segments.iter().find(|s| s.segment.path == path));
    let damaged = salvaged.is_some_and(|s| s.findings.iter().any(|f| f.path == path));
    let Some(found) = found else {
        return SegmentVerdict {
            file,
            status: if damaged {
                Status::Damaged
            } else {
                Status::NotRead
            },
            number: None,
            first_lsn: None,
            last_lsn: None,
            frames: 0,
            footer: None,
            footer_fault: None,
        };
    };
    let (first_lsn, last_lsn) = found.lsns.unzip();
    SegmentVerdict {
        file,
        status: if damaged {
            Status::Damaged
        } else {
            Status::Readable
        },
        number: Some(found.segment.header.number),
        first_lsn,
        last_lsn,
        frames: found.frames,
        footer: None,
        footer_fault: None,
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

impl RejectedVerdict {
    fn new(rejected: &Rejected) -> RejectedVerdict {
        RejectedVerdict {
            file: rejected.path.to_string_lossy().into_owned(),
            what: rejected.why.clone(),
        }
    }
}

/// What damage costs that has to do with more than frames.
fn meaning(kind: &DamageKind) -> Option<&'static str> {
    match kind {
        DamageKind::Short { .. } => Some(
            "the frames between were acknowledged and are gone, with whatever came after them; \
             everything before them is safe. `repair` makes a log of that and discards the claim",
        ),
        DamageKind::Checkpoint(_) => Some(
            "nothing is lost: the frames say everything themselves. `repair` makes a log of them, \
             without checkpoints",
        ),
        DamageKind::HoldsGone { .. } => Some(
            "those records had not come into a channel yet, and which they were is not known; \
             everything else is safe. `repair` makes a log of that",
        ),
        DamageKind::OnlyCheckpoints => Some(
            "every record is lost with the segments: a checkpoint says where they lay, and holds none",
        ),
        _ => None,
    }
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
            meaning: meaning(&damage.kind),
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
        DamageKind::Short { reaches, last, .. } => numbers(reaches, last),
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
    print_checkpoints(verdict, out)?;
    for damage in &verdict.damages {
        let DamageVerdict {
            file,
            position,
            what,
            meaning,
            ..
        } = damage;
        let (file, what) = (escape(file), escape(what));
        writeln!(out, "DAMAGE in {file} at {position}: {what}")?;
        if let Some(meaning) = meaning {
            writeln!(out, "{meaning}")?;
        }
    }
    if verdict.damage.is_some() {
        writeln!(out, "{}", read_before(verdict))?;
    }
    if verdict.damage.is_some() && verdict.starts {
        writeln!(
            out,
            "a start reads from the newest checkpoint on and would not stop at this: everything else would \
             be served, and what is damaged refused once it is read"
        )?;
    }
    if let Some(losses) = &verdict.losses {
        for line in losses.sentences(false) {
            writeln!(out, "{}", escape(&line))?;
        }
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

fn print_checkpoints(verdict: &Verdict, out: &mut dyn Write) -> std::io::Result<()> {
    for segment in &verdict.segments {
        if let Some(why) = &segment.footer_fault {
            let (file, why) = (escape(&segment.file), escape(why));
            writeln!(
                out,
                "the footer of segment {file} does not hold: {why}; nothing is lost by it, it is written \
                 again from the frames"
            )?;
        }
    }
    if let Some(Checkpoint { file, reaches }) = &verdict.checkpoint {
        let file = escape(&file_name(Path::new(file)));
        writeln!(out, "checkpoint {file}  holds, reaches frame {reaches}")?;
    }
    for RejectedVerdict { file, what } in &verdict.rejected_checkpoints {
        let (file, what) = (escape(&file_name(Path::new(file))), escape(what));
        writeln!(
            out,
            "checkpoint {file}  does not hold: {what}; nothing is lost by it, the log is read without it"
        )?;
    }
    if let Some(what) = &verdict.contradiction {
        writeln!(
            out,
            "CONTRADICTION in {}: the checkpoint or a footer says otherwise than the frames, though its \
             checksum holds. That is a defect of the build that wrote it. The frames count, every one of \
             them verifies and nothing is lost; but a start would believe the checkpoint. Do not start \
             on it: `repair` makes a log of the frames, without checkpoints",
            escape(what)
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
    let named = |d: &&DamageVerdict| file_name(Path::new(&d.file)) == segment.file;
    let status = match (segment.status, verdict.damages.iter().find(named)) {
        (Status::Ok, _) => "ok".to_owned(),
        (Status::Damaged, Some(damage)) => format!("DAMAGE at {}", damage.position),
        (Status::Damaged, None) => "DAMAGE".to_owned(),
        (Status::Readable, _) => "readable on its own".to_owned(),
        (Status::NotRead, _) => "not read".to_owned(),
    };
    let frames = match (segment.first_lsn, segment.last_lsn) {
        (Some(first), Some(last)) => {
            format!("{}: {first} to {last}", counted(segment.frames, "frame"))
        }
        _ => String::new(),
    };
    let first = verdict.damage.as_ref();
    let first = first.is_some_and(|d| file_name(Path::new(&d.file)) == segment.file);
    let before = match segment.status {
        Status::Damaged if !frames.is_empty() && first => " before it",
        Status::Damaged if !frames.is_empty() => " in it verify",
        _ => "",
    };
    let footer = FooterState::words(segment.footer);
    vec![
        format!("segment {}", escape(&segment.file)),
        status,
        format!("{frames}{before}{footer}{torn}"),
    ]
}

/// How far reading got.
fn read_before(verdict: &Verdict) -> String {
    let first = verdict.damage.as_ref();
    let first = |s: &SegmentVerdict| first.is_some_and(|d| file_name(Path::new(&d.file)) == s.file);
    let before = verdict
        .segments
        .iter()
        .filter(|s| s.status == Status::Ok || first(s));
    let opened = match verdict.starts {
        true => "",
        false => "nothing after it is opened, and ",
    };
    match before.filter_map(|s| s.last_lsn).max() {
        Some(last) => {
            format!("SAFE before the first of it: frames up to {last}; {opened}nothing was changed")
        }
        None => "nothing was read before the first of it, and nothing was changed".to_owned(),
    }
}
