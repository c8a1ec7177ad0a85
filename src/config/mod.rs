//! The configuration file: one YAML document, checked whole before anything starts.
//!
//! [`Config::load`] reports everything wrong with a file at once, each finding with its line and
//! what to write instead, or hands out plain values with every default filled in. `keys` holds
//! every key there is, `walk` holds a file against it, and the two readers compare what has to
//! agree. [`Config::to_yaml`] writes a configuration that loads to itself.

mod docs;
mod finding;
mod keys;
mod model;
mod output;
mod parse;
mod read_broker;
mod read_channels;
mod read_storage;
mod value;
mod walk;
mod yaml;

#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::Path;

pub use docs::reference;
pub use finding::{Finding, Findings, Position};
pub use model::{
    AppendSettings, Backoff, Broker, Channel, ChannelSettings, Config, Durability, LatestSettings,
    Limits, LogLevel, LogProvider, Mqtt, ProtocolVersion, PublishCommit, Qos2, QueueSettings,
    Retained, Retry, Session, Share, Start, Storage, TcpListener,
};

/// The largest configuration file that is read, bytes.
pub const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

impl Config {
    /// Reads and checks the file at `path`. Creates nothing and binds nothing.
    ///
    /// # Errors
    /// [`Findings`]: everything wrong with it, or the one reason it could not be read.
    pub fn load(path: &Path) -> Result<Self, Findings> {
        let file = path.display().to_string();
        let bytes = read_bounded(path).map_err(|problem| {
            let finding = Finding::new(
                Position { line: 1, column: 1 },
                format!("the file cannot be read: {problem}"),
                "name a configuration file that can",
            );
            Findings::new(&file, vec![finding])
        })?;
        let config = Self::parse_bytes(&file, &bytes)?;
        config.check_directories(&file)?;
        Ok(config)
    }

    /// Checks the text of a configuration; `file` is what its findings call it.
    ///
    /// # Errors
    /// [`Findings`]: everything wrong with it.
    pub fn parse(file: &str, text: &str) -> Result<Self, Findings> {
        let mut findings = vec![];
        let config = yaml::read(text, &mut findings).and_then(|root| read(&root, &mut findings));
        match config {
            Some(config) if findings.is_empty() => Ok(config),
            _ => Err(Findings::new(file, findings)),
        }
    }

    fn parse_bytes(file: &str, bytes: &[u8]) -> Result<Self, Findings> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::parse(file, text),
            Err(error) => {
                let before = &bytes[..error.valid_up_to()];
                let line_start = before.iter().rposition(|byte| *byte == b'\n');
                let on_line = &before[line_start.map_or(0, |at| at + 1)..];
                let at = Position {
                    line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
                    column: String::from_utf8_lossy(on_line).chars().count() + 1,
                };
                let finding = Finding::new(at, "the file is not UTF-8", "save it as UTF-8");
                Err(Findings::new(file, vec![finding]))
            }
        }
    }

    /// A directory need not exist yet, but a file in its place can never become one.
    fn check_directories(&self, file: &str) -> Result<(), Findings> {
        let list: Vec<Finding> = self
            .broker
            .storage
            .providers
            .iter()
            .filter(|provider| provider.log_dir.exists() && !provider.log_dir.is_dir())
            .map(|provider| {
                Finding::new(
                    Position { line: 1, column: 1 },
                    format!(
                        "the `log_dir` of the provider `{}`, {}, is not a directory",
                        provider.name,
                        provider.log_dir.display()
                    ),
                    "name a directory, or one that can be made",
                )
            })
            .collect();
        if list.is_empty() {
            Ok(())
        } else {
            Err(Findings::new(file, list))
        }
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = vec![];
    // One byte past the bound tells a file that is too large from one that just fits.
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it has more than {MAX_FILE_BYTES} bytes"));
    }
    Ok(bytes)
}

fn read(root: &yaml::Node, findings: &mut Vec<Finding>) -> Option<Config> {
    let fields = walk::read_section(root, &keys::ROOT, "", findings);
    let parts = fields
        .section("broker")
        .map(|node| read_broker::read_broker(node, findings))
        .unwrap_or_default();
    let channels = match fields.section("channels") {
        Some(node) => read_channels::read_channels(node, parts.known(), findings),
        None => vec![],
    };
    Some(Config {
        broker: parts.whole()?,
        channels,
    })
}
