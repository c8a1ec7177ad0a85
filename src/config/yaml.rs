//! YAML read into a tree that knows where everything stands. The only file that knows the parser.
//!
//! What a configuration has no use for is reported here and leaves no trace in the tree: anchors,
//! aliases, tags, keys that are no strings, keys written twice, a second document.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::finding::{Finding, Position};

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A scalar; `quoted` where it stands in quotes or is a block.
    Scalar { text: String, quoted: bool },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order written, each key once.
    Map(Vec<Entry>),
    /// Something already reported.
    Reported,
}

/// A key of a mapping, and what it holds.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) at: Position,
    pub(super) node: Node,
}

/// Reads one document. `None` where there is none to walk: a syntax error stops the parser at the
/// first, and it is the one kind of mistake that hides the ones after it.
pub(super) fn read(text: &str, findings: &mut Vec<Finding>) -> Option<Node> {
    let options = granit_parser::options! {
        disallow_directives: true,
        strict_indentation: true,
        emit_unresolved_aliases: true,
        emit_comments: false,
    };
    let mut reader = Reader {
        parser: Parser::new_from_str_with_options(text, options),
        findings,
    };
    reader.document()
}

struct Reader<'i, 'f, P: Iterator<Item = ParserItem<'i>>> {
    parser: P,
    findings: &'f mut Vec<Finding>,
}

type ParserItem<'i> = Result<(Event<'i>, Span), granit_parser::ScanError>;

impl<'i, P: Iterator<Item = ParserItem<'i>>> Reader<'i, '_, P> {
    fn report(&mut self, at: Position, problem: impl Into<String>, remedy: &str) {
        self.findings.push(Finding::new(at, problem, remedy));
    }

    fn next(&mut self) -> Option<(Event<'i>, Span)> {
        match self.parser.next()? {
            Ok(event) => Some(event),
            Err(error) => {
                let at = Position {
                    line: error.marker().line().max(1),
                    column: error.marker().col() + 1,
                };
                self.report(
                    at,
                    format!("this is not YAML: {}", error.info()),
                    "mend it first, what follows could not be read",
                );
                None
            }
        }
    }

    fn document(&mut self) -> Option<Node> {
        let mut root: Option<Node> = None;
        while let Some((event, span)) = self.next() {
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_some() => {
                    self.report(
                        start_of(&span),
                        "a second document begins here",
                        "keep one document in the file",
                    );
                    return root;
                }
                Event::DocumentStart(..) => root = Some(self.node_at_next_event()?),
                Event::StreamEnd => {
                    if root.is_none() {
                        self.report(
                            Position { line: 1, column: 1 },
                            "the file holds no configuration",
                            "write `broker:` and `channels:`",
                        );
                    }
                    return root;
                }
                _ => return root,
            }
        }
        None
    }

    fn node_at_next_event(&mut self) -> Option<Node> {
        let (event, span) = self.next()?;
        self.node(event, &span)
    }

    // Recursion is bounded: the parser refuses to nest deeper than 255 of either form.
    fn node(&mut self, event: Event<'i>, span: &Span) -> Option<Node> {
        let at = start_of(span);
        if event.anchor_id().is_some() {
            self.report(at, "an anchor (`&…`) stands here", "write the value itself");
        }
        let tagged = self.report_tag(event.tag(), at);
        let value = match event {
            Event::Scalar(text, style, ..) => Value::Scalar {
                text: text.into_owned(),
                quoted: style != ScalarStyle::Plain,
            },
            Event::SequenceStart(..) => self.list()?,
            Event::MappingStart(..) => self.map()?,
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                self.report(
                    at,
                    "an alias (`*…`) stands here",
                    "write the value out where it is needed, in quotes if it begins with `*`",
                );
                Value::Reported
            }
            // The parser hands out nothing else where a value is due.
            _ => return None,
        };
        Some(Node {
            at,
            value: if tagged { Value::Reported } else { value },
        })
    }

    fn report_tag(&mut self, tag: Option<&Tag>, at: Position) -> bool {
        let Some(tag) = tag.map(Tag::original) else {
            return false;
        };
        if tag == "!include" {
            self.report(
                at,
                "`!include` is not supported by this version",
                "write what that file holds here",
            );
        } else {
            self.report(at, format!("a tag (`{tag}`) stands here"), "leave it out");
        }
        true
    }

    fn list(&mut self) -> Option<Value> {
        let mut items = vec![];
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::SequenceEnd) {
                return Some(Value::List(items));
            }
            items.push(self.node(event, &span)?);
        }
    }

    fn map(&mut self) -> Option<Value> {
        let mut entries: Vec<Entry> = vec![];
        let mut first_lines: HashMap<String, usize> = HashMap::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd) {
                return Some(Value::Map(entries));
            }
            let key = self.node(event, &span)?;
            let node = self.node_at_next_event()?;
            let Some(name) = self.key_name(&key) else {
                continue;
            };
            if let Some(line) = first_lines.get(&name) {
                let problem = format!("the key `{name}` stands here again, first on line {line}");
                self.report(key.at, problem, "keep one of the two");
                continue;
            }
            first_lines.insert(name.clone(), key.at.line);
            entries.push(Entry {
                key: name,
                at: key.at,
                node,
            });
        }
    }

    fn key_name(&mut self, key: &Node) -> Option<String> {
        match &key.value {
            Value::Reported => None,
            Value::Scalar {
                text,
                quoted: false,
            } if text == "<<" => {
                let remedy = "write the keys out where they are needed";
                self.report(key.at, "`<<` merges nothing here", remedy);
                None
            }
            Value::Scalar { text, quoted } if *quoted || is_string(text) => Some(text.clone()),
            Value::Scalar { text, .. } => {
                let problem = format!("the key `{text}` is not a string");
                self.report(key.at, problem, &format!("write it in quotes: \"{text}\""));
                None
            }
            _ => {
                self.report(key.at, "a key is not a string", "write a plain name");
                None
            }
        }
    }
}

fn start_of(span: &Span) -> Position {
    Position {
        line: span.start.line().max(1),
        column: span.start.col() + 1,
    }
}

/// Whether YAML's core schema takes this plain scalar for a string: no null, boolean or number.
pub(super) fn is_string(plain: &str) -> bool {
    let boolean = matches!(
        plain,
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE"
    );
    !boolean && !is_null(plain) && !looks_like_a_number(plain)
}

/// Whether a plain scalar is YAML's way to write nothing. The parser hands `~` out for no text.
pub(super) fn is_null(plain: &str) -> bool {
    matches!(plain, "" | "~" | "null" | "Null" | "NULL")
}

fn looks_like_a_number(plain: &str) -> bool {
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(plain, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    if plain
        .strip_prefix("0x")
        .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_hexdigit()))
        || plain
            .strip_prefix("0o")
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| matches!(c, '0'..='7')))
    {
        return true;
    }
    unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned
            .chars()
            .all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'))
        && unsigned.parse::<f64>().is_ok()
}

/// `text` as a double-quoted YAML scalar that reads back as itself.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            ' '..='~' => quoted.push(c),
            c if c.is_alphanumeric() => quoted.push(c),
            c => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}
