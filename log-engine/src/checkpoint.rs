//! Footers and checkpoints: what lets a log be opened without reading its history.
//!
//! Neither is a witness of anything: a log opens without them, and gives the same state, only
//! slower. But a checkpoint names an LSN that was durable before the checkpoint was, so a log that
//! ends short of it has lost something (promise 6).
//!
//! Commits go on meanwhile; see `state/checkpoint.rs` for why a copy that is of no one moment is
//! right.

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use crate::batch::TidyStep;
use crate::breakage::{self, Breakage};
use crate::engine::{Engine, Shared};
use crate::format::{CheckpointHeader, CheckpointTrailer, Chunk, Footer, MAX_FOOTER_BYTES};
use crate::latch::Failure;
use crate::segment::{Layout, Segment, at_path, writer_name};
use crate::state::{Content, Cursor};
use crate::storage::File;
use crate::sync::{Arc, lock, read};
use crate::tidy::as_batch;
use crate::writer::unix_ms;

/// A checkpoint that was written, or that the log was opened from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpointed {
    /// The LSN it reaches, which is its name.
    pub reaches: u64,
    /// Number of the segment a replay begins with.
    pub segment: u64,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// Why there is no new checkpoint. Nothing was lost by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointFailure {
    /// What could not be done to which file.
    Io(String),
    /// The engine keeps nothing more.
    Failed(Failure),
}

