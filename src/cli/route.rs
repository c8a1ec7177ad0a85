//! `--route`: which channel holds a topic, and what a filter is served from. The same functions
//! the broker calls.

use std::io::{self, BufRead, Read};

use serde::Serialize;

use super::{FAILURE, SUCCESS, Streams};
use crate::broker::topic::{
    ChannelIndex, MAX_FILTER_BYTES, PublishTopic, Routes, SubscribeFilter, TopicFilter,
    TopicLimits, TopicRefusal, type_name,
};
use crate::config::Config;
use crate::storage::ChannelKind;

/// One line of the answer.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Row {
    subject: String,
    channel: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    why: String,
}

struct Router {
    routes: Routes,
    limits: TopicLimits,
}

/// Answers for `subject`, or for every line of standard input.
pub(super) fn answer(
    config: &Config,
    subject: Option<&str>,
    json: bool,
    streams: &mut Streams<'_>,
) -> io::Result<u8> {
    let router = match config.routes() {
        Ok(routes) => Router {
            routes,
            limits: config.broker.limits.topics(),
        },
        Err(conflicts) => {
            for conflict in conflicts {
                writeln!(streams.errors, "saguin: {conflict}")?;
            }
            return Ok(FAILURE);
        }
    };
    if !json {
        writeln!(streams.output, "# subject\tchannel\ttype\twhy")?;
    }
    if let Some(subject) = subject {
        return write_rows(&router.rows(subject), json, streams).map(|()| SUCCESS);
    }
    while let Some(line) = next_line(streams.input)? {
        let rows = match line {
            Line::Text(subject) if subject.is_empty() => continue,
            Line::Text(subject) => router.rows(&subject),
            Line::NotUtf8(shown) => vec![refused(&shown, "a topic is UTF-8")],
            Line::TooLong(shown) => vec![refused(&shown, "no topic is that long")],
        };
        write_rows(&rows, json, streams)?;
    }
    streams.output.flush()?;
    Ok(SUCCESS)
}

enum Line {
    Text(String),
    NotUtf8(String),
    TooLong(String),
}

/// Reads one line and holds no more of it than the longest filter has bytes.
fn next_line(input: &mut dyn BufRead) -> io::Result<Option<Line>> {
    // Room for the line's end as well.
    let bound = MAX_FILTER_BYTES as u64 + 2;
    let mut bytes = vec![];
    if input.take(bound).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if !bytes.ends_with(b"\n") && bytes.len() as u64 == bound {
        skip_line(input)?;
        let start: String = String::from_utf8_lossy(&bytes).chars().take(64).collect();
        return Ok(Some(Line::TooLong(format!("{start}…"))));
    }
    while matches!(bytes.last(), Some(b'\n' | b'\r')) {
        bytes.pop();
    }
    Ok(Some(match String::from_utf8(bytes) {
        Ok(text) => Line::Text(text),
        Err(error) => Line::NotUtf8(String::from_utf8_lossy(error.as_bytes()).into_owned()),
    }))
}

fn skip_line(input: &mut dyn BufRead) -> io::Result<()> {
    loop {
        let rest = input.fill_buf()?;
        if rest.is_empty() {
            return Ok(());
        }
        let (used, done) = match rest.iter().position(|byte| *byte == b'\n') {
            Some(at) => (at + 1, true),
            None => (rest.len(), false),
        };
        input.consume(used);
        if done {
            return Ok(());
        }
    }
}

fn write_rows(rows: &[Row], json: bool, streams: &mut Streams<'_>) -> io::Result<()> {
    for row in rows {
        if json {
            let object = serde_json::to_string(row).map_err(io::Error::other)?;
            writeln!(streams.output, "{object}")?;
        } else {
            let columns = [
                one_column(&row.subject),
                row.channel.clone().unwrap_or_else(|| "-".to_owned()),
                row.kind.to_owned(),
                one_column(&row.why),
            ];
            writeln!(streams.output, "{}", columns.join("\t"))?;
        }
    }
    Ok(())
}

/// A text that breaks neither its column nor its line.
fn one_column(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let plain = (!c.is_control()).then_some(c);
            let escaped = c.is_control().then(|| c.escape_default());
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect()
}

fn refused(subject: &str, why: &str) -> Row {
    Row {
        subject: subject.to_owned(),
        channel: None,
        kind: "refused",
        why: why.to_owned(),
    }
}

