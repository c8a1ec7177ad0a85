//! `repair`: makes a damaged log open again, giving up as little as it can, and never without a copy.
//!
//! Without `--yes` it only says what it would do. With it, the order is: lock, read, copy, sync the
//! copy, and only then change anything.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use saguin_log_engine::Layout;
use saguin_log_engine::storage::{FileSystem, OsFiles};
use saguin_recovery::salvage::{Salvage, salvage};
use saguin_recovery::{Damage, DamageKind, RecoverError, inspect, rebuild};
use serde::Serialize;

use crate::cli::{Code, Failure};
use crate::losses::Losses;
use crate::source::{self, Open, Reading, Unread, explain};
use crate::text::{counted, escape, json_line};

const RESTORE: &str = "restore the directory from a backup or a snapshot";

#[derive(Serialize)]
struct Outcome {
    directory: String,
    /// Nothing is damaged.
    whole: bool,
    /// Something was changed.
    repaired: bool,
    /// The copy of the directory as it was.
    copy: Option<String>,
    losses: Option<Losses>,
    /// Of the log as it is now.
    segments: Option<usize>,
    live_records: Option<u64>,
    /// Small values that were left out, because they contradict what is left.
    keys_left_out: u64,
}

pub(crate) fn run(dir: &Path, yes: bool, json: bool, out: &mut dyn Write) -> Result<Code, Failure> {
    let lock_path = Layout::new(dir).lock_path();
    let locked = || {
        Failure::Recover(RecoverError::Locked {
            path: lock_path.clone(),
        })
    };
    if Open::probe(dir) == Open::Yes {
        return Err(locked());
    }
    // Read before the lock is taken: taking it makes a file, and nothing is made where there is no
    // damage. Taken, it is read again.
    let Some(damage) = damage(dir)? else {
        return whole(dir, json, out);
    };
    refuse(&damage)?;
    if !yes {
        let salvage = read(dir, &damage)?;
        return preview(dir, &damage, &salvage, json, out);
    }
    let lock = OsFiles.lock(&lock_path);
    let lock = lock.map_err(|error| io_failure("lock", &lock_path, error))?;
    let held = lock.ok_or_else(locked)?;
    let salvage = read(dir, &damage)?;
    let losses = Losses::new(&salvage).stopped_by(&damage);
    let copy = copy_name(dir)?;
    copy_directory(dir, &copy)?;
    let rebuilt = rebuild(&OsFiles, &Layout::new(dir), &salvage).map_err(|error| {
        let (dir, copy) = (dir.display(), copy.display());
        Failure::Read(format!(
            "{error}; {dir} is as the copy {copy} is, or asks for another repair"
        ))
    })?;
    // The same reading the broker does: nothing is called repaired that would not open.
    let (report, _) = inspect(&OsFiles, dir, &mut ())?;
    drop(held);
    let outcome = Outcome {
        directory: dir.to_string_lossy().into_owned(),
        whole: true,
        repaired: true,
        copy: Some(copy.to_string_lossy().into_owned()),
        losses: Some(losses),
        segments: Some(report.segments.len()),
        live_records: Some(report.channels.iter().map(|c| c.count).sum()),
        keys_left_out: rebuilt.refused_keys.len() as u64,
    };
    if json {
        json_line(out, &outcome)?;
    } else {
        print(&outcome, out)?;
    }
    Ok(Code::Good)
}

/// What is wrong with the directory; `None` where nothing is.
fn damage(dir: &Path) -> Result<Option<Damage>, Failure> {
    let Reading { found, .. } = source::read::<()>(dir);
    match found {
        // The frames are whole. But an opening believes the checkpoint as far as it can.
        Ok((report, _)) => Ok(report.contradiction.map(|why| Damage {
            path: Layout::new(dir).checkpoint_dir(),
            at: 0,
            kind: DamageKind::Checkpoint(why),
        })),
        Err(Unread::Recover(RecoverError::Damage(damage))) => Ok(Some(damage)),
        Err(other) => Err(explain(other, dir)),
    }
}

/// Damage that no repair can do anything about.
fn refuse(damage: &Damage) -> Result<(), Failure> {
    match &damage.kind {
        DamageKind::SegmentsGone { .. } | DamageKind::OnlyCheckpoints => Err(Failure::Read(
            format!("{damage}; there is nothing left to repair: {RESTORE}"),
        )),
        _ => Ok(()),
    }
}

fn read(dir: &Path, damage: &Damage) -> Result<Salvage, Failure> {
    let salvage = salvage(&OsFiles, dir).map_err(|error| match error {
        RecoverError::NoLog { .. } => Failure::Read(format!(
            "{damage}; no segment here can be read at all, so there is nothing to repair: {RESTORE}"
        )),
        other => Failure::Recover(other),
    })?;
    if let Some(finding) = salvage.newer() {
        return Err(Failure::Read(format!(
            "{} at {}: {}; it may be whole to the build that wrote it, so it is not repaired: use \
             that build",
            finding.path.display(),
            finding.at,
            finding.cause
        )));
    }
    if salvage.frames == 0 {
        return Err(Failure::Read(format!(
            "{damage}; no frame here can be read, so there is nothing to repair: {RESTORE}"
        )));
    }
    let named = named_id(dir);
    let found: String = salvage
        .engine_id
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    if let Some(named) = named
        && named != found
    {
        return Err(Failure::Read(format!(
            "the lock file says that this directory is log {named}, and the segments in it are of log \
             {found}; which of them belongs here cannot be told: {RESTORE}"
        )));
    }
    Ok(salvage)
}

