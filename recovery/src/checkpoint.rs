//! Finding a checkpoint that holds, and taking it into a state.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use saguin_log_engine::format::{
    CHECKPOINT_HEADER_BYTES, CHECKPOINT_TRAILER_BYTES, CheckpointError, CheckpointHeader,
    CheckpointTrailer, Chunk, Footer, FooterError, MAX_CHUNK_BYTES, MAX_FOOTER_BYTES, Op,
};
use saguin_log_engine::scan::Scanner;
use saguin_log_engine::state::State;
use saguin_log_engine::storage::{File, FileSystem, read_full_at};
use saguin_log_engine::{Checkpointed, Layout, Segment};

use crate::error::{RecoverError, io};
use crate::walk::hex;

/// Bytes read at once while a checkpoint is verified.
const READ_BYTES: usize = 1 << 20;

/// A checkpoint whose checksums hold and that is this log's.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Its file.
    pub path: PathBuf,
    /// How it begins.
    pub header: CheckpointHeader,
    /// How it ends.
    pub trailer: CheckpointTrailer,
    file: Arc<dyn File>,
    bytes: u64,
}

/// A file among the checkpoints that is none of this log, or is damaged. Nothing is lost by it: the
/// log says everything itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// What the directory of checkpoints holds.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    /// Those with a checkpoint's name, newest first, with the LSN in it.
    named: Vec<(u64, PathBuf)>,
    /// Files that are on the way to becoming one, or nothing of the kind.
    pub(crate) others: Vec<PathBuf>,
}

/// Lists the checkpoints without opening any.
pub(crate) fn list(fs: &dyn FileSystem, layout: &Layout) -> Result<Listed, RecoverError> {
    let dir = layout.checkpoint_dir();
    let names = match fs.list(&dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Listed::default()),
        other => other.map_err(io("list", &dir))?,
    };
    let mut listed = Listed::default();
    for name in names {
        match Layout::parse_checkpoint_name(&name) {
            Some(reaches) => listed.named.push((reaches, dir.join(&name))),
            None => listed.others.push(dir.join(&name)),
        }
    }
    listed.named.sort();
    listed.named.reverse();
    Ok(listed)
}

impl Listed {
    /// A file with a checkpoint's name, if there is one: then there was a log.
    pub(crate) fn any(&self) -> Option<&Path> {
        self.named.first().map(|(_, path)| path.as_path())
    }

    /// The newest checkpoint of a log that holds, and those newer than it that do not.
    pub(crate) fn newest(
        &self,
        fs: &dyn FileSystem,
        engine_id: &[u8; 16],
    ) -> (Option<Checkpoint>, Vec<Rejected>) {
        let mut rejected = Vec::new();
        for (reaches, path) in &self.named {
            let holds = verified(fs, path, *reaches)
                .and_then(|checkpoint| checkpoint.is_of(engine_id).map(|()| checkpoint));
            match holds {
                Ok(checkpoint) => return (Some(checkpoint), rejected),
                Err(why) => rejected.push(Rejected {
                    path: path.clone(),
                    why,
                }),
            }
        }
        (None, rejected)
    }
}

/// Opens a checkpoint and verifies every byte of it before any is used.
fn verified(fs: &dyn FileSystem, path: &Path, reaches: u64) -> Result<Checkpoint, String> {
    let io = |e: std::io::Error| e.to_string();
    let file = fs.open(path, false).map_err(io)?;
    let bytes = file.len().map_err(io)?;
    let cut = CheckpointError::Shape("cut short").to_string();
    let end = bytes.checked_sub((CHECKPOINT_HEADER_BYTES + CHECKPOINT_TRAILER_BYTES) as u64);
    let chunk_bytes = end.ok_or(cut)?;
    let mut head = [0u8; CHECKPOINT_HEADER_BYTES];
    read_full_at(&*file, &mut head, 0).map_err(io)?;
    let header = CheckpointHeader::decode(&head).map_err(|e| e.to_string())?;
    let end = bytes - CHECKPOINT_TRAILER_BYTES as u64;
    let mut tail = [0u8; CHECKPOINT_TRAILER_BYTES];
    read_full_at(&*file, &mut tail, end).map_err(io)?;
    // Before all of it is read: whatever a file's length is, it may have been made so.
    if !CheckpointTrailer::ends(&tail, chunk_bytes) {
        return Err(CheckpointError::Shape("its end is not where it should be").to_string());
    }
    let (mut crc, mut at) = (0, 0);
    let mut block = vec![0u8; READ_BYTES.min(end as usize)];
    while at < end {
        let want = (end - at).min(block.len() as u64) as usize;
        let read = read_full_at(&*file, &mut block[..want], at).map_err(io)?;
        if read < want {
            return Err("it became shorter while it was read".to_owned());
        }
        crc = crc32c::crc32c_append(crc, &block[..want]);
        at += want as u64;
    }
    let trailer = CheckpointTrailer::decode(&tail, crc).map_err(|e| e.to_string())?;
    if trailer.reaches != reaches {
        return Err(format!(
            "its name says that it reaches frame {reaches}, it says {}; was it renamed?",
            trailer.reaches
        ));
    }
    if trailer.chunk_bytes != chunk_bytes {
        return Err(CheckpointError::Shape("its length is not what it says").to_string());
    }
    let file = file.clone();
    Ok(Checkpoint {
        path: path.to_owned(),
        header,
        trailer,
        file,
        bytes,
    })
}

