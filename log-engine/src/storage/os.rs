//! The real file system.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::{File, FileSystem, Lock};

/// Files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsFiles;

#[derive(Debug)]
struct OsFile(fs::File);

#[derive(Debug)]
struct OsLock {
    // Dropping the handles releases the locks.
    _file: fs::File,
    _dir: fs::File,
}

impl Lock for OsLock {}

/// Data files hold other people's messages: readable by their owner alone.
const MODE: u32 = 0o600;

impl FileSystem for OsFiles {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // A name that is not UTF-8 is not one of ours and is left alone.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(MODE)
            .open(path)?;
        Ok(Arc::new(OsFile(file)))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new()
            .read(true)
            .write(write)
            // A pipe under one of our names is an error at the first read, not a wait for a writer.
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(path)?;
        Ok(Arc::new(OsFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .open(path)?;
        // The directory as well: the file can be removed by hand, and whoever locks the next one
        // would write into the same log.
        let dir = fs::File::open(path.parent().unwrap_or(Path::new(".")))?;
        if !take_lock(&file)? || !take_lock(&dir)? {
            return Ok(None);
        }
        Ok(Some(Box::new(OsLock {
            _file: file,
            _dir: dir,
        })))
    }

    fn available_space(&self, dir: &Path) -> io::Result<u64> {
        fs2::available_space(dir)
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            done += rustix::rand::getrandom(&mut out[done..], flags)?;
        }
        Ok(())
    }
}

/// Takes a file's lock; whether nobody else had it.
fn take_lock(file: &fs::File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(fs::TryLockError::WouldBlock) => Ok(false),
        Err(fs::TryLockError::Error(e)) => Err(e),
    }
}

impl File for OsFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(buffer, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        // Not fs2's allocate: it ignores the code the call returns and reports a stale one.
        rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), 0, len)
            .map_err(io::Error::from)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_outlives_the_removal_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = OsFiles.lock(&path).unwrap();
        assert!(held.is_some());
        fs::remove_file(&path).unwrap();
        assert!(OsFiles.lock(&path).unwrap().is_none());
        drop(held);
        assert!(OsFiles.lock(&path).unwrap().is_some());
    }

    #[test]
    fn a_pipe_is_an_error_and_not_a_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("00000000000000000001.ckpt");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let pipe = OsFiles.open(&path, false).unwrap();
        assert!(pipe.read_at(&mut [0; 8], 0).is_err());
    }
}
