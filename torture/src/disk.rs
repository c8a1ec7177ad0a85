//! A disk that remembers what it was told to keep, and keeps nothing else on purpose.
//!
//! What a power cut may leave, by this disk's rules:
//! * a file's content, in sectors of 512 bytes: each sector is as it was synced or as any write
//!   since left it, whatever happened to the sectors beside it;
//! * its length, anything between the synced one and the one it had grown to; what was not written
//!   reads as zeros;
//! * the directory: of the creations, renames, removals and new directories not yet covered by a
//!   sync of the directory they are in, the first few (a journal) or any set (no journal). A rename
//!   is whole or absent. What lies in a directory that went goes with it.
//!
//! A failed sync of a file marks its pages clean: some reached the disk and the rest never will,
//! whatever later syncs say; the running system still shows them, and a new process may or may not.
//! A failed sync of a directory leaves it as unsynced as it was.
//!
//! A process that dies loses nothing it wrote: the next one sees it, still unsynced.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use saguin_log_engine::storage::{File, FileSystem, Lock};

use crate::rng::Rng;

/// Bytes that reach the medium together or not at all.
pub const SECTOR: usize = 512;

/// Operations remembered for the report of a violation.
const REMEMBERED: usize = 30;

type Sector = Box<[u8; SECTOR]>;

/// What an operation that was told to fail answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The medium failed.
    Io,
    /// There is no room.
    NoSpace,
}

/// How a run ends before the engine wanted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The power goes.
    Cut,
    /// The process is killed.
    Death,
}

#[derive(Debug, Default)]
struct Inode {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Per sector not yet synced, what each write since left there, oldest first.
    pending: BTreeMap<usize, Vec<Sector>>,
    /// A sync failed: `live` shows what the medium does not hold and nothing will bring there.
    stale: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Dir,
    File(usize),
}

type Names = BTreeMap<PathBuf, Entry>;

#[derive(Clone, Debug)]
enum Change {
    Add(PathBuf, Entry),
    Rename(PathBuf, PathBuf, Entry),
    Remove(PathBuf),
}

impl Change {
    fn path(&self) -> &Path {
        match self {
            Change::Add(path, _) | Change::Rename(_, path, _) | Change::Remove(path) => path,
        }
    }

    fn apply(&self, names: &mut Names) {
        match self {
            Change::Add(path, entry) => drop(names.insert(path.clone(), entry.clone())),
            Change::Rename(from, to, entry) => {
                if names.get(from) == Some(entry) {
                    names.remove(from);
                }
                names.insert(to.clone(), entry.clone());
            }
            Change::Remove(path) => drop(names.remove(path)),
        }
    }
}

/// What became of one operation's turn.
enum Turn {
    Whole,
    /// Part of it happens, and it fails.
    Fails(Fault),
    /// Part of it happens, and nobody is there any more.
    Ends,
}

/// Called on the thread that syncs, before the sync.
type Probe = Arc<dyn Fn() + Send + Sync>;

struct Disk {
    rng: Rng,
    inodes: Vec<Inode>,
    names: Names,
    durable_names: Names,
    changes: Vec<Change>,
    locked: BTreeSet<PathBuf>,
    /// Counts processes: handles of one that is gone do nothing.
    life: u64,
    /// The running process is over; its operations fail and change nothing.
    over: bool,
    fuse: Option<(u64, End)>,
    ended: Option<End>,
    fault: Option<(u64, Fault)>,
    room: Option<u64>,
    operations: u64,
    failures: u64,
    refusals: u64,
    recent: VecDeque<String>,
    probe: Option<Probe>,
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Disk")
    }
}

/// The disk, as whoever runs the simulation holds it.
#[derive(Clone, Debug)]
pub struct SimDisk {
    shared: Arc<Mutex<Disk>>,
}

/// The disk as one process sees it, until that process ends.
#[derive(Clone, Debug)]
pub struct Process {
    shared: Arc<Mutex<Disk>>,
    life: u64,
}

fn lock(disk: &Mutex<Disk>) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The disk, for a process that is not over.
fn look(disk: &Mutex<Disk>, life: u64) -> io::Result<MutexGuard<'_, Disk>> {
    let disk = lock(disk);
    if disk.life != life || disk.over {
        return Err(gone());
    }
    Ok(disk)
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, path.display().to_string())
}

fn gone() -> io::Error {
    io::Error::other("the process is no more")
}

