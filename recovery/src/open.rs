//! Opening a log, and looking at one.

use std::io;
use std::path::Path;
use std::sync::Arc;

use saguin_log_engine::breakage::{self, Breakage};
use saguin_log_engine::format::{FLAG_SEAL, FrameBuilder, Op};
use saguin_log_engine::storage::{FileSystem, read_full_at};
use saguin_log_engine::{Engine, Layout, Options, Recovered, Segment, create_log};

use crate::checkpoint;
use crate::error::{Damage, DamageKind, RecoverError, io as io_error};
use crate::report::Report;
use crate::tail::Torn;
use crate::walk::{Ending, Reading, Unsealed, Visitor, Walk, walk};

/// Opens the log in `dir`, making a new one where there never was one.
///
/// It repairs what a crash leaves and nothing else: it zeroes a torn tail, writes the seal of a
/// roll that was cut short, has files that had not become segments removed, and skips to the ceiling in
/// channels whose newest offsets may be lost. Each is idempotent, so being cut in here and starting
/// again gives the same log.
///
/// # Errors
/// [`RecoverError`]; nothing is changed where data is damaged.
pub fn recover(
    fs: &Arc<dyn FileSystem>,
    dir: &Path,
    options: &Options,
) -> Result<(Engine, Report), RecoverError> {
    options.check().map_err(RecoverError::Bound)?;
    let layout = Layout::new(dir);
    fs.create_dir_all(&layout.segment_dir())
        .map_err(io_error("make", dir))?;
    let lock_path = layout.lock_path();
    let lock = fs.lock(&lock_path).map_err(io_error("lock", &lock_path))?;
    let lock = lock.ok_or_else(|| RecoverError::Locked {
        path: lock_path.clone(),
    })?;
    let known = read_identity(&**fs, &layout)?.filter(|_| !breakage::is(Breakage::StartEmpty));
    if known.is_none() && !breakage::is(Breakage::SkipParentSync) {
        sync_above(&**fs, layout.root())?;
    }
    let found = match walk(&**fs, &layout, true, Reading::FromCheckpoint, &mut ()) {
        Err(RecoverError::NoLog { .. }) => {
            // An unreadable or emptied directory must never look like a fresh one.
            if let Some(id) = known {
                let kind = DamageKind::SegmentsGone { id };
                return Err(Damage::new(&lock_path, 0, kind).into());
            }
            if let Some(path) = checkpoint::list(&**fs, &layout)?.any()
                && !breakage::is(Breakage::StartEmpty)
            {
                return Err(Damage::new(path, 0, DamageKind::OnlyCheckpoints).into());
            }
            let mut id = [0u8; 16];
            fs.random(&mut id)
                .map_err(io_error("choose an id for", dir))?;
            create_log(&**fs, &layout, id, options.ordinary_segment_bytes())
                .map_err(RecoverError::Create)?;
            walk(&**fs, &layout, true, Reading::FromCheckpoint, &mut ())?
        }
        other => other?,
    };
    let report = Report::new(&found);
    if let Some(expected) = &known
        && *expected != report.engine_id
    {
        let kind = DamageKind::ForeignSegment {
            expected: expected.clone(),
            found: report.engine_id,
        };
        let path = found
            .segments
            .first()
            .map_or(lock_path.as_path(), |s| s.path.as_path());
        return Err(Damage::new(path, 0, kind).into());
    }
    repair(&**fs, &layout, &found)?;
    // Last: where the id can be read, segments that are not there are segments that are missing. And
    // each time: one that could be read may be only in the page cache.
    write_identity(&**fs, &layout, &report.engine_id)?;
    let Walk {
        state,
        segments,
        end,
        last_lsn,
        checkpoint,
        others,
        ..
    } = found;
    let recovered = Recovered {
        fs: fs.clone(),
        layout,
        lock,
        state,
        segments,
        end,
        last_lsn,
        leftovers: others
            .into_iter()
            .filter(|path| is_leftover(path))
            .collect(),
        checkpoint: checkpoint.map(|c| c.summary()),
    };
    let engine = Engine::resume(recovered, options).map_err(io_error("start the log in", dir))?;
    Ok((engine, report))
}