/// The id in the lock file, if it holds one.
fn named_id(dir: &Path) -> Option<String> {
    let text = fs::read_to_string(Layout::new(dir).lock_path()).ok()?;
    let id = text.trim_end();
    let is_id = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

fn whole(dir: &Path, json: bool, out: &mut dyn Write) -> Result<Code, Failure> {
    if json {
        let outcome = Outcome {
            directory: dir.to_string_lossy().into_owned(),
            whole: true,
            repaired: false,
            copy: None,
            losses: None,
            segments: None,
            live_records: None,
            keys_left_out: 0,
        };
        json_line(out, &outcome)?;
    } else {
        writeln!(
            out,
            "nothing to repair: the log is whole, and a torn tail or a roll cut short is put right when \
             it is opened. Nothing was changed"
        )?;
    }
    Ok(Code::Good)
}

fn preview(
    dir: &Path,
    damage: &Damage,
    salvage: &Salvage,
    json: bool,
    out: &mut dyn Write,
) -> Result<Code, Failure> {
    let losses = Losses::new(salvage).stopped_by(damage);
    if json {
        let outcome = Outcome {
            directory: dir.to_string_lossy().into_owned(),
            whole: false,
            repaired: false,
            copy: None,
            losses: Some(losses),
            segments: None,
            live_records: None,
            keys_left_out: 0,
        };
        json_line(out, &outcome)?;
        return Ok(Code::Failed);
    }
    print_losses(&losses, out)?;
    writeln!(
        out,
        "nothing was changed. A backup of the damaged file loses nothing; where there is none, `repair \
         --yes` copies the whole directory beside itself and then makes a log of what can be read"
    )?;
    Ok(Code::Failed)
}

fn print_losses(losses: &Losses, out: &mut dyn Write) -> io::Result<()> {
    for place in &losses.places {
        let (file, at, what) = (escape(&place.file), place.position, escape(&place.what));
        writeln!(out, "DAMAGE in {file} at {at}: {what}")?;
    }
    for line in losses.sentences(true) {
        writeln!(out, "{}", escape(&line))?;
    }
    Ok(())
}

fn print(outcome: &Outcome, out: &mut dyn Write) -> io::Result<()> {
    if let Some(losses) = &outcome.losses {
        print_losses(losses, out)?;
    }
    if let Some(copy) = &outcome.copy {
        writeln!(out, "the directory as it was is in {}", escape(copy))?;
    }
    if outcome.keys_left_out > 0 {
        let keys = counted(outcome.keys_left_out, "small value");
        writeln!(out, "{keys} contradict what is left and were left out")?;
    }
    let records = counted(outcome.live_records.unwrap_or(0), "live record");
    let segments = counted(outcome.segments.unwrap_or(0) as u64, "new segment");
    writeln!(out, "repaired: the log opens, with {records} in {segments}")
}

/// Beside the directory, and never a name that is taken.
fn copy_name(dir: &Path) -> Result<PathBuf, Failure> {
    let whole = dir
        .canonicalize()
        .map_err(|error| io_failure("find", dir, error))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs());
    let Some(name) = whole.file_name() else {
        return Err(Failure::Usage(format!(
            "{} has no name, so no copy can be made beside it",
            whole.display()
        )));
    };
    let mut name = name.to_os_string();
    name.push(format!(".before-repair-{seconds}"));
    Ok(whole.with_file_name(name))
}

/// Copies the whole directory, durably.
fn copy_directory(dir: &Path, copy: &Path) -> Result<(), Failure> {
    let bytes = size_of(dir).map_err(|error| io_failure("measure", dir, error))?;
    let above = copy.parent().unwrap_or(Path::new("."));
    let free = OsFiles.available_space(above);
    let free = free.map_err(|error| io_failure("measure the room in", above, error))?;
    // The copy, and the new segments beside the old ones.
    let needed = bytes.saturating_mul(2);
    if free < needed {
        return Err(Failure::Read(format!(
            "{} has {free} bytes free, and the copy and the repair take up to {needed}; nothing was \
             changed",
            above.display()
        )));
    }
    if copy.exists() {
        return Err(Failure::Read(format!(
            "{} exists already; nothing was changed, try again in a second",
            copy.display()
        )));
    }
    copy_tree(dir, copy).map_err(|error| io_failure("make the copy", copy, error))?;
    sync_dir(above).map_err(|error| io_failure("sync", above, error))
}

fn size_of(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += match meta.is_dir() {
            true => size_of(&entry.path())?,
            false => meta.len(),
        };
    }
    Ok(bytes)
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_tree(&from, &to)?;
        } else if kind.is_file() {
            let copied = fs::copy(&from, &to)?;
            if copied != entry.metadata()?.len() {
                let why = format!("{} was copied only in part", from.display());
                return Err(io::Error::other(why));
            }
            fs::File::open(&to)?.sync_all()?;
        } else {
            // A link or a device is no part of a log, and a copy without it is not complete.
            let why = format!("{} is neither a file nor a directory", from.display());
            return Err(io::Error::other(why));
        }
    }
    sync_dir(to)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

fn io_failure(doing: &'static str, path: &Path, error: io::Error) -> Failure {
    let path = path.to_owned();
    Failure::Recover(RecoverError::Io { doing, path, error })
}
