//! `records`: the live records of one channel.

use std::io::{self, Write};
use std::ops::ControlFlow;

use saguin_recovery::Report;
use saguin_recovery::body::Body;
use serde::Serialize;

use crate::cli::{Code, Failure, RecordsArgs};
use crate::live::{self, Live};
use crate::source::Log;
use crate::text::{counted, escape, file_name, hex, json_line, message_id, rfc3339, time};

/// Bytes of a payload that are shown unless all were asked for.
const PAYLOAD_BYTES: usize = 256;

#[derive(Serialize)]
struct Record<'a> {
    channel: &'a str,
    offset: u64,
    time: Option<String>,
    time_ms: Option<u64>,
    /// Counted size, in bytes.
    size: u64,
    /// A `latest` channel's entry that says that its topic has no value any more.
    deletion: bool,
    /// A queue's: how often it was tried.
    attempts: Option<u32>,
    first_attempt_ms: Option<u64>,
    last_attempt_ms: Option<u64>,
    file: String,
    position: u64,
    lsn: u64,
    message: Option<Message>,
    /// Why the message cannot be read, where it cannot.
    error: Option<String>,
}

#[derive(Serialize)]
struct Message {
    id: String,
    topic: String,
    publisher: String,
    qos: u8,
    retain: bool,
    expiry_seconds: Option<u32>,
    /// Null where the properties are not in a form this build knows.
    user_properties: Option<u64>,
    payload: String,
    /// `utf-8` or `hex`.
    payload_encoding: &'static str,
    /// Of the whole payload.
    payload_bytes: usize,
    /// Only the front of it is in `payload`.
    payload_cut: bool,
}

