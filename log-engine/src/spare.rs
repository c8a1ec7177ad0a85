//! The next segment's file, made ready before it is needed.
//!
//! A commit into blocks that were never written makes the file system change its own records in
//! the same sync: a lone small commit then costs about twice the device writes. So the next file is
//! filled with zeros and synced in the background, and rolling over is a rename. Where it is not
//! ready in time, the room is reserved without being written: slower commits, the same promise.

use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;

use crate::segment::Layout;
use crate::storage::{File, FileSystem};
use crate::sync::{Arc, Condvar, Mutex, lock};

/// Zeros written at once while a file is prepared.
const FILL_BYTES: usize = 1 << 20;

/// A file that is to become a segment. Its content is zero.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) capacity: u64,
}

/// Says whether the next segment's file is ready.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readiness(Arc<(Mutex<Wanted>, Condvar)>);

impl Readiness {
    pub(crate) fn is_ready(&self) -> bool {
        lock(&self.0.0).ready.is_some()
    }
}

#[derive(Debug, Default)]
struct Wanted {
    /// Capacity to prepare next.
    capacity: Option<u64>,
    ready: Option<Fresh>,
    stop: bool,
}

/// Prepares one file ahead on a thread of its own, or none where `ahead` is off.
#[derive(Debug)]
pub(crate) struct Spares {
    fs: Arc<dyn FileSystem>,
    layout: Layout,
    shared: Arc<(Mutex<Wanted>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Spares {
    pub(crate) fn new(fs: Arc<dyn FileSystem>, layout: Layout, ahead: bool) -> io::Result<Spares> {
        let shared = Arc::new((Mutex::new(Wanted::default()), Condvar::new()));
        let thread = if ahead {
            let (fs, layout, shared) = (fs.clone(), layout.clone(), shared.clone());
            let work = move || prepare_until_stopped(&*fs, &layout, &shared);
            Some(
                std::thread::Builder::new()
                    .name("saguin-spare".into())
                    .spawn(work)?,
            )
        } else {
            None
        };
        Ok(Spares {
            fs,
            layout,
            shared,
            thread,
        })
    }

    pub(crate) fn readiness(&self) -> Readiness {
        Readiness(self.shared.clone())
    }

    /// Asks for a file of `capacity` to be made ready.
    pub(crate) fn want(&self, capacity: u64) {
        lock(&self.shared.0).capacity = Some(capacity);
        self.shared.1.notify_all();
    }

    /// A file of at least `capacity` bytes: the prepared one, or one made now.
    pub(crate) fn take(&self, capacity: u64) -> io::Result<Fresh> {
        let ready = lock(&self.shared.0).ready.take();
        match ready {
            Some(fresh) if fresh.capacity >= capacity => Ok(fresh),
            Some(small) => {
                self.fs.remove(&small.path)?;
                reserve(&*self.fs, self.layout.scratch_path("roll"), capacity)
            }
            None => reserve(&*self.fs, self.layout.scratch_path("roll"), capacity),
        }
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        lock(&self.shared.0).stop = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that prepares segments panicked");
        }
        if let Some(fresh) = lock(&self.shared.0).ready.take() {
            // Best effort: a file left here is removed when the log is next opened.
            let _ = self.fs.remove(&fresh.path);
        }
    }
}

fn prepare_until_stopped(fs: &dyn FileSystem, layout: &Layout, shared: &(Mutex<Wanted>, Condvar)) {
    loop {
        let mut wanted = lock(&shared.0);
        let capacity = loop {
            if wanted.stop {
                return;
            }
            if wanted.ready.is_none()
                && let Some(capacity) = wanted.capacity.take()
            {
                break capacity;
            }
            wanted = shared
                .1
                .wait(wanted)
                .unwrap_or_else(crate::sync::PoisonError::into_inner);
        };
        drop(wanted);
        match prepare(fs, layout.scratch_path("spare"), capacity) {
            Ok(fresh) => lock(&shared.0).ready = Some(fresh),
            // No room ahead of time is no failure yet: the roll asks again and reports it.
            Err(error) => tracing::warn!(%error, capacity, "could not prepare the next segment"),
        }
    }
}

/// Creates a file with its room reserved; nothing of it is written.
fn reserve(fs: &dyn FileSystem, path: PathBuf, capacity: u64) -> io::Result<Fresh> {
    // A leftover of an earlier attempt that failed holds nothing.
    match fs.remove(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = fs.create(&path)?;
    let allocated = match file.allocate(capacity) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => fill(&*file, capacity),
        other => other,
    };
    if let Err(error) = allocated {
        let _ = fs.remove(&path);
        return Err(error);
    }
    Ok(Fresh {
        path,
        file,
        capacity,
    })
}

/// Creates a file whose every block was written once and is durable.
pub(crate) fn prepare(fs: &dyn FileSystem, path: PathBuf, capacity: u64) -> io::Result<Fresh> {
    let fresh = reserve(fs, path, capacity)?;
    let filled = fill(&*fresh.file, capacity).and_then(|()| fresh.file.sync_data());
    if let Err(error) = filled {
        let _ = fs.remove(&fresh.path);
        return Err(error);
    }
    Ok(fresh)
}

fn fill(file: &dyn File, capacity: u64) -> io::Result<()> {
    let zeros = vec![0u8; FILL_BYTES];
    let mut at = 0;
    while at < capacity {
        let n = (capacity - at).min(FILL_BYTES as u64);
        file.write_all_at(&zeros[..n as usize], at)?;
        at += n;
    }
    Ok(())
}
