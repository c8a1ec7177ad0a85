//! `summary`: the log as a whole.

use std::io::Write;
use std::path::Path;

use saguin_recovery::{Ending, Report, SegmentReport, Torn, Walk};
use serde::Serialize;

use crate::cli::{Code, Failure};
use crate::source::{Log, Open};
use crate::text::{counted, escape, file_name, json_line, rfc3339, table, time};

#[derive(Serialize)]
struct Summary {
    directory: String,
    log_id: String,
    /// Whether a process has it open; null where that is not known.
    open: Open,
    channels: usize,
    /// Entries of the keyspace: sessions, positions and the like.
    keys: usize,
    holds: Holds,
    last_lsn: u64,
    ending: End,
    roll_cut_short: bool,
    /// The newest checkpoint that holds.
    checkpoint: Option<Checkpoint>,
    /// Files of checkpoints that do not. Nothing is lost by them.
    rejected_checkpoints: Vec<String>,
    /// What the checkpoint or a footer says otherwise than the frames: see `verify`.
    contradiction: Option<String>,
    segments: Vec<Segment>,
    other_files: Vec<String>,
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
    writer: String,
    written_at: Option<String>,
    written_at_ms: u64,
}

/// Records that are held back: kept, and in no channel yet.
#[derive(Serialize)]
struct Holds {
    count: u64,
    /// Their counted size.
    bytes: u64,
}

impl Holds {
    fn new(walk: &Walk) -> Holds {
        let holds = walk.state.holds();
        Holds {
            count: holds.count(),
            bytes: holds.bytes(),
        }
    }
}

/// A checkpoint that holds.
#[derive(Serialize)]
pub(crate) struct Checkpoint {
    pub(crate) file: String,
    /// The frame that was durable when it was written.
    pub(crate) reaches: u64,
}

impl Checkpoint {
    pub(crate) fn of(report: &Report) -> Option<Checkpoint> {
        let (path, reaches) = report.checkpoint.as_ref()?;
        Some(Checkpoint {
            file: path.to_string_lossy().into_owned(),
            reaches: *reaches,
        })
    }
}

/// How the log ends.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum End {
    CleanStop,
    Whole,
    TornTail(TornTail),
}

/// What a crash left behind the last whole frame.
#[derive(Serialize)]
pub(crate) struct TornTail {
    pub(crate) file: String,
    pub(crate) position: u64,
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
}

impl TornTail {
    pub(crate) fn new(torn: &Torn) -> TornTail {
        TornTail {
            file: torn.path.to_string_lossy().into_owned(),
            position: torn.at,
            bytes: torn.bytes,
            frames: torn.frames,
        }
    }

    pub(crate) fn sentence(&self) -> String {
        format!(
            "a torn tail in {} from position {} on: {} and {} in them; this is normal after a crash, \
             nothing in it was acknowledged, and opening the log would drop it",
            escape(&self.file),
            self.position,
            counted(self.bytes, "byte"),
            counted(self.frames, "whole frame")
        )
    }
}

impl End {
    pub(crate) fn new(ending: &Ending) -> End {
        match ending {
            Ending::Whole { clean: true } => End::CleanStop,
            Ending::Whole { clean: false } => End::Whole,
            Ending::Torn(torn) => End::TornTail(TornTail::new(torn)),
        }
    }

    pub(crate) fn sentence(&self) -> String {
        match self {
            End::CleanStop => "with a clean stop".into(),
            End::Whole => "with a whole frame and no clean stop: it is open, or its process was \
                           killed between two frames, or it was copied while open"
                .into(),
            End::TornTail(torn) => format!("with {}", torn.sentence()),
        }
    }
}

/// What a crash in the middle of a roll means to an operator.
pub(crate) const ROLL_CUT_SHORT: &str = "a crash came between making the newest segment and \
    sealing the one before it: nothing is lost by it, and opening the log would write the seal";