/// Reads the log in `dir` without changing or locking anything, showing every operation to
/// `visitor`. A directory that is open elsewhere may be read too: its last frame can then look torn
/// because it is being written.
///
/// # Errors
/// [`RecoverError`].
pub fn inspect(
    fs: &dyn FileSystem,
    dir: &Path,
    visitor: &mut dyn Visitor,
) -> Result<(Report, Walk), RecoverError> {
    let layout = Layout::new(dir);
    let found = match walk(fs, &layout, false, Reading::Whole, visitor) {
        Err(RecoverError::NoLog { path }) => {
            let Some(id) = read_identity(fs, &layout)? else {
                return Err(match checkpoint::list(fs, &layout)?.any() {
                    Some(path) => Damage::new(path, 0, DamageKind::OnlyCheckpoints).into(),
                    None => RecoverError::NoLog { path },
                });
            };
            let kind = DamageKind::SegmentsGone { id };
            return Err(Damage::new(&layout.lock_path(), 0, kind).into());
        }
        other => other?,
    };
    let mut report = Report::new(&found);
    report.contradiction = contradiction(fs, &layout, &found);
    if let Some(expected) = read_identity(fs, &layout)?
        && expected != report.engine_id
    {
        let kind = DamageKind::ForeignSegment {
            expected,
            found: report.engine_id,
        };
        return Err(Damage::new(&layout.segment_dir(), 0, kind).into());
    }
    Ok((report, found))
}

/// Reads the log once more, from its newest checkpoint on, and compares: the footers and the
/// checkpoint must say what the frames say.
fn contradiction(fs: &dyn FileSystem, layout: &Layout, whole: &Walk) -> Option<String> {
    let checkpoint = whole.checkpoint.as_ref()?;
    let Ok(fast) = walk(fs, layout, false, Reading::FromCheckpoint, &mut ()) else {
        // The whole log was read a moment ago: it is being written to.
        return None;
    };
    let same = fast.checkpoint.as_ref().map(|c| &c.path) == Some(&checkpoint.path);
    if !same || fast.last_lsn != whole.last_lsn {
        return None;
    }
    let what = match fast.rejected.iter().find(|r| r.path == checkpoint.path) {
        Some(rejected) => rejected.why.clone(),
        None => fast.state.difference(&whole.state)?,
    };
    Some(format!("{}: {what}", checkpoint.path.display()))
}

/// Makes the directory itself durable, which may have been made just now or by an attempt that was
/// cut short: a log is only as durable as the names of the directories above it. Done before the
/// log's id is written: where the id can be read, this was done.
fn sync_above(fs: &dyn FileSystem, root: &Path) -> Result<(), RecoverError> {
    fs.sync_dir(root).map_err(io_error("sync", root))?;
    for dir in root.ancestors().skip(1) {
        let dir = if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        };
        match fs.sync_dir(dir) {
            // Nothing of ours is new in a directory that we may not read or write.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ReadOnlyFilesystem
                        | io::ErrorKind::InvalidInput
                        | io::ErrorKind::Unsupported
                ) => {}
            synced => synced.map_err(io_error("sync", dir))?,
        }
    }
    Ok(())
}

/// Bytes of an id in hexadecimal.
const IDENTITY_BYTES: usize = 32;

/// The id in the lock file: written once the segments are durable.
pub(crate) fn read_identity(
    fs: &dyn FileSystem,
    layout: &Layout,
) -> Result<Option<String>, RecoverError> {
    let path = layout.lock_path();
    let file = match fs.open(&path, false) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(io_error("open", &path))?,
    };
    let mut bytes = [0u8; IDENTITY_BYTES];
    let read = read_full_at(&*file, &mut bytes, 0).map_err(io_error("read", &path))?;
    // Cut short by a crash while it was first written: the segments say who they are.
    let whole = read == IDENTITY_BYTES && bytes.iter().all(u8::is_ascii_hexdigit);
    Ok(whole.then(|| String::from_utf8_lossy(&bytes).into_owned()))
}

fn write_identity(fs: &dyn FileSystem, layout: &Layout, id: &str) -> Result<(), RecoverError> {
    let path = layout.lock_path();
    let file = fs.open(&path, true).map_err(io_error("open", &path))?;
    file.write_all_at(format!("{id}\n").as_bytes(), 0)
        .map_err(io_error("write", &path))?;
    file.sync_data().map_err(io_error("sync", &path))
}

