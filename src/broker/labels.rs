//! The broker's own User Properties on a SUBSCRIBE.

use std::sync::Arc;

use super::packet::Subscribe;
use super::reason::{Reason, Refusal};
use super::topic::Partition;

/// The User Property that asks for deletions in a pass over a latest channel.
const DELETIONS: &[u8] = b"saguin-deletions";
/// The User Property that declares a partition.
const PARTITION: &[u8] = b"saguin-filter";

/// What the `saguin-` User Properties of a SUBSCRIBE ask for.
#[derive(Default)]
pub(super) struct Labels {
    /// Deletions in the passes over latest channels.
    pub deletions: bool,
    /// A share of the topics.
    pub partition: Option<Arc<Partition>>,
}

impl Labels {
    /// Reads them; what is none of these, or is declared wrongly, refuses every filter.
    pub fn read(subscribe: &Subscribe) -> Result<Labels, Refusal> {
        let refuse = |text| Refusal::new(Reason::ImplementationSpecific, text);
        let mut deletions = false;
        let mut declared = Vec::new();
        for pair in subscribe.user_properties.iter() {
            let key = pair.key;
            if key == DELETIONS {
                deletions = true;
            } else if key == PARTITION {
                declared.push(pair.value);
            } else if key.starts_with(b"saguin-") {
                return Err(refuse(format!(
                    "a SUBSCRIBE has no User Property {:?}; leave it out",
                    String::from_utf8_lossy(key)
                )));
            }
        }
        let partition = Partition::declared(declared).map_err(refuse)?;
        Ok(Labels {
            deletions,
            partition: partition.map(Arc::new),
        })
    }
}