impl Checkpoint {
    /// What the engine has to know of it.
    pub(crate) fn summary(&self) -> Checkpointed {
        Checkpointed {
            reaches: self.trailer.reaches,
            segment: self.header.segment,
            bytes: self.bytes,
        }
    }

    /// Whether it is of the log these segments belong to; else why not.
    fn is_of(&self, engine_id: &[u8; 16]) -> Result<(), String> {
        if self.header.engine_id == *engine_id {
            return Ok(());
        }
        Err(format!(
            "it belongs to log {}, this directory is log {}",
            hex(&self.header.engine_id),
            hex(engine_id)
        ))
    }

    /// Where in a list of segments the replay begins; `None` where that segment is gone.
    pub(crate) fn start(&self, segments: &[Arc<Segment>]) -> Option<usize> {
        segments.iter().position(|s| {
            s.header.number == self.header.segment && s.header.first_lsn == self.header.first_lsn
        })
    }

    /// Takes it into a state that is at its segment's prologue. Everything was verified when it was
    /// found, so what does not fit now is a defect or worse: whoever calls replays the log instead.
    pub(crate) fn load(&self, state: &mut State) -> Result<(), String> {
        let segment = u32::try_from(self.header.segment).map_err(|e| e.to_string())?;
        let mut at = CHECKPOINT_HEADER_BYTES as u64;
        let mut bytes = Vec::new();
        for _ in 0..self.trailer.chunks {
            let mut len = [0u8; 4];
            read_full_at(&*self.file, &mut len, at).map_err(|e| e.to_string())?;
            let len = u32::from_le_bytes(len) as usize;
            // Before memory is taken for it.
            if len > MAX_CHUNK_BYTES {
                return Err(format!("a chunk of {len} bytes is larger than one may be"));
            }
            bytes.resize(len, 0);
            let read = read_full_at(&*self.file, &mut bytes, at + 4);
            if read.map_err(|e| e.to_string())? < len {
                return Err("it became shorter while it was read".to_owned());
            }
            let chunk = Chunk::decode(&bytes).map_err(|e| e.to_string())?;
            state.load(chunk, segment).map_err(|e| e.to_string())?;
            at += 4 + len as u64;
        }
        Ok(())
    }
}

/// The footer of a sealed segment, if it has one that holds and the seal is where it says.
pub(crate) fn footer(segment: &Segment) -> Result<Footer, String> {
    let io = |e: std::io::Error| e.to_string();
    let len = segment.file.len().map_err(io)?;
    let size = len.saturating_sub(segment.header.capacity);
    if size > MAX_FOOTER_BYTES as u64 {
        return Err(FooterError::Trailer.to_string());
    }
    let mut bytes = vec![0u8; size as usize];
    let read = read_full_at(&*segment.file, &mut bytes, segment.header.capacity).map_err(io)?;
    let footer = Footer::decode(&bytes[..read], segment.header.salt, segment.number());
    let footer = footer.map_err(|e| e.to_string())?;
    let mut scanner = Scanner::new(
        &*segment.file,
        segment.header.salt,
        footer.seal,
        segment.header.capacity,
    );
    match scanner.next() {
        Ok(Some((_, frame))) if frame.header.lsn == footer.last_lsn => {
            let next_segment = segment.header.number + 1;
            let mut operations = frame.operations();
            match operations.next() {
                Some(Ok(Op::Seal { next_segment: n })) if n == next_segment => Ok(footer),
                _ => Err("the frame it names does not seal the segment".to_owned()),
            }
        }
        Ok(_) => Err("the frame it names is another one".to_owned()),
        Err(error) => Err(format!("the frame it names does not verify: {error}")),
    }
}