/// Makes the end of the log one that can be written after.
fn repair(fs: &dyn FileSystem, layout: &Layout, found: &Walk) -> Result<(), RecoverError> {
    let Some(last) = found.segments.last() else {
        return Ok(());
    };
    let previous = found.segments.iter().nth_back(1);
    if !breakage::is(Breakage::SkipRecoverySync) {
        make_durable(fs, layout, found)?;
    }
    if let (Some(Unsealed { at, torn, .. }), Some(previous)) = (&found.unsealed, previous) {
        if let Some(torn) = torn {
            zero(previous, torn)?;
        }
        seal(previous, last, *at)?;
        let _ = previous.seal.set(*at);
        tracing::warn!(path = %previous.path.display(), at, "sealed a segment whose seal a crash cut off");
    }
    if let Ending::Torn(torn) = &found.ending {
        zero(last, torn)?;
        tracing::warn!(
            path = %torn.path.display(),
            at = torn.at,
            bytes = torn.bytes,
            frames = torn.frames,
            "dropped a torn tail; nothing in it was acknowledged as durable"
        );
    }
    for rejected in &found.rejected {
        tracing::warn!(path = %rejected.path.display(), why = rejected.why, "this checkpoint does not hold; the log was read without it");
    }
    // The log was synced above, so what says that they are dead is durable before they go.
    for path in &found.dead {
        fs.remove(path).map_err(io_error("remove", path))?;
    }
    for path in &found.others {
        if !is_leftover(path) {
            tracing::warn!(path = %path.display(), "this file is no part of the log; it is left alone");
        }
    }
    Ok(())
}

/// A file that had not become a segment or a checkpoint; whatever it holds counts for nothing.
fn is_leftover(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "tmp")
}

/// Makes durable what was read, before anything builds on it or claims that it is.
///
/// It may be only in the page cache, left there by a process that died between a write and its sync
/// or between a rename and the directory's. After a sync that *failed* the cache may even show what
/// the system has given up writing, and a further sync would succeed without it: so frames that
/// nothing proves durable are written again, in their place, and only then synced. Older segments
/// need none of this: the roll after them made them durable.
fn make_durable(fs: &dyn FileSystem, layout: &Layout, found: &Walk) -> Result<(), RecoverError> {
    let dir = layout.segment_dir();
    for segment in found.segments.iter().rev().take(2).rev() {
        let path = &segment.path;
        for frame in &found.unproven {
            if frame.segment == segment.header.number && !breakage::is(Breakage::BelievePageCache) {
                // It was read and verified a moment ago: its length lies within the file.
                let mut bytes = vec![0u8; frame.len as usize];
                let read = read_full_at(&*segment.file, &mut bytes, frame.at);
                let read = read.map_err(io_error("read", path))?;
                segment
                    .file
                    .write_all_at(&bytes[..read], frame.at)
                    .map_err(io_error("write again what was in", path))?;
            }
        }
        segment.file.sync_data().map_err(io_error("sync", path))?;
    }
    fs.sync_dir(&dir).map_err(io_error("sync", &dir))
}

/// Zeroes a torn tail, so that no byte of it can ever be part of a later frame's neighbourhood.
fn zero(segment: &Segment, torn: &Torn) -> Result<(), RecoverError> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let path = &segment.path;
    let (mut at, end) = (torn.at, torn.at + torn.bytes);
    while at < end {
        let n = (end - at).min(ZEROS.len() as u64) as usize;
        segment
            .file
            .write_all_at(&ZEROS[..n], at)
            .map_err(io_error("zero", path))?;
        at += n as u64;
    }
    segment.file.sync_data().map_err(io_error("sync", path))
}

fn seal(previous: &Segment, last: &Segment, at: u64) -> Result<(), RecoverError> {
    let lsn = last.header.first_lsn - 1;
    let mut frame = FrameBuilder::default();
    frame.clear();
    frame.push(&Op::Seal {
        next_segment: last.header.number,
    });
    let bytes = frame.finish(lsn, lsn - 1, FLAG_SEAL, previous.header.salt);
    let path = &previous.path;
    previous
        .file
        .write_all_at(bytes, at)
        .map_err(io_error("seal", path))?;
    previous.file.sync_data().map_err(io_error("sync", path))
}