fn error(fault: Fault) -> io::Error {
    match fault {
        Fault::Io => io::Error::other("simulated failure of the medium"),
        Fault::NoSpace => io::Error::new(io::ErrorKind::StorageFull, "simulated full disk"),
    }
}

impl Inode {
    fn write(&mut self, bytes: &[u8], at: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        if self.live.len() < end {
            self.live.resize(end, 0);
        }
        self.live[at..end].copy_from_slice(bytes);
        for sector in at / SECTOR..end.div_ceil(SECTOR) {
            let from = sector * SECTOR;
            let to = (from + SECTOR).min(self.live.len());
            let mut now = Box::new([0u8; SECTOR]);
            now[..to - from].copy_from_slice(&self.live[from..to]);
            self.pending.entry(sector).or_default().push(now);
        }
    }

    /// Brings to the medium what `keep` chooses of a sector's versions (how many there are → which,
    /// from 1; 0 is none of them), and grows the file to `len`.
    fn settle(&mut self, len: usize, mut keep: impl FnMut(usize) -> usize) {
        let len = len.max(self.durable.len());
        self.durable.resize(len, 0);
        for (sector, versions) in std::mem::take(&mut self.pending) {
            let kept = keep(versions.len());
            let from = sector * SECTOR;
            if kept == 0 || from >= len {
                continue;
            }
            let to = (from + SECTOR).min(len);
            self.durable[from..to].copy_from_slice(&versions[kept - 1][..to - from]);
        }
    }

    fn sync(&mut self) {
        let len = self.live.len();
        self.settle(len, |versions| versions);
    }

    fn lose(&mut self, rng: &mut Rng) {
        let grown = self.live.len().saturating_sub(self.durable.len());
        let more = match rng.below(3) {
            0 => 0,
            1 => grown,
            _ => rng.index(grown + 1),
        };
        let len = self.durable.len() + more;
        // All of it, nothing, or each sector for itself.
        match rng.below(4) {
            0 => self.settle(len, |versions| versions),
            1 => self.settle(len, |_| 0),
            _ => self.settle(len, |versions| rng.index(versions + 1)),
        }
    }
}

impl Disk {
    fn note(&mut self, verb: &str, path: &Path, detail: &str) {
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        self.recent.push_back(format!(
            "{:5} {verb} {} {detail}",
            self.operations,
            name.to_string_lossy()
        ));
    }

    fn turn(
        &mut self,
        life: u64,
        verb: &str,
        path: &Path,
        detail: std::fmt::Arguments<'_>,
    ) -> io::Result<Turn> {
        if life != self.life || self.over {
            return Err(gone());
        }
        self.operations += 1;
        let mut turn = Turn::Whole;
        if let Some((left, fault)) = &mut self.fault {
            if *left == 0 {
                turn = Turn::Fails(*fault);
                // Where the engine can take a frame back it refuses; elsewhere it may give up.
                self.failures += 1;
                self.refusals += u64::from(*fault == Fault::NoSpace);
                self.fault = None;
            } else {
                *left -= 1;
            }
        }
        if let Some((left, end)) = &mut self.fuse {
            if *left == 0 {
                self.ended = Some(*end);
                self.over = true;
                self.fuse = None;
                turn = Turn::Ends;
            } else {
                *left -= 1;
            }
        }
        let outcome = match turn {
            Turn::Whole => "",
            Turn::Fails(Fault::Io) => " FAILS",
            Turn::Fails(Fault::NoSpace) => " NO ROOM",
            Turn::Ends => " THE END",
        };
        self.note(verb, path, &format!("{detail}{outcome}"));
        Ok(turn)
    }

    /// A change of names that happens whole or not at all.
    fn names_turn(&mut self, life: u64, verb: &str, path: &Path) -> io::Result<bool> {
        match self.turn(life, verb, path, format_args!(""))? {
            Turn::Whole => Ok(true),
            Turn::Fails(fault) => Err(error(fault)),
            Turn::Ends => Ok(self.rng.one_in(2)),
        }
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        change.apply(&mut self.names);
        self.changes.push(change);
        if self.over { Err(gone()) } else { Ok(()) }
    }

    fn file(&self, path: &Path) -> Option<usize> {
        match self.names.get(path) {
            Some(Entry::File(inode)) => Some(*inode),
            _ => None,
        }
    }

    fn used(&self) -> u64 {
        self.used_by(None)
    }

    fn used_by(&self, extension: Option<&str>) -> u64 {
        let counted = |path: &Path| {
            extension.is_none_or(|wanted| path.extension().is_some_and(|e| e == wanted))
        };
        let files = self.names.iter().filter_map(|(path, entry)| match entry {
            Entry::File(inode) if counted(path) => Some(self.inodes[*inode].live.len() as u64),
            _ => None,
        });
        files.sum()
    }