pub(crate) fn run(dir: &Path, json: bool, out: &mut dyn Write) -> Result<Code, Failure> {
    let Log { open, report, walk } = Log::read(dir)?;
    let path = |path: &std::path::PathBuf| path.to_string_lossy().into_owned();
    let summary = Summary {
        directory: dir.to_string_lossy().into_owned(),
        open,
        channels: report.channels.len(),
        keys: report.keys,
        holds: Holds::new(&walk),
        last_lsn: report.last_lsn,
        ending: End::new(&report.ending),
        roll_cut_short: report.roll_cut_short,
        segments: report.segments.iter().map(Segment::new).collect(),
        other_files: report.others.iter().map(path).collect(),
        checkpoint: Checkpoint::of(&report),
        rejected_checkpoints: report.rejected.iter().map(|r| path(&r.path)).collect(),
        log_id: report.engine_id,
        contradiction: report.contradiction,
    };
    if json {
        json_line(out, &summary)?;
    } else {
        print(&summary, out)?;
    }
    Ok(Code::Good)
}

impl Segment {
    fn new(report: &SegmentReport) -> Segment {
        Segment {
            number: report.number,
            file: file_name(&report.path),
            first_lsn: report.first_lsn,
            last_lsn: report.last_lsn,
            frames: report.frames,
            operations: report.operations,
            bytes_used: report.end,
            capacity_bytes: report.capacity,
            sealed: report.sealed,
            writer: report.writer.clone(),
            written_at: rfc3339(report.written_at),
            written_at_ms: report.written_at,
        }
    }
}

fn print_checkpoints(summary: &Summary, out: &mut dyn Write) -> std::io::Result<()> {
    match &summary.checkpoint {
        Some(Checkpoint { file, reaches }) => {
            let file = escape(&file_name(Path::new(file)));
            writeln!(out, "checkpoint: {file}, which reaches frame {reaches}")?;
        }
        None => writeln!(out, "checkpoint: none")?,
    }
    for file in &summary.rejected_checkpoints {
        let file = escape(&file_name(Path::new(file)));
        writeln!(out, "checkpoint that does not hold, see verify: {file}")?;
    }
    if let Some(what) = &summary.contradiction {
        writeln!(out, "CONTRADICTION, see verify: {}", escape(what))?;
    }
    Ok(())
}

fn print(summary: &Summary, out: &mut dyn Write) -> std::io::Result<()> {
    let directory = escape(&summary.directory);
    writeln!(out, "log {} in {directory}", summary.log_id)?;
    writeln!(out, "open: {}", escape(&summary.open.sentence()))?;
    writeln!(out, "channels: {}", summary.channels)?;
    writeln!(out, "keys: {}", summary.keys)?;
    let Holds { count, bytes } = summary.holds;
    let held = counted(count, "record");
    writeln!(out, "held back: {held}, {}", counted(bytes, "byte"))?;
    writeln!(out, "last frame: {}", summary.last_lsn)?;
    writeln!(out, "ends: {}", summary.ending.sentence())?;
    if summary.roll_cut_short {
        writeln!(out, "roll cut short: {ROLL_CUT_SHORT}")?;
    }
    print_checkpoints(summary, out)?;
    for file in &summary.other_files {
        writeln!(out, "no part of the log: {}", escape(file))?;
    }
    writeln!(out)?;
    let head = [
        "segment",
        "file",
        "first frame",
        "last frame",
        "frames",
        "bytes used",
        "of",
        "sealed",
        "written by",
        "written at",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for s in &summary.segments {
        rows.push(vec![
            s.number.to_string(),
            escape(&s.file),
            s.first_lsn.to_string(),
            s.last_lsn.to_string(),
            s.frames.to_string(),
            s.bytes_used.to_string(),
            s.capacity_bytes.to_string(),
            if s.sealed { "yes" } else { "no" }.to_owned(),
            escape(&s.writer),
            time(s.written_at_ms),
        ]);
    }
    table(out, &[0, 2, 3, 4, 5, 6], &rows)
}
