//! A file system in memory for tests: counts calls, runs out of room and fails on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{File, FileSystem, Lock};

/// Files in memory. Clones share the files; [`MemFiles::copy`] does not.
#[derive(Clone, Debug, Default)]
pub struct MemFiles {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    writes: AtomicU64,
    syncs: AtomicU64,
    random: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    dirs: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, Arc<Mutex<Vec<u8>>>>,
    locked: BTreeSet<PathBuf>,
    /// Bytes all files together may hold; `None` is no bound.
    room: Option<u64>,
    fail_sync: Option<io::ErrorKind>,
    /// How the next writes fail, and how many of them.
    fail_write: Option<(io::ErrorKind, u64)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemFiles {
    /// No files.
    #[must_use]
    pub fn new() -> MemFiles {
        MemFiles::default()
    }

    /// The same files, no longer shared and not locked: what a copy of the disk would hold.
    #[must_use]
    pub fn copy(&self) -> MemFiles {
        let inner = lock(&self.shared.inner);
        let files = inner
            .files
            .iter()
            .map(|(path, bytes)| (path.clone(), Arc::new(Mutex::new(lock(bytes).clone()))))
            .collect();
        let copy = Inner {
            dirs: inner.dirs.clone(),
            files,
            ..Inner::default()
        };
        MemFiles {
            shared: Arc::new(Shared {
                inner: Mutex::new(copy),
                ..Shared::default()
            }),
        }
    }

    /// Bounds what all files together may hold.
    pub fn set_room(&self, bytes: Option<u64>) {
        lock(&self.shared.inner).room = bytes;
    }

    /// Every sync from now on fails so, or works again.
    pub fn fail_syncs(&self, with: Option<io::ErrorKind>) {
        lock(&self.shared.inner).fail_sync = with;
    }

    /// The next `times` writes fail so after writing half.
    pub fn fail_writes(&self, with: io::ErrorKind, times: u64) {
        lock(&self.shared.inner).fail_write = Some((with, times));
    }

    /// Writes made so far.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.shared.writes.load(Ordering::SeqCst)
    }

    /// Data syncs made so far.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.shared.syncs.load(Ordering::SeqCst)
    }

    /// Every file's path, in order.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        lock(&self.shared.inner).files.keys().cloned().collect()
    }

    /// Changes a file's bytes behind everybody's back.
    ///
    /// # Panics
    /// Where there is no such file: the test is wrong.
    pub fn edit(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let file = lock(&self.shared.inner).files.get(path).cloned();
        change(&mut lock(
            &file.unwrap_or_else(|| panic!("no file {}", path.display())),
        ));
    }
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("{}: no such file", path.display()),
    )
}

impl FileSystem for MemFiles {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        lock(&self.shared.inner).dirs.insert(dir.to_owned());
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let inner = lock(&self.shared.inner);
        if !inner.dirs.contains(dir) {
            return Err(missing(dir));
        }
        let here = inner.files.keys().filter(|path| path.parent() == Some(dir));
        Ok(here
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut inner = lock(&self.shared.inner);
        if inner.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let bytes = Arc::new(Mutex::new(Vec::new()));
        inner.files.insert(path.to_owned(), bytes.clone());
        Ok(Arc::new(MemFile {
            shared: self.shared.clone(),
            bytes,
        }))
    }

    fn open(&self, path: &Path, _write: bool) -> io::Result<Arc<dyn File>> {
        let bytes = lock(&self.shared.inner).files.get(path).cloned();
        let bytes = bytes.ok_or_else(|| missing(path))?;
        Ok(Arc::new(MemFile {
            shared: self.shared.clone(),
            bytes,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = lock(&self.shared.inner);
        let file = inner.files.remove(from).ok_or_else(|| missing(from))?;
        inner.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = lock(&self.shared.inner).files.remove(path);
        removed.map(drop).ok_or_else(|| missing(path))
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        match lock(&self.shared.inner).fail_sync {
            Some(kind) => Err(kind.into()),
            None => Ok(()),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut inner = lock(&self.shared.inner);
        inner.files.entry(path.to_owned()).or_default();
        if !inner.locked.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(MemLock {
            shared: self.shared.clone(),
            path: path.to_owned(),
        })))
    }

    fn available_space(&self, _dir: &Path) -> io::Result<u64> {
        let inner = lock(&self.shared.inner);
        let used: u64 = inner.files.values().map(|f| lock(f).len() as u64).sum();
        Ok(inner
            .room
            .map_or(u64::MAX, |room| room.saturating_sub(used)))
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        // The same for every run of a test, and never the same twice within one.
        let n = self.shared.random.fetch_add(1, Ordering::SeqCst) + 1;
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * (i % 8))) as u8 ^ i as u8;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct MemLock {
    shared: Arc<Shared>,
    path: PathBuf,
}

impl Lock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        lock(&self.shared.inner).locked.remove(&self.path);
    }
}

#[derive(Debug)]
struct MemFile {
    shared: Arc<Shared>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl MemFile {
    /// Grows the file to `len`, if the room allows.
    fn grow(&self, inner: &Inner, len: u64) -> io::Result<()> {
        let mut bytes = lock(&self.bytes);
        let more = len.saturating_sub(bytes.len() as u64);
        if more == 0 {
            return Ok(());
        }
        if let Some(room) = inner.room {
            let here = Arc::as_ptr(&self.bytes);
            let others = inner.files.values().filter(|f| Arc::as_ptr(f) != here);
            let used: u64 = others.map(|f| lock(f).len() as u64).sum();
            if used + len > room {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        bytes.resize(len as usize, 0);
        Ok(())
    }
}

impl File for MemFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let bytes = lock(&self.bytes);
        let Some(from) = bytes.get(at as usize..) else {
            return Ok(0);
        };
        let n = from.len().min(buffer.len());
        buffer[..n].copy_from_slice(&from[..n]);
        Ok(n)
    }

    fn write_all_at(&self, new: &[u8], at: u64) -> io::Result<()> {
        self.shared.writes.fetch_add(1, Ordering::SeqCst);
        let mut inner = lock(&self.shared.inner);
        self.grow(&inner, at + new.len() as u64)?;
        let failing = match &mut inner.fail_write {
            Some((kind, times)) if *times > 0 => {
                *times -= 1;
                Some(*kind)
            }
            _ => None,
        };
        let n = if failing.is_some() {
            new.len() / 2
        } else {
            new.len()
        };
        lock(&self.bytes)[at as usize..at as usize + n].copy_from_slice(&new[..n]);
        failing.map_or(Ok(()), |kind| Err(kind.into()))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.shared.syncs.fetch_add(1, Ordering::SeqCst);
        match lock(&self.shared.inner).fail_sync {
            Some(kind) => Err(kind.into()),
            None => Ok(()),
        }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.grow(&lock(&self.shared.inner), len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.bytes).len() as u64)
    }
}
