//! A disk that remembers what it was told to keep. Every change leaves the images a power cut right
//! then could have left: everything written, only what was synced, either with the directory of the
//! other, and the change itself half done.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use saguin_log_engine::storage::{File, FileSystem, Lock, MemFiles};

type Inode = usize;
type Dir = BTreeMap<PathBuf, Inode>;

#[derive(Debug, Default)]
struct Disk {
    live: Vec<Vec<u8>>,
    synced: Vec<Vec<u8>>,
    dir: Dir,
    synced_dir: Dir,
    images: Vec<Image>,
    /// Only the last cut matters: no image is kept on the way.
    quiet: bool,
    /// What the caller says is acknowledged at this moment.
    acknowledged: usize,
}

/// What a power cut left, and how much had been acknowledged by then.
#[derive(Debug, Clone)]
pub struct Image {
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub acknowledged: usize,
}

impl Image {
    pub fn mount(&self) -> MemFiles {
        let files = MemFiles::new();
        for dir in ["/data", "/data/log", "/data/checkpoint"] {
            files.create_dir_all(Path::new(dir)).unwrap();
        }
        for (path, bytes) in &self.files {
            files.create(path).unwrap().write_all_at(bytes, 0).unwrap();
        }
        files
    }
}

impl Disk {
    fn image(&mut self, dir: &Dir, contents: &[Vec<u8>]) {
        let files = dir
            .iter()
            .map(|(path, &i)| (path.clone(), contents[i].clone()))
            .collect();
        let image = Image {
            files,
            acknowledged: self.acknowledged,
        };
        // Most changes leave an image like the one before: those are kept once.
        if self
            .images
            .last()
            .is_none_or(|last| last.files != image.files || last.acknowledged != image.acknowledged)
        {
            self.images.push(image);
        }
    }

    fn images(&mut self) {
        if self.quiet {
            return;
        }
        let (live, synced) = (self.live.clone(), self.synced.clone());
        let (dir, synced_dir) = (self.dir.clone(), self.synced_dir.clone());
        self.image(&dir, &live);
        self.image(&synced_dir, &synced);
        self.image(&dir, &synced);
        self.image(&synced_dir, &live);
    }
}

#[derive(Clone, Debug, Default)]
pub struct CutDisk {
    disk: Arc<Mutex<Disk>>,
    locks: MemFiles,
}

impl CutDisk {
    pub fn with(image: &Image) -> CutDisk {
        let new = CutDisk::default();
        let mut disk = new.disk.lock().unwrap();
        for (i, (path, bytes)) in image.files.iter().enumerate() {
            disk.live.push(bytes.clone());
            disk.synced.push(bytes.clone());
            disk.dir.insert(path.clone(), i);
        }
        disk.synced_dir = disk.dir.clone();
        disk.acknowledged = image.acknowledged;
        drop(disk);
        new
    }

    /// A disk that keeps no images.
    pub fn quiet() -> CutDisk {
        let new = CutDisk::default();
        new.disk.lock().unwrap().quiet = true;
        new
    }

    /// The disk after a power cut that left nothing but what was synced.
    pub fn cut(&self) -> CutDisk {
        let disk = self.disk.lock().unwrap();
        CutDisk::after(Disk {
            live: disk.synced.clone(),
            synced: disk.synced.clone(),
            dir: disk.synced_dir.clone(),
            synced_dir: disk.synced_dir.clone(),
            quiet: disk.quiet,
            ..Disk::default()
        })
    }

    /// The disk once its process is gone: everything is as it was, unsynced what was unsynced.
    pub fn next_process(&self) -> CutDisk {
        let disk = self.disk.lock().unwrap();
        CutDisk::after(Disk {
            live: disk.live.clone(),
            synced: disk.synced.clone(),
            dir: disk.dir.clone(),
            synced_dir: disk.synced_dir.clone(),
            quiet: disk.quiet,
            ..Disk::default()
        })
    }

    fn after(disk: Disk) -> CutDisk {
        CutDisk {
            disk: Arc::new(Mutex::new(disk)),
            locks: MemFiles::default(),
        }
    }

    pub fn acknowledge(&self, count: usize) {
        self.disk.lock().unwrap().acknowledged = count;
    }

    pub fn take_images(&self) -> Vec<Image> {
        std::mem::take(&mut self.disk.lock().unwrap().images)
    }
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, path.display().to_string())
}

impl FileSystem for CutDisk {
    fn create_dir_all(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let disk = self.disk.lock().unwrap();
        let here = disk.dir.keys().filter(|path| path.parent() == Some(dir));
        Ok(here
            .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
            .collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut disk = self.disk.lock().unwrap();
        if disk.dir.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = disk.live.len();
        disk.live.push(Vec::new());
        disk.synced.push(Vec::new());
        disk.dir.insert(path.to_owned(), inode);
        disk.images();
        Ok(Arc::new(CutFile {
            disk: self.disk.clone(),
            inode,
        }))
    }

    fn open(&self, path: &Path, _write: bool) -> io::Result<Arc<dyn File>> {
        let inode = self.disk.lock().unwrap().dir.get(path).copied();
        let inode = inode.ok_or_else(|| missing(path))?;
        Ok(Arc::new(CutFile {
            disk: self.disk.clone(),
            inode,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock().unwrap();
        let inode = disk.dir.remove(from).ok_or_else(|| missing(from))?;
        disk.dir.insert(to.to_owned(), inode);
        disk.images();
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock().unwrap();
        disk.dir.remove(path).ok_or_else(|| missing(path))?;
        disk.images();
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.disk.lock().unwrap();
        let here = |path: &PathBuf| path.parent() == Some(dir);
        disk.synced_dir.retain(|path, _| !here(path));
        let names = disk.dir.iter().filter(|(path, _)| here(path));
        let names: Vec<_> = names.map(|(path, &i)| (path.clone(), i)).collect();
        disk.synced_dir.extend(names);
        disk.images();
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let exists = self.disk.lock().unwrap().dir.contains_key(path);
        if !exists {
            self.create(path)?;
        }
        self.locks.lock(path)
    }

    fn available_space(&self, _dir: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        self.locks.random(out)
    }
}

#[derive(Debug)]
struct CutFile {
    disk: Arc<Mutex<Disk>>,
    inode: Inode,
}

impl File for CutFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let disk = self.disk.lock().unwrap();
        let Some(from) = disk.live[self.inode].get(at as usize..) else {
            return Ok(0);
        };
        let n = from.len().min(buffer.len());
        buffer[..n].copy_from_slice(&from[..n]);
        Ok(n)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut disk = self.disk.lock().unwrap();
        let file = &mut disk.live[self.inode];
        let end = at as usize + bytes.len();
        if file.len() < end {
            file.resize(end, 0);
        }
        let before = file[at as usize..end].to_vec();
        let half = bytes.len() / 2;
        // The front of it arrived, then the back of it, then all.
        for (from, to) in [(0, half), (half, bytes.len()), (0, bytes.len())] {
            let file = &mut disk.live[self.inode];
            file[at as usize..end].copy_from_slice(&before);
            file[at as usize + from..at as usize + to].copy_from_slice(&bytes[from..to]);
            disk.images();
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.disk.lock().unwrap();
        let live = disk.live[self.inode].clone();
        disk.synced[self.inode] = live;
        disk.images();
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut disk = self.disk.lock().unwrap();
        let file = &mut disk.live[self.inode];
        if (file.len() as u64) < len {
            file.resize(len as usize, 0);
        }
        disk.images();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().unwrap().live[self.inode].len() as u64)
    }
}
