//! The next segment's file, made ready before it is needed.
//!
//! A commit into blocks that were never written makes the file system change its own records in
//! the same sync: a lone small commit then costs about twice the device writes. So the next file is
//! filled with zeros and synced in the background, and rolling over is a rename. Where it is not
//! ready in time, the room is reserved without being written: slower commits, the same promise.
//!
//! A dead segment's file is the best material for the next one: giving back the blocks of a large file
//! holds up everybody's syncs for many milliseconds, and new ones would be asked for right after. It is
//! filled with zeros like any other, so that nothing of its earlier life is left in it.
//!
//! Every file has a scratch name of its own. One that was taken keeps its scratch name until whoever
//! took it has renamed it, and must not be touched meanwhile: under a shared name the next file would
//! take its place, and commits would go into a file without a name.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
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

    /// Bytes of the file that is ready, and of all that are ready, being prepared or asked for.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let wanted = lock(&self.0.0);
        let ready = wanted.ready.as_ref().map_or(0, |fresh| fresh.capacity);
        let spent = wanted.spent.as_ref().map_or(0, |spent| spent.capacity);
        let asked = wanted.capacity.unwrap_or_default();
        (ready, ready + spent + wanted.preparing + asked)
    }

    /// Whether a dead segment's file would be of use.
    pub(crate) fn wants_spent(&self) -> bool {
        lock(&self.0.0).spent.is_none()
    }

    /// Hands over a dead segment's file, which has a scratch name, durably: its content is about to be
    /// overwritten.
    pub(crate) fn offer_spent(&self, spent: Fresh) {
        lock(&self.0.0).spent = Some(spent);
    }
}

#[derive(Debug, Default)]
struct Wanted {
    /// Capacity to prepare next.
    capacity: Option<u64>,
    ready: Option<Fresh>,
    /// A dead segment's file, with what it held.
    spent: Option<Fresh>,
    /// Capacity being prepared now, or zero.
    preparing: u64,
    stop: bool,
}

/// Scratch names, none of which is used twice in one opening of a log.
#[derive(Debug, Default)]
struct Names(AtomicU64);

impl Names {
    /// A new file under a name that nobody has.
    fn create(&self, fs: &dyn FileSystem, layout: &Layout) -> io::Result<(PathBuf, Arc<dyn File>)> {
        loop {
            let n = self.0.fetch_add(1, Ordering::Relaxed);
            let path = layout.scratch_path(&format!("next-{n}"));
            match fs.create(&path) {
                // A leftover of an earlier opening that is on its way out.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                created => return Ok((path, created?)),
            }
        }
    }
}

/// Prepares one file ahead on a thread of its own, or none where `ahead` is off.
#[derive(Debug)]
pub(crate) struct Spares {
    fs: Arc<dyn FileSystem>,
    layout: Layout,
    shared: Arc<(Mutex<Wanted>, Condvar)>,
    names: Arc<Names>,
    thread: Option<JoinHandle<()>>,
}

impl Spares {
    /// `leftovers` are files that an earlier opening prepared and did not use. They are removed, not
    /// used: how much of one was written is not known.
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        layout: Layout,
        ahead: bool,
        leftovers: Vec<PathBuf>,
    ) -> io::Result<Spares> {
        let shared = Arc::new((Mutex::new(Wanted::default()), Condvar::new()));
        let names = Arc::new(Names::default());
        let thread = if ahead {
            let (fs, layout) = (fs.clone(), layout.clone());
            let (shared, names) = (shared.clone(), names.clone());
            // Not before the log opens: giving back the blocks of a large file takes a while.
            let work = move || {
                remove_all(&*fs, &leftovers);
                prepare_until_stopped(&*fs, &layout, &shared, &names);
            };
            Some(
                std::thread::Builder::new()
                    .name("saguin-spare".into())
                    .spawn(work)?,
            )
        } else {
            remove_all(&*fs, &leftovers);
            None
        };
        Ok(Spares {
            fs,
            layout,
            shared,
            names,
            thread,
        })
    }

    pub(crate) fn readiness(&self) -> Readiness {
        Readiness(self.shared.clone())
    }

    /// Asks for a file of `capacity` to be made ready.
    pub(crate) fn want(&self, capacity: u64) {
        if self.thread.is_none() {
            return;
        }
        lock(&self.shared.0).capacity = Some(capacity);
        self.shared.1.notify_all();
    }

    /// A file of at least `capacity` bytes: the prepared one, or one made now.
    pub(crate) fn take(&self, capacity: u64) -> io::Result<Fresh> {
        let ready = lock(&self.shared.0).ready.take();
        // Its place is free for one that is wanted already.
        self.shared.1.notify_all();
        match ready {
            Some(fresh) if fresh.capacity >= capacity => Ok(fresh),
            Some(small) => {
                self.fs.remove(&small.path)?;
                self.make_now(capacity)
            }
            None => self.make_now(capacity),
        }
    }

    /// A file of at least `capacity` bytes, made now.
    fn make_now(&self, capacity: u64) -> io::Result<Fresh> {
        let spent = match self.thread {
            // Overwriting it takes a while: that is for the thread, if there is one.
            Some(_) => None,
            None => take_spent(&self.shared.0, capacity),
        };
        match spent {
            Some(spent) => renew(&*self.fs, spent),
            None => self.reserve_now(capacity),
        }
    }
}

