//! The filter an operator writes on a channel.

use std::fmt;

use super::dead_letter::DEAD_LETTER_LEVEL;
use super::filter::{FilterError, TopicFilter};

/// The most plain filters one written filter may stand for.
pub const MAX_ALTERNATIVES: usize = 1024;

/// A channel's filter: as written, and the plain filters it stands for.
///
/// A level may be `{a,b}`: the filter then stands for one plain filter per alternative, and per
/// combination where several levels have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelFilter {
    written: String,
    plain: Vec<TopicFilter>,
}

/// Why a text may not be a channel's filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelFilterError {
    /// It is no MQTT filter.
    Filter(FilterError),
    /// Its first level is a wildcard.
    FirstLevelWildcard,
    /// Its first level begins with `$`.
    FirstLevelReserved,
    /// It spells out the level `__dlq`, which the broker derives.
    DeadLetterLevel,
    /// A brace that does not open and close around one whole level.
    BraceNotWholeLevel {
        /// The level it was found on, counted from 1.
        level: usize,
    },
    /// `{}`, or an alternative with no characters.
    EmptyAlternative {
        /// The level it was found on, counted from 1.
        level: usize,
    },
    /// One alternative twice.
    RepeatedAlternative {
        /// The alternative.
        name: String,
    },
    /// More than [`MAX_ALTERNATIVES`] plain filters.
    TooManyAlternatives,
}

impl fmt::Display for ChannelFilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filter(error) => error.fmt(f),
            Self::FirstLevelWildcard => {
                write!(f, "the first level of a channel's filter is spelled out")
            }
            Self::FirstLevelReserved => write!(
                f,
                "the first level of a channel's filter may not begin with `$`"
            ),
            Self::DeadLetterLevel => write!(
                f,
                "the level `{DEAD_LETTER_LEVEL}` is derived for every queue and may not be written"
            ),
            Self::BraceNotWholeLevel { level } => {
                write!(
                    f,
                    "a brace opens and closes around one whole level, see level {level}"
                )
            }
            Self::EmptyAlternative { level } => {
                write!(
                    f,
                    "every alternative in braces has a name, see level {level}"
                )
            }
            Self::RepeatedAlternative { name } => {
                write!(f, "the alternative `{name}` stands twice in one brace")
            }
            Self::TooManyAlternatives => write!(
                f,
                "the braces stand for more than {MAX_ALTERNATIVES} filters"
            ),
        }
    }
}

impl std::error::Error for ChannelFilterError {}

impl ChannelFilter {
    /// Reads the filter of an append or latest channel, where braces are allowed.
    ///
    /// # Errors
    /// [`ChannelFilterError`] says which rule the text breaks.
    pub fn parse(written: &str) -> Result<Self, ChannelFilterError> {
        // Checked as written first: a bad wildcard is one mistake, not one per combination.
        TopicFilter::parse(written).map_err(ChannelFilterError::Filter)?;
        let levels = written
            .split('/')
            .enumerate()
            .map(|(index, level)| alternatives(level, index + 1))
            .collect::<Result<Vec<_>, _>>()?;
        check_first_level(&levels)?;
        if levels.iter().flatten().any(|n| *n == DEAD_LETTER_LEVEL) {
            return Err(ChannelFilterError::DeadLetterLevel);
        }
        Ok(Self {
            written: written.to_owned(),
            plain: combine(&levels)?,
        })
    }

    /// The filter as written, braces and all.
    #[must_use]
    pub fn as_written(&self) -> &str {
        &self.written
    }

    /// The plain filters it stands for, in the order of the alternatives.
    #[must_use]
    pub fn plain(&self) -> &[TopicFilter] {
        &self.plain
    }

    /// Whether any level has alternatives.
    #[must_use]
    pub fn has_braces(&self) -> bool {
        self.written.contains('{')
    }

    /// The plain filter of the most levels: what a depth limit is held against.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.plain.first().map_or(0, TopicFilter::depth)
    }
}

