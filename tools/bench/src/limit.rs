//! The physical limit: what one write and one sync of the same bytes take on the disk that is measured.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::latency::Latencies;

/// The file that is written to; every block of it was written before, so that a sync is one of data alone.
const FILE_BYTES: usize = 4 * 1024 * 1024;
/// At most this long, and at least this often.
const AT_MOST: Duration = Duration::from_millis(300);
const AT_LEAST: u64 = 20;
/// What `statfs` calls a file system that is memory.
const TMPFS: i64 = 0x0102_1994;

/// How long a positioned write of `bytes` bytes and its data sync take in `dir`.
///
/// # Errors
/// The disk's.
pub fn one_sync(dir: &Path, bytes: usize) -> Result<Latencies, Failure> {
    let failed = || Failure::system("measure one sync in --dir");
    let file = tempfile::tempfile_in(dir).map_err(failed())?;
    let zeros = vec![0; FILE_BYTES.max(bytes)];
    file.write_all_at(&zeros, 0).map_err(failed())?;
    file.sync_all().map_err(failed())?;
    let record = vec![b'.'; bytes];
    let mut latencies = Latencies::default();
    let (begun, mut at) = (Instant::now(), 0);
    while latencies.count() < AT_LEAST || begun.elapsed() < AT_MOST {
        let started = Instant::now();
        write_and_sync(&file, &record, at).map_err(failed())?;
        latencies.record(started.elapsed());
        at = (at + bytes) % (zeros.len() - bytes + 1);
    }
    Ok(latencies)
}

fn write_and_sync(file: &File, record: &[u8], at: usize) -> std::io::Result<()> {
    file.write_all_at(record, at as u64)?;
    file.sync_data()
}

/// Whether a directory is in memory, where a sync costs nothing and means nothing.
pub fn is_memory(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|fs| fs.f_type == TMPFS)
}
