//! Any bytes at all, and any configuration at all written back and read again.

use proptest::prelude::*;

use super::super::keys::{Kind, SECTIONS};
use super::super::{Config, value, yaml};
use super::{load, with};

/// A value the key takes, as an operator might write it.
fn a_value(kind: &'static Kind) -> BoxedStrategy<String> {
    match kind {
        Kind::Text { .. } => "\"[a-z \"\\\\é#:]{1,9}\"|[a-z]{1,9}".boxed(),
        Kind::Choice { of, .. } => proptest::sample::select(*of).prop_map(yaml::quote).boxed(),
        Kind::Whole { min, max } => (*min..=*max).prop_map(|n| n.to_string()).boxed(),
        Kind::Size { min, max, none } => {
            let none = *none;
            (*min..=*max, 0u8..10)
                .prop_map(move |(n, roll)| match roll {
                    0 if none => "none".to_owned(),
                    _ => value::show_size(n),
                })
                .boxed()
        }
        Kind::Duration { min, max, none, .. } => {
            let none = *none;
            (min / 1_000..=max / 1_000, 0u8..10)
                .prop_map(move |(n, roll)| match roll {
                    0 if none => "none".to_owned(),
                    _ => format!("{}s", n.max(1)),
                })
                .boxed()
        }
        _ => Just("~".to_owned()).boxed(),
    }
}

/// Some keys of the section under a heading of the documentation, each with a value it takes.
fn some_keys(heading: &str) -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let found = SECTIONS.iter().find(|(own, _)| *own == heading);
    let (_, section) = found.expect("a section");
    let takes_scalar = |kind: &Kind| {
        matches!(
            kind,
            Kind::Whole { .. } | Kind::Size { .. } | Kind::Duration { .. } | Kind::Choice { .. }
        )
    };
    let keys: Vec<_> = section
        .keys
        .iter()
        .filter(|key| takes_scalar(&key.kind) && key.name != "type")
        .map(|key| {
            (any::<bool>(), a_value(&key.kind)).prop_map(|(on, v)| on.then_some((key.name, v)))
        })
        .collect();
    keys.prop_map(|keys| keys.into_iter().flatten().collect())
}

fn flow(keys: &[(&str, String)]) -> String {
    let keys: Vec<String> = keys.iter().map(|(key, v)| format!("{key}: {v}")).collect();
    keys.join(", ")
}

proptest! {
    #[test]
    fn no_bytes_make_the_loader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Config::parse_bytes("f", &bytes);
    }

    #[test]
    fn no_damage_to_a_good_file_makes_it_panic(
        at in 0usize..1000,
        cut in 0usize..30,
        insert in "[-a-z0-9 :{}\\[\\],&*!|>'\"%@`#\n\t\u{0}é~<]{0,8}",
    ) {
        let good = with(&[("#channels", "e: {type: append}\nq: {type: queue, retry: {}}")]);
        let mut bytes = good.into_bytes();
        let at = at % bytes.len();
        let end = (at + cut).min(bytes.len());
        bytes.splice(at..end, insert.into_bytes());
        match Config::parse_bytes("f", &bytes) {
            Ok(config) => {
                let again = load(&config.to_yaml());
                prop_assert_eq!(again.unwrap(), config);
            }
            // No finding, no refusal: nothing may be turned away without a word.
            Err(findings) => prop_assert!(!findings.list.is_empty()),
        }
    }

    #[test]
    fn what_is_written_back_loads_to_the_same(
        limits in some_keys("`broker.limits`"),
        append in some_keys("`channels.<name>` with `type: append`"),
        latest in some_keys("`channels.<name>` with `type: latest`"),
        queue in some_keys("`channels.<name>` with `type: queue`"),
        provider in some_keys("`broker.storage.providers.<name>`"),
        retained in some_keys("`broker.retained`"),
        share in some_keys("`broker.share`"),
        qos2 in some_keys("`broker.qos2`"),
        id in "[ -~é\u{2028}😀]{1,40}",
    ) {
        let provider: Vec<String> = provider
            .into_iter()
            .map(|(key, value)| format!("{key}: {value}\n"))
            .collect();
        let channels = [("append", append), ("latest", latest), ("queue", queue)]
            .map(|(kind, keys)| format!("{kind}:\n  {{type: {kind}, {}}}\n", flow(&keys)));
        let text = with(&[
            ("#broker", &format!(
                "limits: {{{}}}\nretained: {{{}}}\nshare: {{{}}}\nqos2: {{{}}}",
                flow(&limits), flow(&retained),
                flow(&share),
                flow(&qos2),
            )),
            ("#provider", &provider.concat()),
            ("#channels", &channels.concat()),
        ]);
        let text = text.replace("edge-1", &yaml::quote(&id));
        match load(&text) {
            Ok(config) => {
                let written = config.to_yaml();
                let again = load(&written).unwrap();
                prop_assert_eq!(again.to_yaml(), written);
                prop_assert_eq!(again, config);
            }
            // What does not agree with another key, and nothing else.
            Err(findings) => for finding in findings.list {
                let known = [
                    "session_queue_bytes", "is not shorter than", "max_topic_l", "publish_commit",
                ];
                prop_assert!(
                    known.iter().any(|part| finding.problem.contains(part)),
                    "{:?}\n{}", finding, text
                );
            }
        }
    }
}
