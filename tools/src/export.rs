//! `export`: every live record, for another program.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use saguin_log_engine::storage::OsFiles;
use saguin_recovery::body::Body;
use saguin_recovery::salvage::{Salvage, salvage};
use saguin_recovery::{RecoverError, Report, Walk, lost_name};
use serde::Serialize;

use crate::cli::{Code, ExportArgs, Failure};
use crate::live::{self, Live};
use crate::losses::Losses;
use crate::records::choose;
use crate::source::{self, Reading, Unread, explain};
use crate::text::{base64, escape, json_line, message_id, rfc3339};

#[derive(Serialize)]
struct Record<'a> {
    channel: &'a str,
    offset: u64,
    time: Option<String>,
    time_ms: Option<u64>,
    /// A `latest` channel's entry that says that its topic has no value any more.
    deletion: bool,
    /// A queue's: how often it was tried.
    attempts: Option<u32>,
    first_attempt_ms: Option<u64>,
    last_attempt_ms: Option<u64>,
    id: String,
    topic: Option<String>,
    publisher: String,
    qos: u8,
    retain: bool,
    expiry_seconds: Option<u32>,
    response_topic: Option<String>,
    correlation_data_base64: Option<String>,
    payload_format: Option<u8>,
    content_type: Option<String>,
    user_properties: Vec<(String, String)>,
    /// The payload, where it is UTF-8.
    payload: Option<&'a str>,
    /// The payload, where it is not.
    payload_base64: Option<String>,
}

/// What is left to say once everything that can be written is written.
struct Exported {
    records: u64,
    unreadable: u64,
    failed: Option<Failure>,
}

pub(crate) fn run(
    args: &ExportArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Code, Failure> {
    let Reading { found, .. } = source::read::<()>(&args.dir);
    let source = match found {
        Ok((report, walk)) => Source::Whole(Box::new((report, walk))),
        // Also where the system cannot read a file: the others may be readable.
        Err(Unread::Recover(why @ (RecoverError::Damage(_) | RecoverError::Io { .. }))) => {
            let salvaged = salvage(&OsFiles, &args.dir);
            let salvaged = salvaged.map_err(|_| explain(Unread::Recover(why), &args.dir))?;
            Source::Damaged(Box::new(salvaged))
        }
        Err(other) => return Err(explain(other, &args.dir)),
    };
    let channels = source.channels(args.channel.as_deref())?;
    let exported = match &args.out {
        None => export(&source, &channels, out, err)?,
        Some(path) => {
            let mut file = BufWriter::new(create(path)?);
            let exported = export(&source, &channels, &mut file, err)?;
            let file = file.into_inner().map_err(|e| e.into_error())?;
            file.sync_all()?;
            exported
        }
    };
    out.flush()?;
    let Exported {
        records,
        unreadable,
        failed,
    } = exported;
    if let Some(failed) = failed {
        return Err(failed);
    }
    let mut code = Code::Good;
    if unreadable > 0 {
        code = Code::Failed;
        let _ = writeln!(
            err,
            "saguin-inspect: {unreadable} records are intact and no messages this build can read; \
             they are not among the {records} exported"
        );
    }
    if let Source::Damaged(salvage) = &source {
        code = Code::Failed;
        for line in Losses::new(salvage).sentences(false) {
            let _ = writeln!(err, "saguin-inspect: {}", escape(&line));
        }
    }
    Ok(code)
}

/// A new file, readable by its owner alone: it holds other people's messages.
fn create(path: &Path) -> Result<std::fs::File, Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Failure::Usage(format!(
            "{} exists and is not overwritten; name another file",
            path.display()
        )),
        _ => Failure::Read(format!("could not make {}: {e}", path.display())),
    })
}

enum Source {
    Whole(Box<(Report, Walk)>),
    Damaged(Box<Salvage>),
}

impl Source {
    /// Ids and names, by id.
    fn channels(&self, only: Option<&str>) -> Result<Vec<(u32, String)>, Failure> {
        match self {
            Source::Whole(read) => {
                let report = &read.0;
                let all = report.channels.iter().map(|c| (c.id, c.name.clone()));
                match only {
                    None => Ok(all.collect()),
                    Some(name) => {
                        let (id, name, _) = choose(report, Some(name))?;
                        Ok(vec![(id, name.to_owned())])
                    }
                }
            }
            Source::Damaged(salvage) => {
                let name = |(&id, channel): (&u32, &saguin_recovery::salvage::SalvagedChannel)| {
                    let name = channel.name.as_deref();
                    let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
                    (id, name.unwrap_or_else(|| lost_name(id)))
                };
                let mut all: Vec<_> = salvage.model.channels.iter().map(name).collect();
                if let Some(only) = only {
                    let names: Vec<_> = all.iter().map(|(_, name)| name.clone()).collect();
                    all.retain(|(_, name)| name == only);
                    if all.is_empty() {
                        return Err(Failure::Usage(format!(
                            "there is no channel {only:?} in what can be read: there are {}",
                            names.join(", ")
                        )));
                    }
                }
                Ok(all)
            }
        }
    }

