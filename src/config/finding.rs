//! What is wrong with a configuration file.

use std::fmt;

/// A place in the file, both counted from 1; the column counts characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// One thing wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub at: Position,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

impl Finding {
    pub(super) fn new(at: Position, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            at,
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

/// Everything wrong with one file, in the order of the file. Never empty.
///
/// Displays as one line each: `file:line:column: what is wrong; what to write`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// The file as it was named.
    pub file: String,
    /// What was found.
    pub list: Vec<Finding>,
}

impl Findings {
    pub(super) fn new(file: &str, mut list: Vec<Finding>) -> Self {
        list.sort_by_key(|finding| finding.at);
        Self {
            file: file.to_owned(),
            list,
        }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, finding) in self.list.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            let Position { line, column } = finding.at;
            // One finding, one line: what the file holds may have line breaks in it.
            let text = format!("{}; {}", finding.problem, finding.remedy);
            let text = text.replace(char::is_control, " ");
            write!(f, "{}:{line}:{column}: {text}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for Findings {}
