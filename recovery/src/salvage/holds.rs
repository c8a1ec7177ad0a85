//! Records that are held back, read back from where they lie.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bytes::Bytes;
use saguin_log_engine::format::{Op, RecordRef};
use saguin_log_engine::scan::{ScanError, Scanner};
use saguin_log_engine::state::Location;

use super::Salvage;
use crate::stored::{ReadFault, fault};

/// Takes a key and its record.
type Sink<'s, E> = dyn FnMut(&[u8], RecordRef<'_>) -> Result<(), E> + 's;

impl Salvage {
    /// Shows every record that is held back and can be read to `sink`, each frame being read once.
    ///
    /// # Errors
    /// [`ReadFault`] where one that was read before cannot be read now, or what `sink` answers.
    pub fn each_hold<E: From<ReadFault>>(&self, sink: &mut Sink<'_, E>) -> Result<(), E> {
        let mut frames: BTreeMap<Location, BTreeSet<&Bytes>> = BTreeMap::new();
        for (key, entry) in &self.model.holds.entries {
            frames.entry(entry.at).or_default().insert(key);
        }
        for (at, keys) in frames {
            self.holds_in(at, &keys, sink)?;
        }
        Ok(())
    }

    fn holds_in<E: From<ReadFault>>(
        &self,
        at: Location,
        keys: &BTreeSet<&Bytes>,
        sink: &mut Sink<'_, E>,
    ) -> Result<(), E> {
        let position = u64::from(at.frame);
        let Some(segment) = self.handles.iter().find(|s| s.number() == at.segment) else {
            let why = format!(
                "a record that is held back should be in segment {}, which is not there",
                at.segment
            );
            return Err(fault(Path::new(""), position, &why).into());
        };
        let bad = |why: &dyn std::fmt::Display| fault(&segment.path, position, why);
        let len = segment.file.len().map_err(|e| bad(&e))?;
        let end = len.min(segment.header.capacity);
        let mut scanner = Scanner::new(&*segment.file, segment.header.salt, position, end);
        let frame = scanner.next().map_err(|e| match &e {
            ScanError::Io { error, .. } => bad(error),
            ScanError::Frame { error, .. } => bad(error),
        })?;
        let mut found = BTreeMap::new();
        for op in frame.iter().flat_map(|(_, frame)| frame.operations()) {
            // A key that was held, dropped and held again in one frame: the last one is alive.
            if let Op::Hold { key, record } | Op::MoveHold { key, record } =
                op.map_err(|e| bad(&e))?
                && keys.contains(&Bytes::copy_from_slice(key))
            {
                found.insert(key, record);
            }
        }
        if found.len() < keys.len() {
            return Err(bad(&"records that are held back should be here and are not").into());
        }
        found
            .into_iter()
            .try_for_each(|(key, record)| sink(key, record))
    }
}