pub(crate) fn run(
    args: &RecordsArgs,
    json: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<Code, Failure> {
    let log = Log::read(&args.dir)?;
    let (id, name, floor) = choose(&log.report, args.channel.as_deref())?;
    if args.from > 1 && args.from < floor {
        // Never the oldest survivor as if nothing had been before it (invariant 1).
        let from = args.from;
        let gone = format!("records {from} to {} were removed by retention", floor - 1);
        let _ = writeln!(
            err,
            "saguin-inspect: {gone}; the oldest there is is {floor}"
        );
    }
    let mut left = args.limit;
    let mut written = Ok(());
    let mut more = None;
    live::each(&log.walk, id, args.from, &mut |live| {
        if left == 0 {
            more = Some(live.offset);
            return ControlFlow::Break(());
        }
        left -= 1;
        let record = Record::new(name, live, args.full);
        written = if json {
            json_line(out, &record)
        } else {
            print(&record, out)
        };
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    written?;
    if let Some(offset) = more {
        out.flush()?;
        let _ = writeln!(
            err,
            "saguin-inspect: there are more; go on with --from {offset}"
        );
    }
    Ok(Code::Good)
}

/// The id, name and floor of the channel asked for, or of the only one there is.
pub(crate) fn choose<'r>(
    report: &'r Report,
    name: Option<&str>,
) -> Result<(u32, &'r str, u64), Failure> {
    let channels = &report.channels;
    let chosen = match (name, channels.as_slice()) {
        (Some(name), _) => channels.iter().find(|c| c.name == name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    if let Some(channel) = chosen {
        return Ok((channel.id, &channel.name, channel.floor));
    }
    let mut names: Vec<&str> = channels.iter().map(|c| c.name.as_str()).collect();
    names.truncate(20);
    let there = match (channels.len(), names.len()) {
        (0, _) => "the log has none".to_owned(),
        (all, shown) if all > shown => format!(
            "the first of {all} are {}; `channels` lists them all",
            names.join(", ")
        ),
        _ => format!("there are {}", names.join(", ")),
    };
    Err(Failure::Usage(match name {
        Some(name) => format!("there is no channel {name:?}: {there}"),
        None => format!("name a channel with --channel: {there}"),
    }))
}

impl<'a> Record<'a> {
    fn new(channel: &'a str, live: &Live<'_>, full: bool) -> Record<'a> {
        let decoded = Body::decode(live.record.body, live.key.unwrap_or_default());
        let (message, error) = match decoded {
            Ok(body) => (Some(Message::new(&body, full)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let attempted = live.job.and_then(|job| job.attempted);
        Record {
            channel,
            offset: live.offset,
            time: live.record.timestamp.and_then(rfc3339),
            time_ms: live.record.timestamp,
            size: live.record.size,
            deletion: live.deletion,
            attempts: live.job.map(|job| job.attempts),
            first_attempt_ms: attempted.map(|(first, _)| first),
            last_attempt_ms: attempted.map(|(_, last)| last),
            file: file_name(live.path),
            position: live.position,
            lsn: live.lsn,
            message,
            error,
        }
    }
}

impl Message {
    fn new(body: &Body<'_>, full: bool) -> Message {
        let most = if full { usize::MAX } else { PAYLOAD_BYTES };
        let (payload, payload_encoding, shown) = shown(body.payload, most);
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Message {
            id: message_id(&body.id),
            topic: text(body.topic),
            publisher: text(body.publisher),
            qos: body.qos,
            retain: body.retain,
            expiry_seconds: body.expiry_seconds,
            user_properties: user_properties(body.properties),
            payload,
            payload_encoding,
            payload_bytes: body.payload.len(),
            payload_cut: shown < body.payload.len(),
        }
    }
}

/// A payload as text if all of it is UTF-8, else in hexadecimal; how it is shown; and how many of
/// its bytes are.
fn shown(payload: &[u8], most: usize) -> (String, &'static str, usize) {
    match std::str::from_utf8(payload) {
        Ok(text) => {
            let text = &text[..text.floor_char_boundary(most)];
            (text.to_owned(), "utf-8", text.len())
        }
        Err(_) => {
            let bytes = &payload[..payload.len().min(most)];
            (hex(bytes), "hex", bytes.len())
        }
    }
}

/// How many User Properties there are among the kinds of property a record may carry.
fn user_properties(mut rest: &[u8]) -> Option<u64> {
    const PAYLOAD_FORMAT: u8 = 0x01;
    const CONTENT_TYPE: u8 = 0x03;
    const USER_PROPERTY: u8 = 0x26;
    let mut count = 0;
    while let Some((&kind, after)) = rest.split_first() {
        rest = match kind {
            PAYLOAD_FORMAT => after.get(1..)?,
            CONTENT_TYPE => after_string(after)?,
            USER_PROPERTY => {
                count += 1;
                after_string(after_string(after)?)?
            }
            _ => return None,
        };
    }
    Some(count)
}

/// What follows an MQTT string: two bytes of length, most significant first, and the text.
fn after_string(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.get(usize::from(u16::from_be_bytes(*len))..)
}

fn print(record: &Record<'_>, out: &mut dyn Write) -> io::Result<()> {
    let time = record.time_ms.map_or("no time".to_owned(), time);
    write!(
        out,
        "{}  {time}  {}",
        record.offset,
        counted(record.size, "byte")
    )?;
    if record.deletion {
        write!(out, "  deletion")?;
    }
    if let Some(attempts) = record.attempts {
        write!(out, "  {}", counted(attempts.into(), "attempt"))?;
    }
    if let Some(last) = record.last_attempt_ms {
        write!(out, ", the last at {}", self::time(last))?;
    }
    writeln!(out)?;
    match (&record.message, &record.error) {
        (Some(message), _) => print_message(message, out)?,
        (None, error) => {
            let why = error.as_deref().unwrap_or_default();
            writeln!(out, "    unreadable: {}", escape(why))?;
        }
    }
    let Record {
        file,
        position,
        lsn,
        ..
    } = record;
    writeln!(out, "    in {} at {position}, frame {lsn}", escape(file))
}

fn print_message(message: &Message, out: &mut dyn Write) -> io::Result<()> {
    let retain = if message.retain { "  retain" } else { "" };
    let publisher = match escape(&message.publisher) {
        name if name.is_empty() => "unknown".to_owned(),
        name => name,
    };
    let properties = match message.user_properties {
        Some(1) => "1 user property".to_owned(),
        Some(n) => format!("{n} user properties"),
        None => "properties in an unknown form".to_owned(),
    };
    let expiry = message
        .expiry_seconds
        .map_or(String::new(), |seconds| format!("  expiry {seconds} s"));
    writeln!(out, "    topic {}", escape(&message.topic))?;
    writeln!(
        out,
        "    id {}  qos {}{retain}{expiry}  publisher {publisher}  {properties}",
        message.id, message.qos
    )?;
    let encoding = match message.payload_encoding {
        "utf-8" => "text",
        other => other,
    };
    let cut = if message.payload_cut { " ..." } else { "" };
    let payload = escape(&message.payload);
    let bytes = counted(message.payload_bytes as u64, "byte");
    writeln!(out, "    payload, {bytes}, {encoding}: {payload}{cut}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_properties_are_counted_among_the_others_and_nothing_else_is_guessed() {
        let mut wire = vec![0x01, 1, 0x03, 0, 2, b'a', b'b'];
        assert_eq!(user_properties(&wire), Some(0));
        for n in 1..=3 {
            wire.extend_from_slice(&[0x26, 0, 1, b'k', 0, 0]);
            assert_eq!(user_properties(&wire), Some(n));
        }
        assert_eq!(user_properties(&wire[..wire.len() - 1]), None, "cut short");
        assert_eq!(user_properties(&[0x7f]), None);
        assert_eq!(user_properties(&[]), Some(0));
    }

    #[test]
    fn a_payload_is_text_or_hexadecimal_and_is_cut_between_characters() {
        assert_eq!(shown("ñandú".as_bytes(), 256), ("ñandú".into(), "utf-8", 7));
        assert_eq!(shown("añ".as_bytes(), 2), ("a".into(), "utf-8", 1));
        assert_eq!(shown(&[0xff, 0, 1], 2), ("ff00".into(), "hex", 2));
        // All of it decides, so that what is shown does not change with how much is.
        assert_eq!(shown(&[b'a', b'b', 0xff], 2), ("6162".into(), "hex", 2));
    }
}
