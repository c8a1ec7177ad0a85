//! Bits that flip, frames that land in another's place, files that go: what no accident of writing
//! does. Then the answer is damage, named and with nothing changed, or everything that must be
//! there. Never less in silence.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use saguin_log_engine::format::{SEGMENT_HEADER_BYTES, SegmentHeader, decode_frame};
use saguin_recovery::{Ending, RecoverError, Report, SegmentReport, inspect};

use super::kept::Accident;
use super::run::{Checked, DIR, Run, broken};
use super::view::view;

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What was done to which file.
#[derive(Debug)]
struct Tampered {
    path: PathBuf,
    /// The byte that was changed, where it was one.
    at: Option<u64>,
    what: String,
}

/// Changes one thing in a log that nobody has open, sees what recovery makes of it, and puts it
/// right again where it was refused.
pub(super) fn try_one(run: &mut Run) -> Checked {
    let whole = run.disk.files();
    let Some((tampered, files)) = choose(run, &whole) else {
        return Ok(());
    };
    run.note(&format!(
        "tamper: {} {}",
        tampered.what,
        tampered.path.display()
    ));
    run.counts.tampered += 1;
    replace(run, &whole, &files);
    let before = run.disk.operations();
    let inspected = inspect(&run.disk.process(), Path::new(DIR), &mut ());
    if run.disk.operations() != before {
        return broken("inspecting changes nothing", "it changed something");
    }
    let inspected_damage = match &inspected {
        Err(RecoverError::Damage(damage)) => Some(damage.clone()),
        _ => None,
    };
    match run.recover() {
        Err(RecoverError::Damage(damage)) => {
            run.counts.damage_named += 1;
            // Not the sums it names: headers say when they were written, which is not the run's.
            run.note(&format!(
                "named: {} at {}",
                damage.path.display(),
                damage.at
            ));
            let after = run.disk.files();
            for (path, bytes) in &files {
                if after.get(path) != Some(bytes) {
                    return broken(
                        "a damaged log is left as it is",
                        format!("{} was changed", path.display()),
                    );
                }
            }
            if inspected_damage.is_none() {
                return broken(
                    format!("inspecting finds what opening finds: {damage}"),
                    format!("{:?}", inspected.map(|found| found.0)),
                );
            }
            replace(run, &after, &whole);
            run.disk.next_process();
            Ok(())
        }
        Err(error) => broken("damage named, or everything", error.to_string()),
        Ok((engine, report)) if let Some(damage) = inspected_damage => {
            let unread = |s: &SegmentReport| !s.read && s.path == damage.path;
            if !report.segments.iter().any(unread) {
                return broken(
                    "opening finds what inspecting finds, in what it reads",
                    format!("opened; inspecting: {damage}"),
                );
            }
            // Where a checkpoint spoke for it, whoever asks for it is told.
            match view(&engine) {
                Err(why) => run.note(&format!("named when it is read: {why}")),
                Ok(seen) if run.kept.follows(&seen, Accident::Fair).is_some() => {}
                Ok(_) => {
                    return broken(
                        "an error where damage is read",
                        format!("something else was shown; inspecting: {damage}"),
                    );
                }
            }
            run.counts.damage_named += 1;
            drop(engine);
            replace(run, &run.disk.files(), &whole);
            run.disk.next_process();
            Ok(())
        }
        Ok((engine, report)) => {
            let seen = view(&engine);
            let seen = seen.or_else(|why| broken("everything recovered can be read", why))?;
            run.tampered.insert(tampered.path.clone());
            // The last frame has no witness yet: then damage to it is a torn tail, and reported.
            let mut accident = Accident::Fair;
            if torn_there(&report, &tampered) {
                run.kept.damaged(report.last_lsn);
                if run.kept.follows(&seen, accident).is_none() {
                    run.note("the last frames, without a witness, read as torn");
                    accident = Accident::Damage;
                }
            }
            run.opened(engine, &report, accident)
        }
    }
}