    /// How long a file may get that wants to be `len` bytes.
    fn may_grow(&mut self, inode: usize, len: u64) -> u64 {
        let now = self.inodes[inode].live.len() as u64;
        let Some(room) = self.room else { return len };
        let most = now + room.saturating_sub(self.used());
        if len > now && len > most {
            self.refusals += 1;
            return most;
        }
        len
    }

    fn next_process(&mut self) {
        self.life += 1;
        self.over = false;
        self.ended = None;
        self.fuse = None;
        self.fault = None;
        self.probe = None;
        self.locked.clear();
    }

    fn death(&mut self) {
        for inode in &mut self.inodes {
            // The pages a failed sync gave up on may leave memory at any time.
            if inode.stale && self.rng.one_in(2) {
                let len = inode.live.len();
                inode.live.clone_from(&inode.durable);
                inode.live.resize(len, 0);
                for (sector, versions) in &inode.pending {
                    if let Some(last) = versions.last() {
                        let from = sector * SECTOR;
                        let to = (from + SECTOR).min(len);
                        inode.live[from..to].copy_from_slice(&last[..to - from]);
                    }
                }
                inode.stale = false;
            }
        }
        self.next_process();
    }

    fn cut(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        let journal = self.rng.one_in(2);
        let first = self.rng.index(changes.len() + 1);
        for (i, change) in changes.iter().enumerate() {
            let kept = if journal {
                i < first
            } else {
                self.rng.one_in(2)
            };
            if kept {
                change.apply(&mut self.durable_names);
            }
        }
        // What is in a directory that is not there is not there.
        while let Some(orphan) = self.durable_names.keys().find(|path| {
            path.parent()
                .is_some_and(|dir| self.durable_names.get(dir) != Some(&Entry::Dir))
        }) {
            let orphan = orphan.clone();
            self.durable_names.remove(&orphan);
        }
        for inode in &mut self.inodes {
            inode.lose(&mut self.rng);
            inode.live.clone_from(&inode.durable);
            inode.stale = false;
        }
        self.names.clone_from(&self.durable_names);
        self.next_process();
    }
}

impl SimDisk {
    /// An empty disk whose every accident follows from `rng`.
    #[must_use]
    pub fn new(rng: Rng) -> SimDisk {
        let root = Names::from([(PathBuf::from("/"), Entry::Dir)]);
        SimDisk {
            shared: Arc::new(Mutex::new(Disk {
                rng,
                inodes: Vec::new(),
                names: root.clone(),
                durable_names: root,
                changes: Vec::new(),
                locked: BTreeSet::new(),
                life: 0,
                over: false,
                fuse: None,
                ended: None,
                fault: None,
                room: None,
                operations: 0,
                failures: 0,
                refusals: 0,
                recent: VecDeque::new(),
                probe: None,
            })),
        }
    }

    /// The file system of the process that runs now.
    #[must_use]
    pub fn process(&self) -> Process {
        Process {
            shared: self.shared.clone(),
            life: lock(&self.shared).life,
        }
    }

    /// Ends the running process at the operation after `operations` more.
    pub fn set_fuse(&self, fuse: Option<(u64, End)>) {
        lock(&self.shared).fuse = fuse;
    }

    /// Fails the operation after `operations` more.
    pub fn set_fault(&self, fault: Option<(u64, Fault)>) {
        lock(&self.shared).fault = fault;
    }

    /// Bytes there is room for, where that is bounded.
    #[must_use]
    pub fn free(&self) -> Option<u64> {
        let disk = lock(&self.shared);
        disk.room.map(|room| room.saturating_sub(disk.used()))
    }

    /// Bytes of the files whose names end in `extension`.
    #[must_use]
    pub fn used_by(&self, extension: &str) -> u64 {
        lock(&self.shared).used_by(Some(extension))
    }

    /// Leaves room for `bytes` more than there are now, or for anything.
    pub fn set_free(&self, bytes: Option<u64>) {
        let mut disk = lock(&self.shared);
        disk.room = bytes.map(|bytes| disk.used() + bytes);
    }

    /// What is called before every sync of a file, on the thread that syncs.
    pub fn set_probe(&self, probe: Option<Probe>) {
        lock(&self.shared).probe = probe;
    }

    /// Whether the fuse has ended the running process, and how.
    #[must_use]
    pub fn ended(&self) -> Option<End> {
        lock(&self.shared).ended
    }

