//! Who may touch the disk: this trait. [`OsFiles`] is the only implementation that is real;
//! [`MemFiles`] serves tests, and a simulated disk can be added without touching the engine.

mod mem;
mod os;

pub use mem::MemFiles;
pub use os::OsFiles;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What the engine needs of a file system.
pub trait FileSystem: Send + Sync + Debug {
    /// Creates a directory and those above it; existing ones are fine.
    ///
    /// # Errors
    /// As the system reports.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Names of the files in a directory, in no order.
    ///
    /// # Errors
    /// As the system reports; a missing directory is `NotFound`.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Creates a file for reading and writing; one that exists is an error.
    ///
    /// # Errors
    /// As the system reports.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Opens a file, for writing as well where `write` is set.
    ///
    /// # Errors
    /// As the system reports.
    fn open(&self, path: &Path, write: bool) -> io::Result<Arc<dyn File>>;

    /// Renames a file. Durable only after [`sync_dir`](Self::sync_dir).
    ///
    /// # Errors
    /// As the system reports.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Durable only after [`sync_dir`](Self::sync_dir).
    ///
    /// # Errors
    /// As the system reports.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes creations, renames and removals in a directory durable.
    ///
    /// # Errors
    /// As the system reports.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes an exclusive lock on a file, creating it; `None` where another process holds it. The
    /// lock is released when the guard is dropped or the process ends.
    ///
    /// # Errors
    /// As the system reports.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>>;

    /// Bytes free to this process in the file system that holds `dir`.
    ///
    /// # Errors
    /// As the system reports.
    fn available_space(&self, dir: &Path) -> io::Result<u64>;

    /// Fills `out` with bytes nobody can guess; a file system for tests may repeat itself.
    ///
    /// # Errors
    /// As the system reports.
    fn random(&self, out: &mut [u8]) -> io::Result<()>;
}

/// One open file. All calls take a position; none moves a cursor.
pub trait File: Send + Sync + Debug {
    /// Reads up to `buffer.len()` bytes; 0 at the end.
    ///
    /// # Errors
    /// As the system reports.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;

    /// Writes all of `bytes`. On an error some of them may have been written.
    ///
    /// # Errors
    /// As the system reports; no room is `StorageFull` or `QuotaExceeded`.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Makes the file's content durable. After an error nothing is known about what was not yet
    /// durable: never call it again and believe it.
    ///
    /// # Errors
    /// As the system reports.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves room for the first `len` bytes and makes the file at least that long.
    ///
    /// # Errors
    /// As the system reports.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Bytes in the file.
    ///
    /// # Errors
    /// As the system reports.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As the system reports.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// An exclusive lock, held until dropped.
pub trait Lock: Send + Sync + Debug {}

/// Reads until `buffer` is full or the file ends; the bytes read.
///
/// # Errors
/// As the file system reports.
pub fn read_full_at(file: &dyn File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Whether an error says that there is no room, which a later attempt may find.
#[must_use]
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