    fn each(
        &self,
        id: u32,
        sink: &mut dyn FnMut(&Live<'_>) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        match self {
            Source::Whole(read) => live::each(&read.1, id, 0, sink),
            Source::Damaged(salvage) => live::each_salvaged(salvage, id, sink),
        }
    }
}

fn export(
    source: &Source,
    channels: &[(u32, String)],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Exported, Failure> {
    let mut exported = Exported {
        records: 0,
        unreadable: 0,
        failed: None,
    };
    for (id, name) in channels {
        let mut written = Ok(());
        let read = source.each(*id, &mut |live| {
            match Record::new(name, live) {
                Ok(record) => {
                    exported.records += 1;
                    written = json_line(out, &record);
                }
                Err(why) => {
                    exported.unreadable += 1;
                    let (name, offset) = (escape(name), live.offset);
                    let _ = writeln!(
                        err,
                        "saguin-inspect: channel {name}, record {offset}: {}",
                        escape(&why)
                    );
                }
            }
            match written {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        written?;
        if let Err(failure) = read {
            // The other channels may be readable all the same.
            let _ = writeln!(err, "saguin-inspect: {}", escape(&failure.to_string()));
            exported.failed.get_or_insert(failure);
        }
    }
    Ok(exported)
}

impl<'a> Record<'a> {
    fn new(channel: &'a str, live: &Live<'a>) -> Result<Record<'a>, String> {
        let body = Body::decode(live.record.body, live.key.unwrap_or_default());
        let body: Body<'a> = body.map_err(|e| e.to_string())?;
        let properties = properties(body.properties)
            .ok_or("its properties are not in a form this build knows")?;
        let attempted = live.job.and_then(|job| job.attempted);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let payload = std::str::from_utf8(body.payload).ok();
        Ok(Record {
            channel,
            offset: live.offset,
            time: live.record.timestamp.and_then(rfc3339),
            time_ms: live.record.timestamp,
            deletion: live.deletion,
            attempts: live.job.map(|job| job.attempts),
            first_attempt_ms: attempted.map(|(first, _)| first),
            last_attempt_ms: attempted.map(|(_, last)| last),
            id: message_id(&body.id),
            topic: Some(text(body.topic)),
            publisher: text(body.publisher),
            qos: body.qos,
            retain: body.retain,
            expiry_seconds: body.expiry_seconds,
            response_topic: body.response_topic.map(text),
            correlation_data_base64: body.correlation_data.map(base64),
            payload_format: properties.payload_format,
            content_type: properties.content_type,
            user_properties: properties.user,
            payload,
            payload_base64: payload.is_none().then(|| base64(body.payload)),
        })
    }
}

#[derive(Default)]
struct Properties {
    payload_format: Option<u8>,
    content_type: Option<String>,
    user: Vec<(String, String)>,
}

/// The properties a record may carry, from their MQTT 5 form; `None` where there is another.
fn properties(mut rest: &[u8]) -> Option<Properties> {
    const PAYLOAD_FORMAT: u8 = 0x01;
    const CONTENT_TYPE: u8 = 0x03;
    const USER_PROPERTY: u8 = 0x26;
    let mut found = Properties::default();
    while let Some((&kind, after)) = rest.split_first() {
        rest = after;
        match kind {
            PAYLOAD_FORMAT => {
                let (&format, after) = rest.split_first()?;
                (found.payload_format, rest) = (Some(format), after);
            }
            CONTENT_TYPE => found.content_type = Some(string(&mut rest)?),
            USER_PROPERTY => {
                let key = string(&mut rest)?;
                found.user.push((key, string(&mut rest)?));
            }
            _ => return None,
        }
    }
    Some(found)
}

/// An MQTT string: two bytes of length, most significant first, and the text.
fn string(rest: &mut &[u8]) -> Option<String> {
    let (len, after) = rest.split_first_chunk::<2>()?;
    let (text, after) = after.split_at_checked(u16::from_be_bytes(*len).into())?;
    *rest = after;
    Some(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_read_and_nothing_is_guessed() {
        let wire = b"\x01\x01\x03\0\x02ab\x26\0\x01k\0\x01v\x26\0\x01k\0\0";
        let found = properties(wire).expect("known kinds");
        assert_eq!(found.payload_format, Some(1));
        assert_eq!(found.content_type.as_deref(), Some("ab"));
        let user = [("k", "v"), ("k", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(found.user, user);
        for cut in [1, 3, 5, 9, wire.len() - 1] {
            assert!(properties(&wire[..cut]).is_none(), "cut at {cut}");
        }
        assert!(properties(&[0x7f]).is_none());
    }
}