    /// Nothing the running process does reaches the disk any more.
    pub fn stop_process(&self) {
        lock(&self.shared).over = true;
    }

    /// The process ended and a new one may begin; the power stayed.
    pub fn next_process(&self) {
        lock(&self.shared).death();
    }

    /// The power went and came back.
    pub fn power_cut(&self) {
        let mut disk = lock(&self.shared);
        let operations = disk.operations;
        disk.recent.push_back(format!("{operations:5} power cut"));
        disk.cut();
    }

    /// Operations that were told to fail, and those that had no room, so far.
    #[must_use]
    pub fn failures(&self) -> (u64, u64) {
        let disk = lock(&self.shared);
        (disk.failures, disk.refusals)
    }

    /// Operations so far that change something or sync it.
    #[must_use]
    pub fn operations(&self) -> u64 {
        lock(&self.shared).operations
    }

    /// The last operations, for a report.
    #[must_use]
    pub fn recent(&self) -> Vec<String> {
        lock(&self.shared).recent.iter().cloned().collect()
    }

    /// Every file and its bytes as a process sees them.
    #[must_use]
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let disk = lock(&self.shared);
        let files = disk.names.iter().filter_map(|(path, entry)| match entry {
            Entry::File(inode) => Some((path.clone(), disk.inodes[*inode].live.clone())),
            Entry::Dir => None,
        });
        files.collect()
    }

    /// Changes files behind everybody's back, durably: `None` removes one.
    pub fn replace(&self, path: &Path, bytes: Option<Vec<u8>>) {
        let mut disk = lock(&self.shared);
        let change = match bytes {
            None => Change::Remove(path.to_owned()),
            Some(bytes) => {
                let inode = disk.inodes.len();
                disk.inodes.push(Inode {
                    live: bytes.clone(),
                    durable: bytes,
                    ..Inode::default()
                });
                Change::Add(path.to_owned(), Entry::File(inode))
            }
        };
        let mut names = std::mem::take(&mut disk.names);
        change.apply(&mut names);
        disk.names = names;
        change.apply(&mut disk.durable_names);
    }
}

impl Process {
    fn handle(&self, inode: usize, path: &Path) -> Arc<dyn File> {
        Arc::new(SimFile {
            shared: self.shared.clone(),
            life: self.life,
            inode,
            path: path.to_owned(),
        })
    }

    fn look(&self) -> io::Result<MutexGuard<'_, Disk>> {
        look(&self.shared, self.life)
    }
}