fn torn_there(report: &Report, tampered: &Tampered) -> bool {
    match (&report.ending, tampered.at) {
        (Ending::Torn(torn), Some(at)) => torn.path == tampered.path && torn.at <= at,
        _ => false,
    }
}

fn replace(run: &Run, from: &Files, to: &Files) {
    for path in from.keys().filter(|path| !to.contains_key(*path)) {
        run.disk.replace(path, None);
    }
    for (path, bytes) in to {
        if from.get(path) != Some(bytes) {
            run.disk.replace(path, Some(bytes.clone()));
        }
    }
}

fn choose(run: &mut Run, whole: &Files) -> Option<(Tampered, Files)> {
    let mut files = whole.clone();
    let path = pick(run, whole)?;
    let rng = &mut run.rng;
    let segment = path.extension().is_some_and(|e| e == "seg");
    let bytes = files.get_mut(&path)?;
    let tampered = match rng.below(13) {
        0 => {
            files.remove(&path);
            Tampered {
                path,
                at: None,
                what: "removed".to_owned(),
            }
        }
        1 if segment => {
            let other = pick(run, whole)?;
            let swapped = whole.get(&other)?.clone();
            let what = format!("replaced by {}", other.display());
            if *bytes == swapped {
                return None;
            }
            *bytes = swapped;
            Tampered {
                path,
                at: None,
                what,
            }
        }
        10 => {
            let len = rng.index(bytes.len().max(1));
            let what = format!("cut to {len} of {} bytes:", bytes.len());
            bytes.truncate(len);
            Tampered {
                path,
                at: None,
                what,
            }
        }
        2..6 => {
            let pairs = pairs(whole);
            let (path, from, to, len) = pairs.get(rng.index(pairs.len()))?.clone();
            files.get_mut(&path)?.copy_within(from..from + len, to);
            Tampered {
                path,
                at: None,
                what: format!("the frame at {from} written over the one at {to} in"),
            }
        }
        _ => {
            if bytes.is_empty() {
                return None;
            }
            // Most of a small segment is its header, and most bits that matter are not there.
            let body = bytes.len().saturating_sub(SEGMENT_HEADER_BYTES);
            let at = if body > 0 && !rng.one_in(4) {
                SEGMENT_HEADER_BYTES + rng.index(body)
            } else {
                rng.index(bytes.len())
            };
            let bit = 1 << rng.below(8);
            bytes[at] ^= bit;
            Tampered {
                path,
                at: Some(at as u64),
                what: format!("bit {bit:02x} at {at} of"),
            }
        }
    };
    Some((tampered, files))
}

fn pick(run: &mut Run, files: &Files) -> Option<PathBuf> {
    files.keys().nth(run.rng.index(files.len())).cloned()
}

/// Every two frames of one length in one segment: path, one, the other, length. Whole as each is, only
/// its number says that it is in the other's place.
fn pairs(files: &Files) -> Vec<(PathBuf, usize, usize, usize)> {
    let mut pairs = Vec::new();
    for (path, bytes) in files {
        if path.extension().is_none_or(|e| e != "seg") {
            continue;
        }
        let frames = frames(bytes);
        for &(from, len) in &frames {
            let same = frames.iter().filter(|f| f.1 == len && f.0 != from);
            pairs.extend(same.map(|f| (path.clone(), from, f.0, len)));
        }
    }
    pairs
}

/// Position and length of the whole frames of a segment.
fn frames(bytes: &[u8]) -> Vec<(usize, usize)> {
    let Ok(header) = SegmentHeader::decode(bytes.get(..SEGMENT_HEADER_BYTES).unwrap_or_default())
    else {
        return Vec::new();
    };
    let (mut at, mut frames) = (SEGMENT_HEADER_BYTES, Vec::new());
    while let Ok(frame) = decode_frame(bytes.get(at..).unwrap_or_default(), header.salt) {
        let len = frame.header.frame_len() as usize;
        frames.push((at, len));
        at += len;
    }
    frames
}