fn refusal(subject: &str, refusal: &TopicRefusal) -> Row {
    refused(
        subject,
        &format!("0x{:02X}: {refusal}", refusal.reason_code()),
    )
}

impl Router {
    fn rows(&self, subject: &str) -> Vec<Row> {
        let is_filter = subject.contains(['+', '#']) || subject.starts_with("$share/");
        if is_filter {
            return self.filter_rows(subject);
        }
        if subject.is_empty() {
            return vec![refused(subject, "a topic has at least one character")];
        }
        match PublishTopic::parse(subject, self.limits) {
            Ok(PublishTopic::Ordinary(topic)) => vec![self.topic_row(topic)],
            Ok(_) => vec![self.reserved(subject)],
            // Not one to publish to; it may be one to subscribe to.
            Err(TopicRefusal::UnknownReservedTopic) => self.filter_rows(subject),
            Err(why) => vec![refusal(subject, &why)],
        }
    }

    fn topic_row(&self, topic: &str) -> Row {
        match self.routes.route(topic) {
            Some(route) => self.row(topic, route.channel, route.filter.as_str()),
            None => broadcast(topic, "no channel's filter matches"),
        }
    }

    fn filter_rows(&self, subject: &str) -> Vec<Row> {
        match SubscribeFilter::parse(subject, self.limits) {
            Ok(SubscribeFilter::Plain(filter)) => {
                // Inside a queue a plain filter is refused, with whatever else it touches.
                if let Some(queue) = self.routes.reach(&filter).inside_queue {
                    return vec![self.row(subject, queue, "excluded")];
                }
                self.served(subject, &filter, |kind| match kind {
                    ChannelKind::Append => "replayed",
                    ChannelKind::Latest => "current",
                    ChannelKind::Queue => "excluded",
                })
            }
            // A group is served what is published after it began: no replay, no current state.
            Ok(SubscribeFilter::Shared { filter, .. }) => {
                self.served(subject, &filter, |kind| match kind {
                    ChannelKind::Append | ChannelKind::Latest => "live",
                    ChannelKind::Queue => "excluded",
                })
            }
            Ok(SubscribeFilter::Queue { queue }) => match self.queue(&queue) {
                Some(index) => vec![self.row(subject, index, "offered")],
                None => vec![refusal(subject, &TopicRefusal::NotTheQueueForm)],
            },
            Ok(SubscribeFilter::SeekReply { .. }) => vec![self.reserved(subject)],
            Err(why) => vec![refusal(subject, &why)],
        }
    }

    fn served(
        &self,
        subject: &str,
        filter: &TopicFilter,
        how: impl Fn(ChannelKind) -> &'static str,
    ) -> Vec<Row> {
        let reach = self.routes.reach(filter);
        let mut touched = reach.channels;
        touched.extend(reach.crossed_queues);
        touched.sort_unstable();
        if touched.is_empty() {
            return vec![broadcast(subject, "no channel's filter shares a topic")];
        }
        let kind_of = |index: &ChannelIndex| self.routes.channel(*index).map(|found| found.kind);
        touched
            .iter()
            .filter_map(|index| Some(self.row(subject, *index, how(kind_of(index)?))))
            .collect()
    }

    fn queue(&self, name: &str) -> Option<ChannelIndex> {
        let index = self.routes.by_name(name)?;
        let kind = self.routes.channel(index)?.kind;
        (kind == ChannelKind::Queue).then_some(index)
    }

    fn row(&self, subject: &str, index: ChannelIndex, why: &str) -> Row {
        let channel = self.routes.channel(index);
        Row {
            subject: subject.to_owned(),
            channel: channel.map(|channel| channel.name.clone()),
            kind: channel.map_or("broadcast", |channel| type_name(channel.kind)),
            why: why.to_owned(),
        }
    }

    fn reserved(&self, subject: &str) -> Row {
        Row {
            subject: subject.to_owned(),
            channel: None,
            kind: "reserved",
            why: "the broker answers it itself".to_owned(),
        }
    }
}

fn broadcast(subject: &str, why: &str) -> Row {
    Row {
        subject: subject.to_owned(),
        channel: None,
        kind: "broadcast",
        why: why.to_owned(),
    }
}
