//! A file system whose checkpoints stop before every write, so that a test can have commits go on
//! in the middle of one.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use saguin_log_engine::storage::{File, FileSystem, Lock};

/// The writing side waits for an answer at each of these.
type Stop = Sender<Sender<()>>;

#[derive(Clone, Debug)]
pub struct GatedFiles {
    files: Arc<dyn FileSystem>,
    gate: Arc<Mutex<Option<Stop>>>,
}

impl GatedFiles {
    pub fn new(files: impl FileSystem + 'static) -> GatedFiles {
        GatedFiles {
            files: Arc::new(files),
            gate: Arc::default(),
        }
    }

    /// From now on the file a checkpoint is written to stops before each write until the sender
    /// that arrives here is used or dropped.
    pub fn arm(&self) -> Receiver<Sender<()>> {
        let (stop, stops) = channel();
        *self.gate.lock().unwrap() = Some(stop);
        stops
    }

    /// Nothing stops any more.
    pub fn disarm(&self) {
        *self.gate.lock().unwrap() = None;
    }
}

impl FileSystem for GatedFiles {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.files.create_dir_all(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.files.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.files.create(path)?;
        if !path.parent().is_some_and(|dir| dir.ends_with("checkpoint")) {
            return Ok(file);
        }
        let stop = self.gate.lock().unwrap().take();
        Ok(Arc::new(GatedFile {
            file,
            stop: Mutex::new(stop),
        }))
    }

    fn open(&self, path: &Path, write: bool) -> io::Result<Arc<dyn File>> {
        self.files.open(path, write)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.files.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        self.files.lock(path)
    }

    fn available_space(&self, dir: &Path) -> io::Result<u64> {
        self.files.available_space(dir)
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        self.files.random(out)
    }
}

#[derive(Debug)]
struct GatedFile {
    file: Arc<dyn File>,
    stop: Mutex<Option<Stop>>,
}

impl File for GatedFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(buffer, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        if let Some(stop) = &*self.stop.lock().unwrap() {
            let (go, goes) = channel();
            if stop.send(go).is_ok() {
                // Either answer will do: the test goes on, or is gone.
                let _ = goes.recv();
            }
        }
        self.file.write_all_at(bytes, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