/// A dead segment's file that is large enough, if there is one.
fn take_spent(wanted: &Mutex<Wanted>, capacity: u64) -> Option<Fresh> {
    let mut wanted = lock(wanted);
    wanted.spent.take_if(|spent| spent.capacity >= capacity)
}

/// Makes a dead segment's file one that holds nothing, durably.
fn renew(fs: &dyn FileSystem, spent: Fresh) -> io::Result<Fresh> {
    let filled = fill(&*spent.file, spent.capacity).and_then(|()| spent.file.sync_data());
    if let Err(error) = filled {
        let _ = fs.remove(&spent.path);
        return Err(error);
    }
    Ok(spent)
}

impl Spares {
    fn reserve_now(&self, capacity: u64) -> io::Result<Fresh> {
        let (path, file) = self.names.create(&*self.fs, &self.layout)?;
        reserve(&*self.fs, path, file, capacity)
    }
}

/// Best effort: what stays is removed when the log is next opened.
fn remove_all(fs: &dyn FileSystem, paths: &[PathBuf]) {
    for path in paths {
        if let Err(error) = fs.remove(path) {
            tracing::warn!(path = %path.display(), %error, "a leftover could not be removed");
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
        let mut wanted = lock(&self.shared.0);
        let left = [wanted.ready.take(), wanted.spent.take()];
        drop(wanted);
        for fresh in left.into_iter().flatten() {
            // Best effort: a file left here is removed when the log is next opened.
            let _ = self.fs.remove(&fresh.path);
        }
    }
}

fn prepare_until_stopped(
    fs: &dyn FileSystem,
    layout: &Layout,
    shared: &(Mutex<Wanted>, Condvar),
    names: &Names,
) {
    loop {
        let mut wanted = lock(&shared.0);
        let capacity = loop {
            if wanted.stop {
                return;
            }
            if wanted.ready.is_none()
                && let Some(capacity) = wanted.capacity.take()
            {
                wanted.preparing = capacity;
                break capacity;
            }
            wanted = shared
                .1
                .wait(wanted)
                .unwrap_or_else(crate::sync::PoisonError::into_inner);
        };
        drop(wanted);
        let made = match take_spent(&shared.0, capacity) {
            Some(spent) => renew(fs, spent),
            None => names
                .create(fs, layout)
                .and_then(|(path, file)| prepare(fs, path, file, capacity)),
        };
        let mut wanted = lock(&shared.0);
        wanted.preparing = 0;
        match made {
            Ok(fresh) => wanted.ready = Some(fresh),
            // No room ahead of time is no failure yet: the roll asks again and reports it.
            Err(error) => tracing::warn!(%error, capacity, "could not prepare the next segment"),
        }
    }
}

/// Reserves a new file's room; nothing of it is written.
fn reserve(
    fs: &dyn FileSystem,
    path: PathBuf,
    file: Arc<dyn File>,
    capacity: u64,
) -> io::Result<Fresh> {
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

/// Makes a new file one whose every block was written once and is durable.
pub(crate) fn prepare(
    fs: &dyn FileSystem,
    path: PathBuf,
    file: Arc<dyn File>,
    capacity: u64,
) -> io::Result<Fresh> {
    let fresh = reserve(fs, path, file, capacity)?;
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::storage::MemFiles;

    fn wait_until_ready(spares: &Spares) {
        while !spares.readiness().is_ready() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_file_that_was_taken_is_never_touched_again() {
        let files = MemFiles::new();
        let layout = Layout::new(Path::new("/data"));
        files.create_dir_all(&layout.segment_dir()).expect("dir");
        let fs: Arc<dyn FileSystem> = Arc::new(files.clone());
        let spares = Spares::new(fs, layout.clone(), true, Vec::new()).expect("thread");
        spares.want(8192);
        wait_until_ready(&spares);
        // Asked for again before the first was taken: the next one is prepared the moment it is,
        // while whoever took it has not yet given it its name.
        spares.want(8192);
        let taken = spares.take(8192).expect("prepared");
        wait_until_ready(&spares);
        taken.file.write_all_at(b"mine", 0).expect("write");
        let named = layout.segment_path(1);
        files.rename(&taken.path, &named).expect("still there");
        let mut seen = [0; 4];
        let file = files.open(&named, false).expect("named");
        file.read_at(&mut seen, 0).expect("read");
        assert_eq!(&seen, b"mine", "the name leads to the file that was taken");
        assert_ne!(spares.take(8192).expect("another").path, taken.path);
    }
}
