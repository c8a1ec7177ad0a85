//! What of the broadcast log a group is still to hand out, as the store knows it.
//!
//! `taken_to` rises with every message; *pending* are those below it that no member's window names.
//! A member's window and the ledger are written in one batch, so that a message is the group's to
//! hand out or a member's to be sent, and never both: at QoS 2 both would be twice.
//!
//! | a message of the log | in the ledger |
//! |---|---|
//! | came, and is held or waits in a member's queue | pending |
//! | goes out to a member whose session is kept | pending until the member's window is written |
//! | goes out to one whose session is not | pending until it is acknowledged |
//! | comes back from a session that ends | pending again, before the session's end is stored |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::broker::open::OpenError;
use crate::broker::restore::{Entry, owed};
use crate::broker::session::broadcast::BroadcastDelivery;
use crate::broker::session::inflight::{Held, Phase};
use crate::broker::session::{Session, State};
use crate::broker::time::Now;
use crate::broker::{Broker, lock};
use crate::storage::{Batch, Operation, Space};

use super::Group;
use super::offsets::Offsets;

/// The version this build writes, and the only one it reads.
const VERSION: u8 = 1;

/// Where a group is.
#[derive(Debug)]
pub(super) struct Ledger {
    taken_to: u64,
    pending: Offsets,
    /// It differs from what the store has by what need not be there at once.
    behind: bool,
    stored: bool,
}

/// A ledger as stored.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LedgerRecord {
    version: u8,
    taken_to: u64,
    /// Runs of offsets: how many lie between it and the run before, and how many it has.
    pending: Vec<(u64, u64)>,
}

impl LedgerRecord {
    fn encode(&self) -> Bytes {
        // Numbers that are all in memory: writing them down cannot fail.
        bincode::serde::encode_to_vec(self, bincode::config::standard())
            .unwrap_or_default()
            .into()
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.first() != Some(&VERSION) {
            return Err(format!(
                "its ledger is not of version {VERSION}; start the version that wrote it"
            ));
        }
        let limit = bincode::config::standard().with_limit::<{ 4 * 1024 * 1024 }>();
        let (record, read) = bincode::serde::decode_from_slice(bytes, limit)
            .map_err(|error| format!("its ledger could not be read: {error}"))?;
        if read != bytes.len() {
            return Err("its ledger goes on past its end".into());
        }
        Ok(record)
    }
}

impl Ledger {
    /// Of a group that begins: nothing from before is its.
    pub fn beginning(next: u64) -> Self {
        Ledger {
            taken_to: next,
            pending: Offsets::default(),
            behind: false,
            stored: false,
        }
    }

    /// Whether the store may have it.
    pub fn is_stored(&self) -> bool {
        self.stored
    }
}

impl Group {
    /// A message of the log is the group's.
    pub(super) fn takes_on(&self, offset: u64) {
        let mut ledger = lock(&self.ledger);
        ledger.taken_to = ledger.taken_to.max(offset + 1);
        ledger.pending.insert(offset);
    }

    /// A message that was the group's is nobody's any more, or is delivered.
    pub(crate) fn is_done_with(&self, delivery: &BroadcastDelivery) {
        if let Some(logged) = &delivery.logged {
            let mut ledger = lock(&self.ledger);
            let was_pending = ledger.pending.remove(logged.offset);
            ledger.behind |= was_pending;
        }
    }

    /// Called with `writing` held: the end of a group is stored under it as well, and nothing of the
    /// group behind that.
    fn put_ledger(&self) -> Option<Operation> {
        if self.has_ended.load(Relaxed) {
            return None;
        }
        let mut ledger = lock(&self.ledger);
        ledger.behind = false;
        ledger.stored = true;
        Some(Operation::Put {
            space: Space::Groups,
            key: Bytes::copy_from_slice(self.name.as_bytes()),
            value: LedgerRecord {
                version: VERSION,
                taken_to: ledger.taken_to,
                pending: ledger.pending.runs(),
            }
            .encode(),
        })
    }
}

impl Broker {
    /// A durable session subscribes: where the group is, is stored before its membership.
    pub(crate) fn store_group(&self, name: &str, session: &Session) {
        if let Some(group) = self.groups.by_name(name) {
            let _writing = lock(&self.groups.writing);
            let operations = group.put_ledger().into_iter().collect();
            self.submit_session_write(&session.client_id, Batch { operations });
        }
    }