impl std::fmt::Display for CheckpointFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CheckpointFailure::Io(why) => f.write_str(why),
            CheckpointFailure::Failed(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for CheckpointFailure {}

/// How many times its own size the log grows before the next checkpoint, unless it is bounded: what
/// is written for checkpoints stays a fraction of what is written for callers.
const GROWTH: u64 = 4;

impl Engine {
    /// Writes the footers that are missing and a checkpoint, without stopping commits. Called from a
    /// thread of the engine's own as the log grows and when it is closed, or by whoever runs an
    /// engine without that thread.
    ///
    /// # Errors
    /// [`CheckpointFailure`]; the next call tries again.
    pub fn checkpoint(&self) -> Result<Checkpointed, CheckpointFailure> {
        self.shared.checkpoint(false)
    }
}

impl Shared {
    /// Writes a checkpoint if enough was committed since the last one.
    pub(crate) fn checkpoint_if_due(&self) -> Result<(), CheckpointFailure> {
        let segments = self.segments.snapshot();
        let [sealed @ .., newest] = segments.as_slice() else {
            return Ok(());
        };
        let due = match *lock(&self.checkpointing) {
            None => !sealed.is_empty(),
            Some(last) => {
                let since = sealed.iter().filter(|s| s.header.number >= last.segment);
                let bytes: u64 = since.map(|s| s.header.capacity).sum();
                let enough = (GROWTH * last.bytes).min(self.checkpoint_bytes);
                newest.header.number > last.segment && bytes >= enough
            }
        };
        if due {
            self.checkpoint(false)?;
        }
        Ok(())
    }

    /// `closed` says that the commit thread is gone, and synced everything before it went.
    pub(crate) fn checkpoint(&self, closed: bool) -> Result<Checkpointed, CheckpointFailure> {
        if let Some(failure) = self.latch.get() {
            return Err(CheckpointFailure::Failed(failure));
        }
        // One at a time; and nobody else removes checkpoints.
        let mut last = lock(&self.checkpointing);
        // Whoever sees a segment sees a state that is at its prologue or later.
        let segments = self.segments.snapshot();
        let [sealed @ .., newest] = segments.as_slice() else {
            return Err(CheckpointFailure::Io("the log has no segment".to_owned()));
        };
        for segment in sealed.iter().filter(|s| s.footer.load(Relaxed) == 0) {
            self.write_footer(segment, &segments)?;
        }
        let written = self.write_checkpoint(newest, closed)?;
        let before = last.replace(written);
        let bytes = written.bytes + before.map_or(0, |c| c.bytes);
        self.room.set_checkpoints(bytes);
        let kept = [Some(written.reaches), before.map(|c| c.reaches)];
        self.remove_checkpoints_but(&kept);
        Ok(written)
    }

    /// Says at the end of a sealed segment where the records in it lie.
    fn write_footer(
        &self,
        segment: &Segment,
        segments: &[Arc<Segment>],
    ) -> Result<(), CheckpointFailure> {
        let next = segments.partition_point(|s| s.header.number <= segment.header.number);
        let (Some(&seal), Some(next)) = (segment.seal.get(), segments.get(next)) else {
            return Ok(());
        };
        let mut footer = Footer {
            segment: segment.header.number,
            seal,
            last_lsn: next.header.first_lsn - 1,
            channels: Vec::new(),
        };
        {
            let published = read(&self.published);
            for (id, channel) in published.state.channels() {
                if let Content::Sequence(index) = &channel.content {
                    let runs = index.in_segment(segment.number()).copied();
                    let mut runs: Vec<_> = runs.collect();
                    if breakage::is(Breakage::SkipFooterRuns) {
                        runs.pop();
                    }
                    if !runs.is_empty() {
                        footer.channels.push((id, runs));
                    }
                }
            }
        }
        let bytes = footer.encode(segment.header.salt);
        if bytes.len() > MAX_FOOTER_BYTES {
            return Ok(());
        }
        let file = &segment.file;
        let written = file.write_all_at(&bytes, segment.header.capacity);
        // A footer that a cut tears does not verify and is written again. Synced all the same: the
        // checkpoint that counts on it is to find it.
        written
            .and_then(|()| file.sync_data())
            .map_err(|e| failed("write the footer of", &segment.path, &e))?;
        segment.footer.store(bytes.len() as u64, Relaxed);
        Ok(())
    }

    fn write_checkpoint(
        &self,
        newest: &Segment,
        closed: bool,
    ) -> Result<Checkpointed, CheckpointFailure> {
        let dir = self.layout.checkpoint_dir();
        self.fs
            .create_dir_all(&dir)
            .and_then(|()| self.fs.sync_dir(self.layout.root()))
            .map_err(|e| failed("make", &dir, &e))?;
        let scratch = self.layout.checkpoint_scratch_path();
        // Left by an attempt that failed; whatever it holds counts for nothing.
        let _ = self.fs.remove(&scratch);
        let file = self.fs.create(&scratch);
        let file = file.map_err(|e| failed("make", &scratch, &e))?;
        let header = CheckpointHeader {
            engine_id: newest.header.engine_id,
            segment: newest.header.number,
            first_lsn: newest.header.first_lsn,
            written_at: unix_ms(),
            writer: writer_name(),
        };
        let written = self.copy_state(&*file, &header, closed);
        let written = written.map_err(|why| {
            let _ = self.fs.remove(&scratch);
            CheckpointFailure::Io(why)
        })?;
        let path = self.layout.checkpoint_path(written.reaches);
        // File first, then its name, then the directory; only then may an older one go.
        self.fs
            .rename(&scratch, &path)
            .map_err(|e| failed("rename", &scratch, &e))?;
        self.fs
            .sync_dir(&dir)
            .map_err(|e| failed("sync the directory of", &path, &e))?;
        Ok(written)
    }

    /// Writes the whole file, durably, under its scratch name.
    fn copy_state(
        &self,
        file: &dyn File,
        header: &CheckpointHeader,
        closed: bool,
    ) -> Result<Checkpointed, String> {
        let scratch = self.layout.checkpoint_scratch_path();
        let io = |e| at_path("write", &scratch, &e);
        let mut out = Out {
            file,
            at: 0,
            crc: 0,
        };
        out.write(&header.encode()).map_err(io)?;
        let begin = out.at;
        let mut chunks = 0;
        let mut cursor = Cursor::START;
        while let Some(chunk) = self.next_chunk(&mut cursor) {
            let bytes = chunk.encode().map_err(|e| e.to_string())?;
            out.write(&bytes).map_err(io)?;
            chunks += 1;
        }
        // Read after the last copy: whatever is in the copy was at or before this. It is made durable
        // before a checkpoint says that it is.
        let reaches = read(&self.published).last_lsn;
        if !closed && !breakage::is(Breakage::UnflushedCheckpoint) {
            let flush = as_batch(vec![TidyStep::Flush]);
            self.submit(flush).wait().map_err(|e| e.to_string())?;
        }
        let trailer = CheckpointTrailer {
            crc: 0,
            chunks,
            reaches,
            chunk_bytes: out.at - begin,
        };
        out.write(&trailer.encode(out.crc)).map_err(io)?;
        if !breakage::is(Breakage::SkipCheckpointSync) {
            file.sync_data()
                .map_err(|e| at_path("sync", &scratch, &e))?;
        }
        Ok(Checkpointed {
            reaches,
            segment: header.segment,
            bytes: out.at,
        })
    }

    fn next_chunk(&self, cursor: &mut Cursor) -> Option<Chunk> {
        let most = self.checkpoint_entries;
        read(&self.published).state.chunk(cursor, most)
    }

    /// Best effort: one that stays is removed the next time.
    fn remove_checkpoints_but(&self, kept: &[Option<u64>]) {
        let dir = self.layout.checkpoint_dir();
        let Ok(names) = self.fs.list(&dir) else {
            return;
        };
        for name in names {
            let reaches = Layout::parse_checkpoint_name(&name);
            if reaches.is_some() && !kept.contains(&reaches) {
                let path = dir.join(name);
                if let Err(error) = self.fs.remove(&path) {
                    tracing::warn!(path = %path.display(), %error, "an old checkpoint could not be removed");
                }
            }
        }
    }
}

fn failed(doing: &str, path: &Path, error: &std::io::Error) -> CheckpointFailure {
    CheckpointFailure::Io(at_path(doing, path, error))
}

/// A file written from its beginning, its checksum kept.
struct Out<'f> {
    file: &'f dyn File,
    at: u64,
    crc: u32,
}

impl Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        Ok(())
    }
}