fn check_first_level(levels: &[Vec<&str>]) -> Result<(), ChannelFilterError> {
    for name in levels.iter().take(1).flatten() {
        if matches!(*name, "+" | "#") {
            return Err(ChannelFilterError::FirstLevelWildcard);
        }
        if name.starts_with('$') {
            return Err(ChannelFilterError::FirstLevelReserved);
        }
    }
    Ok(())
}

fn alternatives(level: &str, number: usize) -> Result<Vec<&str>, ChannelFilterError> {
    if !level.contains(['{', '}']) {
        return Ok(vec![level]);
    }
    let inside = level
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .filter(|inside| !inside.contains(['{', '}']))
        .ok_or(ChannelFilterError::BraceNotWholeLevel { level: number })?;
    let mut names: Vec<&str> = Vec::new();
    for name in inside.split(',') {
        if name.is_empty() {
            return Err(ChannelFilterError::EmptyAlternative { level: number });
        }
        if names.len() == MAX_ALTERNATIVES {
            return Err(ChannelFilterError::TooManyAlternatives);
        }
        if names.contains(&name) {
            return Err(ChannelFilterError::RepeatedAlternative {
                name: name.to_owned(),
            });
        }
        names.push(name);
    }
    Ok(names)
}

fn combine(levels: &[Vec<&str>]) -> Result<Vec<TopicFilter>, ChannelFilterError> {
    // Counted before anything is built: ten levels of ten alternatives are ten thousand million.
    let mut count = 1usize;
    for level in levels {
        count = count.saturating_mul(level.len());
        if count > MAX_ALTERNATIVES {
            return Err(ChannelFilterError::TooManyAlternatives);
        }
    }
    let mut plain = vec![String::new()];
    for (index, level) in levels.iter().enumerate() {
        let slash = if index == 0 { "" } else { "/" };
        plain = plain
            .iter()
            .flat_map(|start| {
                level
                    .iter()
                    .map(move |name| format!("{start}{slash}{name}"))
            })
            .collect();
    }
    plain
        .iter()
        .map(|text| TopicFilter::parse(text).map_err(ChannelFilterError::Filter))
        .collect()
}

impl fmt::Display for ChannelFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(written: &str) -> Vec<String> {
        let filter = ChannelFilter::parse(written).unwrap();
        filter.plain().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn braces_stand_for_every_combination() {
        assert_eq!(plain("a/+/#"), ["a/+/#"]);
        assert_eq!(plain("a/{b,c}/#"), ["a/b/#", "a/c/#"]);
        assert_eq!(plain("{x,y}/{1,2}"), ["x/1", "x/2", "y/1", "y/2"]);
        assert_eq!(plain("a/{b}"), ["a/b"]);
        assert_eq!(plain("/#"), ["/#"]);
    }

    #[test]
    fn each_rule_of_a_channel_filter_has_its_refusal() {
        use ChannelFilterError as E;
        let cases = [
            ("", E::Filter(FilterError::Empty)),
            ("a/#/b", E::Filter(FilterError::HashNotLast { level: 2 })),
            ("+/a", E::FirstLevelWildcard),
            ("#", E::FirstLevelWildcard),
            ("$SYS/a", E::FirstLevelReserved),
            ("{a,$b}/c", E::FirstLevelReserved),
            ("a/__dlq/#", E::DeadLetterLevel),
            ("a/{b,__dlq}", E::DeadLetterLevel),
            ("a/x{b,c}", E::BraceNotWholeLevel { level: 2 }),
            ("a/{b,c", E::BraceNotWholeLevel { level: 2 }),
            ("a/{b,{c,d}}", E::BraceNotWholeLevel { level: 2 }),
            ("a/{b/c}", E::BraceNotWholeLevel { level: 2 }),
            ("a/{}", E::EmptyAlternative { level: 2 }),
            ("a/{b,}", E::EmptyAlternative { level: 2 }),
            (
                "a/{b,b}",
                E::RepeatedAlternative {
                    name: "b".to_owned(),
                },
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(ChannelFilter::parse(text), Err(expected), "{text}");
        }
        assert!(ChannelFilter::parse("a/{+,b}").is_err());
        let many = vec!["{0,1,2,3,4,5,6,7,8,9}"; 40].join("/");
        assert_eq!(ChannelFilter::parse(&many), Err(E::TooManyAlternatives));
    }
}