    /// Hands a session's window to the store, and with it the ledgers of the groups whose messages
    /// go out with it.
    pub(crate) fn submit_window(
        &self,
        session: &Session,
        state: &mut State,
        done: crate::storage::Completion,
    ) {
        let handed_out = std::mem::take(&mut state.shared_unstored);
        let mut batch = Batch::from(session.put_window(state));
        if handed_out.is_empty() {
            return self.session_store.submit(batch, done);
        }
        let _writing = lock(&self.groups.writing);
        let mut groups: BTreeMap<u64, Arc<Group>> = BTreeMap::new();
        for (group, offset) in handed_out {
            lock(&group.ledger).pending.remove(offset);
            groups.insert(group.number, group);
        }
        let ledgers = groups.values().filter_map(|group| group.put_ledger());
        batch.operations.extend(ledgers);
        self.session_store.submit(batch, done);
    }

    /// The session is about to end in the store: what comes back from it is its groups' before that.
    pub(crate) fn store_returns(&self, session: &Session, state: &State) {
        let mut groups: BTreeMap<u64, Arc<Group>> = BTreeMap::new();
        for on_its_way in state.inflight.on_their_way() {
            if let (Held::Broadcast(delivery), Phase::Published, 1) =
                (on_its_way.held, on_its_way.phase, on_its_way.qos)
                && let (Some(group), Some(logged)) = (delivery.group, &delivery.logged)
            {
                lock(&group.ledger).pending.insert(logged.offset);
                groups.insert(group.number, group);
            }
        }
        if groups.is_empty() {
            return;
        }
        let _writing = lock(&self.groups.writing);
        let operations = groups
            .values()
            .filter_map(|group| group.put_ledger())
            .collect();
        self.submit_session_write(&session.client_id, Batch { operations });
    }

    /// Stores what moved in ledgers without a member's window.
    pub(super) fn store_ledgers(&self) {
        for group in self.groups.all() {
            let behind = {
                let ledger = lock(&group.ledger);
                ledger.behind && ledger.stored
            };
            if behind {
                let _writing = lock(&self.groups.writing);
                let operations = group.put_ledger().into_iter().collect();
                self.submit_session_write(&group.name, Batch { operations });
            }
        }
    }

    /// Where the groups were, for those that have members again. Others are gone.
    pub(in crate::broker) fn restore_ledgers(&self) -> Result<(), OpenError> {
        for (key, value) in self.session_store.scan(Space::Groups, &[]) {
            let name = String::from_utf8_lossy(&key).into_owned();
            let record = LedgerRecord::decode(&value).map_err(|why| OpenError::Session {
                client_id: name.clone(),
                why,
            })?;
            let Some(group) = self.groups.by_name(&name) else {
                let delete = Operation::Delete {
                    space: Space::Groups,
                    key,
                };
                self.submit_session_write(&name.as_str().into(), delete.into());
                continue;
            };
            let mut ledger = lock(&group.ledger);
            ledger.taken_to = record.taken_to;
            ledger.pending = Offsets::of_runs(&record.pending);
            ledger.stored = true;
        }
        Ok(())
    }

    /// A message that a member had on its way is that member's, or the group's again.
    pub(in crate::broker) fn restore_handed_out(&self, group: &str, offset: u64, is_back: bool) {
        if let Some(group) = self.groups.by_name(group) {
            let mut ledger = lock(&group.ledger);
            if is_back {
                ledger.pending.insert(offset);
                ledger.behind = true;
            } else {
                ledger.pending.remove(offset);
            }
        }
    }

    /// Owes an entry of the log to every group that it is still the business of.
    pub(in crate::broker) fn owe_to_groups(&self, (message, logged): &Entry, now: Now) {
        let topic = crate::broker::publish::text(&message.topic);
        for group in self.groups.matching(topic) {
            let is_owed = {
                let ledger = lock(&group.ledger);
                logged.offset >= ledger.taken_to || ledger.pending.contains(logged.offset)
            };
            if is_owed && group.holds() {
                group.takes_on(logged.offset);
                let mut delivery = owed(message, logged, now);
                delivery.group = Some(group.clone());
                let mut line = lock(&group.line);
                self.hold_in_line(&group, &mut line, delivery);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_reads_back_as_written_and_every_cut_is_seen() {
        let sample = || LedgerRecord {
            version: VERSION,
            taken_to: 700,
            pending: vec![(3, 1), (496, 2)],
        };
        let encoded = sample().encode();
        assert_eq!(LedgerRecord::decode(&encoded), Ok(sample()));
        for cut in 0..encoded.len() {
            assert!(
                LedgerRecord::decode(&encoded[..cut]).is_err(),
                "cut at {cut}"
            );
        }
        assert!(LedgerRecord::decode(&[2, 0, 0]).is_err());
    }
}