impl FileSystem for Process {
    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.look()?;
        let mut above: Vec<&Path> = dir.ancestors().collect();
        above.reverse();
        for dir in above {
            if !disk.names.contains_key(dir) && disk.names_turn(self.life, "mkdir", dir)? {
                disk.change(Change::Add(dir.to_owned(), Entry::Dir))?;
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let disk = self.look()?;
        if disk.names.get(dir) != Some(&Entry::Dir) {
            return Err(missing(dir));
        }
        let here = disk
            .names
            .iter()
            .filter(|(path, entry)| path.parent() == Some(dir) && **entry != Entry::Dir);
        Ok(here
            .filter_map(|(path, _)| Some(path.file_name()?.to_str()?.to_owned()))
            .collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut disk = self.look()?;
        if disk.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if disk.names_turn(self.life, "create", path)? {
            let inode = disk.inodes.len();
            disk.inodes.push(Inode::default());
            disk.change(Change::Add(path.to_owned(), Entry::File(inode)))?;
            return Ok(self.handle(inode, path));
        }
        Err(gone())
    }

    fn open(&self, path: &Path, _write: bool) -> io::Result<Arc<dyn File>> {
        let disk = self.look()?;
        let inode = disk.file(path).ok_or_else(|| missing(path))?;
        Ok(self.handle(inode, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.look()?;
        let inode = disk.file(from).ok_or_else(|| missing(from))?;
        if disk.names_turn(self.life, "rename to", to)? {
            let (from, to) = (from.to_owned(), to.to_owned());
            return disk.change(Change::Rename(from, to, Entry::File(inode)));
        }
        Err(gone())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.look()?;
        disk.file(path).ok_or_else(|| missing(path))?;
        if disk.names_turn(self.life, "remove", path)? {
            return disk.change(Change::Remove(path.to_owned()));
        }
        Err(gone())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.look()?;
        if disk.names.get(dir) != Some(&Entry::Dir) {
            return Err(missing(dir));
        }
        if disk.names_turn(self.life, "sync dir", dir)? {
            let changes = std::mem::take(&mut disk.changes);
            let (here, elsewhere): (Vec<Change>, Vec<Change>) = changes
                .into_iter()
                .partition(|change| change.path().parent() == Some(dir));
            for change in here {
                change.apply(&mut disk.durable_names);
            }
            disk.changes = elsewhere;
        }
        if disk.over { Err(gone()) } else { Ok(()) }
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let exists = self.look()?.names.contains_key(path);
        if !exists {
            self.create(path)?;
        }
        if !self.look()?.locked.insert(path.to_owned()) {
            return Ok(None);
        }
        Ok(Some(Box::new(SimLock {
            shared: self.shared.clone(),
            life: self.life,
            path: path.to_owned(),
        })))
    }

    fn available_space(&self, _dir: &Path) -> io::Result<u64> {
        let disk = self.look()?;
        Ok(disk
            .room
            .map_or(u64::MAX, |room| room.saturating_sub(disk.used())))
    }

    fn random(&self, out: &mut [u8]) -> io::Result<()> {
        let mut disk = self.look()?;
        for byte in out {
            *byte = disk.rng.next() as u8;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SimLock {
    shared: Arc<Mutex<Disk>>,
    life: u64,
    path: PathBuf,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut disk = lock(&self.shared);
        if disk.life == self.life {
            disk.locked.remove(&self.path);
        }
    }
}

#[derive(Debug)]
struct SimFile {
    shared: Arc<Mutex<Disk>>,
    life: u64,
    inode: usize,
    path: PathBuf,
}

impl SimFile {
    fn look(&self) -> io::Result<MutexGuard<'_, Disk>> {
        look(&self.shared, self.life)
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let disk = self.look()?;
        let Some(from) = disk.inodes[self.inode].live.get(at as usize..) else {
            return Ok(0);
        };
        let n = from.len().min(buffer.len());
        buffer[..n].copy_from_slice(&from[..n]);
        Ok(n)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut disk = self.look()?;
        let detail = format_args!("{} at {at}", bytes.len());
        let turn = disk.turn(self.life, "write", &self.path, detail)?;
        let at = at as usize;
        let (most, answer) = match turn {
            Turn::Whole => {
                let end = (at + bytes.len()) as u64;
                let grown = disk.may_grow(self.inode, end);
                let fits = (grown as usize).saturating_sub(at).min(bytes.len());
                let full = fits < bytes.len();
                let answer = if full {
                    Err(error(Fault::NoSpace))
                } else {
                    Ok(())
                };
                (fits, answer)
            }
            Turn::Fails(fault) => (part(&mut disk.rng, bytes.len()), Err(error(fault))),
            Turn::Ends => (part(&mut disk.rng, bytes.len()), Err(gone())),
        };
        disk.inodes[self.inode].write(&bytes[..most], at);
        answer
    }

    fn sync_data(&self) -> io::Result<()> {
        let probe = self.look()?.probe.clone();
        if let Some(probe) = probe {
            probe();
        }
        let mut disk = self.look()?;
        let turn = disk.turn(self.life, "sync", &self.path, format_args!(""))?;
        let Disk { rng, inodes, .. } = &mut *disk;
        let inode = &mut inodes[self.inode];
        match turn {
            Turn::Whole => {
                inode.sync();
                Ok(())
            }
            Turn::Fails(_) => {
                inode.lose(rng);
                inode.stale = true;
                // Whatever kept a sync from working, what is left of it is not known.
                Err(error(Fault::Io))
            }
            Turn::Ends => {
                if rng.one_in(2) {
                    inode.sync();
                }
                Err(gone())
            }
        }
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut disk = self.look()?;
        let detail = format_args!("{len}");
        match disk.turn(self.life, "allocate", &self.path, detail)? {
            Turn::Fails(fault) => return Err(error(fault)),
            Turn::Ends => return Err(gone()),
            Turn::Whole => {}
        }
        if disk.may_grow(self.inode, len) < len {
            return Err(error(Fault::NoSpace));
        }
        let live = &mut disk.inodes[self.inode].live;
        if live.len() < len as usize {
            live.resize(len as usize, 0);
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.look()?.inodes[self.inode].live.len() as u64)
    }
}

/// How much of a failed write arrived.
fn part(rng: &mut Rng, len: usize) -> usize {
    match rng.below(4) {
        0 => 0,
        1 | 2 => len,
        _ => rng.index(len + 1),
    }
}
