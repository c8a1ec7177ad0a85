//! How two filters relate: whether they share a topic, and whether one holds the other whole.
//!
//! Both questions are about topics MQTT allows, so about topics with at least one character. That
//! is why `#` and `/#` are widened by a `+` first: neither can stand for "no level" here, because
//! the topic left would be the empty one.

use super::filter::{Level, TopicFilter};

/// Whether some topic matches both filters.
#[must_use]
pub fn touches(a: &TopicFilter, b: &TopicFilter) -> bool {
    if hidden_from(a, b) || hidden_from(b, a) {
        return false;
    }
    let mut left = widened(a);
    let mut right = widened(b);
    loop {
        match (left.next(), right.next()) {
            (None, None) | (Some(Level::Hash), _) | (_, Some(Level::Hash)) => return true,
            (None, Some(_)) | (Some(_), None) => return false,
            (Some(Level::Name(x)), Some(Level::Name(y))) if x != y => return false,
            _ => {}
        }
    }
}

/// Whether every topic of `inner` matches `outer`.
#[must_use]
pub fn lies_inside(inner: &TopicFilter, outer: &TopicFilter) -> bool {
    if hidden_from(inner, outer) {
        return false;
    }
    let mut left = widened(inner);
    let mut right = outer.levels();
    loop {
        match (left.next(), right.next()) {
            (_, Some(Level::Hash)) | (None, None) => return true,
            (None, Some(_)) | (Some(_), None) | (Some(Level::Hash), _) => return false,
            (Some(_), Some(Level::Plus)) => {}
            (Some(Level::Name(x)), Some(Level::Name(y))) if x == y => {}
            _ => return false,
        }
    }
}

/// Whether every topic of `a` starts with `$`, where `b`, starting with a wildcard, sees none.
fn hidden_from(a: &TopicFilter, b: &TopicFilter) -> bool {
    b.starts_with_wildcard() && a.as_str().starts_with('$')
}

/// The levels of an equal filter in which `#` always stands for "nothing, or more".
fn widened(filter: &TopicFilter) -> impl Iterator<Item = Level<'_>> {
    let text = filter.as_str();
    let at = match text {
        "#" => Some(0),
        "/#" => Some(1),
        _ => None,
    };
    let plain = filter.levels().enumerate();
    plain.flat_map(move |(index, level)| {
        let extra = (at == Some(index)).then_some(Level::Plus);
        extra.into_iter().chain(std::iter::once(level))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> TopicFilter {
        TopicFilter::parse(text).unwrap()
    }

    #[test]
    fn touching_and_lying_inside() {
        for (a, b, touch, a_in_b, b_in_a) in [
            ("a/#", "a/b", true, false, true),
            ("a/+", "+/b", true, false, false),
            ("a/b", "a/c", false, false, false),
            ("#", "$SYS/#", false, false, false),
            ("#", "+/#", true, true, true),
            ("/#", "+", false, false, false),
            ("/#", "/+/#", true, true, true),
            ("a/#", "a", true, false, true),
            ("a/#", "a/+/#", true, false, true),
            ("$a/+", "$a/b", true, false, true),
            ("+/x", "$a/x", false, false, false),
        ] {
            let (a, b) = (filter(a), filter(b));
            assert_eq!(touches(&a, &b), touch, "{a} {b}");
            assert_eq!(touches(&b, &a), touch, "{b} {a}");
            assert_eq!(lies_inside(&a, &b), a_in_b, "{a} in {b}");
            assert_eq!(lies_inside(&b, &a), b_in_a, "{b} in {a}");
        }
    }
}
