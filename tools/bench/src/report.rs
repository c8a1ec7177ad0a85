//! What a measurement says: a table for people, JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::latency::median;

/// One figure of one run.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What.
    pub name: &'static str,
    /// In what; empty where it is a number of its own.
    pub unit: &'static str,
    /// How much.
    pub value: f64,
}

/// A figure.
pub fn figure(name: &'static str, unit: &'static str, value: f64) -> Figure {
    Figure { name, unit, value }
}

/// A figure that may not be known.
pub fn known(name: &'static str, unit: &'static str, value: Option<f64>) -> Option<Figure> {
    value.map(|value| figure(name, unit, value))
}

/// So many a second.
#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
pub fn per_second(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// All runs of one side.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// Whose.
    pub name: String,
    /// The figures of each run.
    pub runs: Vec<Vec<Figure>>,
}

impl Side {
    fn all(&self, name: &str) -> Vec<f64> {
        let figures = self.runs.iter().flatten();
        figures
            .filter(|f| f.name == name)
            .map(|f| f.value)
            .collect()
    }

    fn median(&self, name: &str) -> f64 {
        median(&self.all(name))
    }
}

/// One scenario, measured.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its name on the command line.
    pub scenario: &'static str,
    /// What was measured, in words.
    pub settings: String,
    /// One side, or two that took turns.
    pub sides: Vec<Side>,
    /// The physical limit: bytes, and the p50 of writing and syncing them in each run, microseconds.
    pub limit: Option<(usize, Vec<f64>)>,
    /// What the reader has to know of these figures.
    pub notes: Vec<String>,
}

impl Report {
    /// The figures' names and units, in the order the scenario gave them.
    fn rows(&self) -> Vec<(&'static str, &'static str)> {
        let mut rows = Vec::new();
        for figure in self
            .sides
            .iter()
            .flat_map(|side| side.runs.iter().flatten())
        {
            if !rows.contains(&(figure.name, figure.unit)) {
                rows.push((figure.name, figure.unit));
            }
        }
        rows
    }

    /// The table.
    pub fn table(&self) -> String {
        let mut lines: Vec<Vec<String>> = vec![self.heading()];
        for (name, unit) in self.rows() {
            let mut line = vec![name.to_owned(), unit.to_owned()];
            let medians: Vec<f64> = self.sides.iter().map(|side| side.median(name)).collect();
            line.extend(medians.iter().map(|median| shown(*median)));
            if let [first, second] = medians[..] {
                line.push(format!("{:.2}", second / first));
            }
            lines.push(line);
        }
        if let Some((bytes, p50)) = &self.limit {
            let name = format!("limit: one write and sync of {bytes} B, p50");
            lines.push(vec![name, "µs".into(), shown(median(p50))]);
        }
        let mut text = format!("{}: {}\n", self.scenario, self.settings);
        let runs = self.sides.first().map_or(0, |side| side.runs.len());
        let _ = writeln!(text, "medians of {runs} runs\n");
        text += &aligned(&lines);
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
        text
    }

    fn heading(&self) -> Vec<String> {
        let mut heading = vec![String::new(), String::new()];
        heading.extend(self.sides.iter().map(|side| side.name.clone()));
        if self.sides.len() == 2 {
            heading.push("B of A".into());
        }
        heading
    }

    /// The same as one JSON object. A figure that is not known is null.
    pub fn json(&self) -> Value {
        let sides: Vec<Value> = self.sides.iter().map(|side| self.side_json(side)).collect();
        json!({
            "scenario": self.scenario,
            "settings": self.settings,
            "sides": sides,
            "limit": self.limit.as_ref().map(|(bytes, p50)| json!({
                "bytes": bytes,
                "unit": "µs",
                "median": median(p50),
                "runs": p50,
            })),
            "notes": self.notes,
        })
    }

    fn side_json(&self, side: &Side) -> Value {
        let figures = self.rows().into_iter().map(|(name, unit)| {
            json!({
                "name": name,
                "unit": unit,
                "median": side.median(name),
                "runs": side.all(name),
            })
        });
        json!({"name": side.name, "figures": figures.collect::<Vec<_>>()})
    }
}

/// Columns as wide as their widest entry, the first two to the left and numbers to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column| {
        let widths = lines
            .iter()
            .filter_map(|line: &Vec<String>| line.get(column));
        widths
            .map(|entry: &String| entry.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (column, (entry, width)) in line.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 | 1 => write!(row, "{entry:<width$}  "),
                _ => write!(row, "{entry:>width$}  "),
            };
        }
        text += row.trim_end();
        text.push('\n');
    }
    text
}

/// A number as people read it: three digits that count, thousands set apart.
fn shown(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let decimals = match value.abs() {
        0.0..1.0 => 3,
        1.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let mut shown = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0
            && (whole.len() - at).is_multiple_of(3)
            && digit.is_ascii_digit()
            && !shown.ends_with('-')
        {
            shown.push(',');
        }
        shown.push(digit);
    }
    if !part.is_empty() {
        shown.push('.');
        shown += part;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let side = |name: &str, values: &[f64]| Side {
            name: name.into(),
            runs: values
                .iter()
                .map(|v| vec![figure("messages", "/s", *v)])
                .collect(),
        };
        Report {
            scenario: "pub",
            settings: "QoS 1".into(),
            sides: vec![
                side("A", &[1000.0, 3000.0, 2000.0]),
                side("B", &[4000.0, 9000.0, 1.0]),
            ],
            limit: Some((128, vec![170.0, 190.0, 180.0])),
            notes: vec!["busy".into()],
        }
    }

    #[test]
    fn a_table_has_medians_their_ratio_and_the_limit() {
        let table = report().table();
        let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
        assert_eq!(lines[0], "pub: QoS 1");
        assert_eq!(lines[1], "medians of 3 runs");
        let words = |line: &str| {
            line.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            words(lines[4]),
            ["messages", "/s", "2,000", "4,000", "2.00"]
        );
        assert!(lines[5].starts_with("limit: one write and sync of 128 B, p50  µs"));
        assert!(lines[5].ends_with("180"));
        assert_eq!(*lines.last().unwrap(), "note: busy");
    }

    #[test]
    fn json_has_every_run() {
        let json = report().json();
        assert_eq!(json["sides"][1]["figures"][0]["median"], 4000.0);
        assert_eq!(json["sides"][0]["figures"][0]["runs"][1], 3000.0);
        assert_eq!(json["limit"]["median"], 180.0);
        let nothing = Report::default().json();
        assert!(nothing["limit"].is_null());
    }

    #[test]
    fn numbers_are_shown_as_people_read_them() {
        for (value, text) in [
            (0.25, "0.250"),
            (1.234, "1.23"),
            (99.94, "99.9"),
            (999.4, "999"),
            (1000.0, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-123.0, "-123"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(shown(value), text);
        }
    }
}
