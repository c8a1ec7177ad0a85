//! Reading a directory, and telling whether somebody has it open.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use saguin_log_engine::Layout;
use saguin_log_engine::storage::OsFiles;
use saguin_recovery::{Damage, RecoverError, Report, Visitor, Walk, inspect};
use serde::Serialize;

use crate::cli::Failure;

/// Readings of a directory that somebody is writing to before what looks like damage is believed.
const READINGS: usize = 5;

/// Whether a process has the directory open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Open {
    Yes,
    No,
    /// It cannot be told, and why.
    Unknown(String),
}

impl Serialize for Open {
    /// `true`, `false` or `null`.
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Open::Yes => to.serialize_bool(true),
            Open::No => to.serialize_bool(false),
            Open::Unknown(_) => to.serialize_none(),
        }
    }
}

impl Open {
    /// Asks the lock. A shared one is asked for, so that two inspectors do not take each other for
    /// a broker, on the file as it is, never creating it; and it is released at once. A broker that
    /// starts in exactly that moment finds the directory locked and has to be started again.
    pub(crate) fn probe(dir: &Path) -> Open {
        let path = Layout::new(dir).lock_path();
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Open::No,
            Err(e) => return Open::Unknown(format!("the lock file could not be opened: {e}")),
        };
        match file.try_lock_shared() {
            Ok(()) => Open::No,
            Err(TryLockError::WouldBlock) => Open::Yes,
            Err(TryLockError::Error(e)) => Open::Unknown(format!("the lock does not answer: {e}")),
        }
    }

    pub(crate) fn sentence(&self) -> String {
        match self {
            Open::Yes => "a process has it open now: what is being written may not be seen".into(),
            Open::No => "no process has it open".into(),
            Open::Unknown(why) => format!("whether a process has it open is not known: {why}"),
        }
    }
}

/// One reading of a directory.
pub(crate) struct Reading<V> {
    pub(crate) open: Open,
    /// What saw every operation, up to the damage where there is some.
    pub(crate) visitor: V,
    pub(crate) found: Result<(Report, Walk), Unread>,
}

/// Why a directory was not read to its end.
#[derive(Debug)]
pub(crate) enum Unread {
    Recover(RecoverError),
    /// It was written to meanwhile, and no two readings found the same.
    Changed {
        dir: PathBuf,
    },
}

/// Reads the whole log, with a new visitor each time it has to begin again.
///
/// Frames and segments of an open log appear between listing the files and reading them, which
/// looks like a missing segment or a broken frame. So where a process has the directory open,
/// damage counts only if a second reading finds it in the same place.
pub(crate) fn read<V: Visitor + Default>(dir: &Path) -> Reading<V> {
    let mut before: Option<Damage> = None;
    let mut left = READINGS;
    loop {
        let mut visitor = V::default();
        let opened = Open::probe(dir);
        let found = inspect(&OsFiles, dir, &mut visitor);
        left -= 1;
        if let Err(RecoverError::Damage(damage)) = &found
            && left > 0
            && (opened == Open::Yes || Open::probe(dir) == Open::Yes)
            && before
                .as_ref()
                .is_none_or(|b| (&b.path, b.at) != (&damage.path, damage.at))
        {
            before = Some(damage.clone());
            continue;
        }
        // A segment may be let go of between listing and opening it.
        if let Err(RecoverError::Io { error, .. }) = &found
            && left > 0
            && error.kind() == ErrorKind::NotFound
        {
            continue;
        }
        let found = match (found, &before) {
            (Err(RecoverError::Damage(now)), Some(before))
                if (&before.path, before.at) != (&now.path, now.at) =>
            {
                Err(Unread::Changed {
                    dir: dir.to_owned(),
                })
            }
            (found, _) => found.map_err(Unread::Recover),
        };
        return Reading {
            open: opened,
            visitor,
            found,
        };
    }
}

/// A log that has to be whole to be of use.
pub(crate) struct Log {
    pub(crate) open: Open,
    pub(crate) report: Report,
    pub(crate) walk: Walk,
}

impl Log {
    pub(crate) fn read(dir: &Path) -> Result<Log, Failure> {
        let Reading { open, found, .. } = read::<()>(dir);
        let (report, walk) = found.map_err(|e| explain(e, dir))?;
        Ok(Log { open, report, walk })
    }
}

/// Says more of a directory without a log, where more can be said.
pub(crate) fn explain(error: Unread, dir: &Path) -> Failure {
    let error = match error {
        Unread::Recover(error) => error,
        Unread::Changed { dir } => {
            return Failure::Read(format!(
                "{} was written to and changed under each of {READINGS} readings; ask again, or ask a \
                 copy of a snapshot",
                dir.display()
            ));
        }
    };
    if let RecoverError::NoLog { .. } = &error
        && segment_files(dir).next().is_some()
    {
        let dir = dir.display();
        return Failure::Usage(format!(
            "{dir} holds the segments themselves; name the directory above it"
        ));
    }
    Failure::Recover(error)
}

/// Names of the files in `dir` that are called as segments are.
pub(crate) fn segment_files(dir: &Path) -> impl Iterator<Item = String> {
    std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| Layout::parse_segment_name(name).is_some())
}
