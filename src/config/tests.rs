//! The loader as a whole: what it takes, each thing it refuses, and what it writes back.

mod round_trip;

use std::time::Duration;

use super::keys::{SECTIONS, WhenAbsent};
use super::parse::parse;
use super::*;

/// The least a broker needs. The comments are where a test adds lines.
const LEAST: &str = "\
broker:
  id: edge-1
  #mqtt
  storage:
    default: main
    default_retention_period: 7d
    default_retention_bytes: none
    providers:
      main:
        type: log
        log_dir: /var/lib/saguin
        #provider
  #broker
channels:
  #channels
";

/// `LEAST` with lines put in the place of a mark, indented as the mark is.
fn with(changes: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for line in LEAST.lines() {
        let mark = line.trim_start();
        let indent = &line[..line.len() - mark.len()];
        match changes.iter().find(|(at, _)| *at == mark) {
            Some((_, lines)) => {
                for line in lines.lines() {
                    text.push_str(&format!("{indent}{line}\n"));
                }
            }
            None if mark == "#channels" => text.push_str("  {}\n"),
            None => text.push_str(&format!("{line}\n")),
        }
    }
    text
}

fn load(text: &str) -> Result<Config, Findings> {
    Config::parse("f.yaml", text)
}

/// The findings of a text, each as its line.
fn lines(text: &str) -> Vec<String> {
    match load(text) {
        Ok(_) => vec![],
        Err(findings) => findings.to_string().lines().map(str::to_owned).collect(),
    }
}

/// One finding and no other, which holds every one of `parts`.
#[track_caller]
fn refused(text: &str, parts: &[&str]) {
    let found = lines(text);
    assert_eq!(found.len(), 1, "{text}\n{found:#?}");
    for part in parts {
        assert!(found[0].contains(part), "{part:?} not in {:?}", found[0]);
    }
}

fn channel(keys: &str) -> String {
    with(&[("#channels", &format!("c: {{{keys}}}"))])
}

#[test]
fn the_least_file_has_the_documented_defaults() {
    let config = load(&with(&[])).unwrap();
    assert_eq!(config.broker.id, "edge-1");
    assert_eq!(config.broker.log_level, LogLevel::Info);
    let mqtt = &config.broker.mqtt;
    assert_eq!(mqtt.listeners.len(), 1);
    assert_eq!(mqtt.listeners[0].address, "0.0.0.0:1883".parse().unwrap());
    assert!(mqtt.allow_anonymous);
    assert_eq!(mqtt.min_protocol_version, ProtocolVersion::V311);
    assert_eq!(config.broker.session.storage, "main");
    let limits = &config.broker.limits;
    assert_eq!(limits.max_message_size, 1 << 20);
    assert_eq!(limits.max_keepalive, None);
    assert_eq!(limits.write_timeout.unwrap().as_secs(), 5);
    assert_eq!(limits.max_connections, 10_000);
    assert!(config.channels.is_empty());
}

#[test]
fn channels_take_their_defaults_from_the_storage_section() {
    let text = with(&[(
        "#channels",
        "e: {type: append}\n\
         s: {type: latest, filter: 's/{a,b}'}\n\
         q:\n  type: queue\n  retry: {backoff: linear, backoff_base: 2s}\n",
    )]);
    let config = load(&text).unwrap();
    let week = Some(std::time::Duration::from_secs(604_800));
    let ChannelSettings::Append(append) = &config.channels[0].settings else {
        panic!("{config:?}")
    };
    assert_eq!(config.channels[0].filter.as_written(), "e/#");
    assert_eq!(append.retention_period, week);
    assert_eq!(append.start, Start::Floor);
    assert_eq!(config.channels[1].filter.plain().len(), 2);
    let ChannelSettings::Queue(queue) = &config.channels[2].settings else {
        panic!("{config:?}")
    };
    assert_eq!(queue.visibility_timeout.as_secs(), 30);
    assert_eq!(queue.dlq_retention_period, week);
    assert_eq!(queue.retry.max_attempts, 5);
    let base = std::time::Duration::from_secs(2);
    assert_eq!(queue.retry.backoff, Backoff::Linear { base });
    assert_eq!(config.routes().unwrap().channels().len(), 4);
}

#[test]
fn what_an_operator_writes_without_quotes_is_taken() {
    let text = with(&[
        (
            "#mqtt",
            "mqtt: {listen: {tcp: {address: 0.0.0.0:1883}}, min_protocol_version: \"5\"}",
        ),
        (
            "#channels",
            "events: {type: append, filter: iot/+/events/#, storage: main, max_bytes: 20GiB}\n\
             iot:\n  type: latest\n  filter: iot/{a,b}/state # the current one\n",
        ),
    ]);
    let config = load(&text).unwrap();
    assert_eq!(config.broker.mqtt.min_protocol_version, ProtocolVersion::V5);
    assert_eq!(config.channels[0].filter.as_written(), "iot/+/events/#");
    assert_eq!(config.channels[1].filter.plain().len(), 2);
}

#[test]
fn deep_nesting_is_a_finding() {
    for nest in ["[", "- ", "{a: ", "? "] {
        let text = nest.repeat(100_000);
        assert!(lines(&text)[0].contains("not YAML"), "{nest}");
    }
}

#[test]
fn every_default_is_what_its_own_key_takes() {
    for (heading, section) in SECTIONS {
        for key in section.keys {
            if let WhenAbsent::Is(text) = key.default {
                let parsed = parse(&key.kind, text, false);
                assert!(parsed.is_ok(), "{heading} {}: {parsed:?}", key.name);
            }
        }
    }
}

#[test]
fn a_key_of_the_full_product_is_refused_by_name() {
    for (mark, line) in [
        ("#broker", "pid_file: /run/saguin.pid"),
        ("#broker", "operations: {}"),
        ("#broker", "limits: {publish_rate: none}"),
        ("#broker", "limits: {publish_bytes: none}"),
        ("#broker", "limits: {max_connect_rate: 500}"),
        ("#mqtt", "mqtt: {password_file: /etc/p}"),
        ("#mqtt", "mqtt: {acl_file: /etc/a}"),
        ("#mqtt", "mqtt: {allow_anonymous: false}"),
        (
            "#mqtt",
            "mqtt: {listen: {tcp: {address: '[::1]:1', tls: {}}}}",
        ),
        (
            "#mqtt",
            "mqtt: {listen: {tcp: {address: '[::1]:1'}, ws: {}}}",
        ),
        (
            "#mqtt",
            "mqtt: {listen: {tcp: {address: '[::1]:1'}, unix: {}}}",
        ),
        ("#channels", "- {type: append}"),
        ("#channels", "!include c.yaml"),
    ] {
        refused(&with(&[(mark, line)]), &["not supported by this version"]);
    }
    refused(&format!("{}bridges: {{}}\n", with(&[])), &["bridges"]);
    for kind in ["sqlite", "memory"] {
        let text = with(&[]).replace("type: log", &format!("type: {kind}"));
        refused(&text, &[kind, "not supported by this version", "type: log"]);
    }
}

#[test]
fn what_an_acknowledgement_promises_is_a_providers_and_a_channels_to_say() {
    let text = with(&[
        ("#provider", "durability: interval\nflush_interval: 50ms"),
        (
            "#channels",
            "c: {type: append, durability: sync}\nd: {type: latest}",
        ),
    ]);
    let config = load(&text).expect("good");
    let provider = &config.broker.storage.providers[0];
    assert_eq!(provider.durability, Durability::Interval);
    assert_eq!(provider.flush_interval, Duration::from_millis(50));
    let durability = |name: &str| {
        let found = config.channels.iter().find(|c| c.name == name);
        found.map(|c| c.durability)
    };
    assert_eq!(durability("c"), Some(Durability::Sync));
    assert_eq!(
        durability("d"),
        Some(Durability::Interval),
        "the provider's"
    );
    for line in [
        "flush_interval: 5ms",
        "flush_interval: 2s",
        "durability: maybe",
    ] {
        refused(&with(&[("#provider", line)]), &["main"]);
    }
}

#[test]
fn who_shares_a_commit_is_said_whole_or_not_at_all() {
    let read = |lines: &str| {
        let config = load(&with(&[("#provider", lines)])).expect("good");
        config.broker.storage.providers[0].publish_commit
    };
    assert_eq!(read("#provider"), PublishCommit::AsTheyCome);
    assert_eq!(read("publish_commit_interval: none"), PublishCommit::Alone);
    let wait = PublishCommit::Wait {
        interval: Duration::from_millis(5),
        max_records: 64,
    };
    let both = "publish_commit_interval: 5ms\npublish_commit_max_records: 64";
    assert_eq!(read(both), wait);
    for (lines, words) in [
        (
            "publish_commit_interval: 5ms",
            "without `publish_commit_max_records`",
        ),
        ("publish_commit_max_records: 5", "no interval to end"),
        (
            "publish_commit_interval: none\npublish_commit_max_records: 5",
            "no interval to end",
        ),
    ] {
        refused(&with(&[("#provider", lines)]), &[words]);
    }
}

#[test]
fn what_yaml_allows_and_a_configuration_does_not() {
    let least = with(&[]);
    refused("", &["holds no configuration"]);
    refused("a: [", &["f.yaml:1:", "not YAML"]);
    refused(
        &format!("%YAML 1.2\n---\n{least}"),
        &["f.yaml:1:", "not YAML"],
    );
    refused(
        &format!("{least}---\nbroker: {{}}\n"),
        &["f.yaml:16:", "second document"],
    );
    refused(
        &least.replace("edge-1", "&id edge-1"),
        &["f.yaml:2:", "anchor"],
    );
    refused(&least.replace("edge-1", "*id"), &["f.yaml:2:", "alias"]);
    refused(
        &least.replace("edge-1", "!!str edge-1"),
        &["f.yaml:2:", "tag"],
    );
    refused(
        &with(&[("#broker", "<<: {log_level: info}")]),
        &["f.yaml:13:", "`<<`"],
    );
    refused(
        &with(&[("#broker", "1: x")]),
        &["`1` is not a string", "\"1\""],
    );
    refused(&with(&[("#broker", "[a]: x")]), &["not a string"]);
    refused(
        &with(&[("#broker", "id: other")]),
        &["f.yaml:13:3:", "`id`", "first on line 2"],
    );
    refused(
        &with(&[("#channels", "c: {type: append}\nc: {type: latest}")]),
        &["f.yaml:16:3:", "`c`", "first on line 15"],
    );
    refused("broker", &["the file is `broker`", "mapping"]);
    refused(
        &with(&[("#broker", "limits:")]),
        &["`broker.limits` holds nothing"],
    );
    refused(
        &with(&[("#broker", "limits: [1]")]),
        &["`broker.limits` is a list"],
    );
}

#[test]
fn unknown_keys_are_named_with_what_was_probably_meant() {
    refused(
        &with(&[("#broker", "log_levl: info")]),
        &[
            "f.yaml:13:3:",
            "no key `broker.log_levl`",
            "write `log_level`",
        ],
    );
    refused(
        &with(&[("#broker", "colour: red")]),
        &["no key `broker.colour`", "write one of id, log_level"],
    );
    refused(
        &channel("type: append, retries: 3"),
        &["channels.c.retries"],
    );
    refused(
        &with(&[("#broker", "session: {store: x}")]),
        &["broker.session.store"],
    );
}

#[test]
fn required_keys_are_missed_by_name() {
    let least = with(&[]);
    for (line, name) in [
        ("  id: edge-1\n", "broker.id"),
        ("    default: main\n", "broker.storage.default"),
        (
            "    default_retention_period: 7d\n",
            "broker.storage.default_retention_period",
        ),
        (
            "    default_retention_bytes: none\n",
            "broker.storage.default_retention_bytes",
        ),
        ("        type: log\n", "broker.storage.providers.main.type"),
        (
            "        log_dir: /var/lib/saguin\n",
            "broker.storage.providers.main.log_dir",
        ),
    ] {
        let text = least.replace(line, "");
        assert_ne!(text, least);
        refused(&text, &[&format!("`{name}` is missing")]);
    }
    refused("channels: {}", &["`broker` is missing"]);
    refused("broker: {id: x}", &["`broker.storage` is missing"]);
    refused(&channel("filter: a"), &["`channels.c.type` is missing"]);
    refused(
        &with(&[("#mqtt", "mqtt: {listen: {}}")]),
        &["`broker.mqtt.listen.tcp` is missing"],
    );
    refused(
        &with(&[("#mqtt", "mqtt: {listen: {tcp: {name: a}}}")]),
        &["`broker.mqtt.listen.tcp.address` is missing"],
    );
    refused(
        &with(&[("#mqtt", "mqtt: {listen: {tcp: [{address: '[::]:1'}]}}")]),
        &["no `name`"],
    );
}

#[test]
fn each_kind_of_value_has_its_refusals() {
    let limit = |line: &str| with(&[("#broker", &format!("limits: {{{line}}}"))]);
    for (line, why) in [
        ("max_connections: ten", "not a whole number"),
        ("max_connections: \"10\"", "quotes make it one"),
        ("max_connections: 010", "leading zero"),
        ("max_connections: 1_000", "not a whole number"),
        ("max_connections: -1", "not a whole number"),
        ("max_connections: 0", "too little"),
        ("max_connections: 99999999", "too much"),
        ("max_connections: 99999999999999999999999", "too large"),
        ("max_connections:", "has no value"),
        ("max_connections: [1]", "list or a mapping"),
        ("max_client_id_length: 22", "too little"),
        ("max_client_id_length: 65001", "too much"),
        ("max_message_size: 25MiB", "too much"),
        ("max_topic_levels: 0", "too little"),
        ("max_topic_length: 65536", "too much"),
        ("max_message_size: 1023", "too little"),
        ("max_message_size: 1MB", "KiB, MiB and GiB"),
        ("max_message_size: 0", "too little"),
        ("max_message_size: none", "not a size"),
        ("max_message_size: \"4096\"", "quotes make it one"),
        ("max_message_size: 0x1000", "not a size"),
        ("max_header_bytes: 0", "too little"),
        ("max_session_expiry: none", "not a duration"),
        ("connect_timeout: none", "not a duration"),
        ("connect_timeout: 0s", "too little"),
        ("connect_timeout: 10", "not a duration"),
        ("connect_timeout: 1500ms", "no whole number of seconds"),
        ("connect_timeout: 1w", "units are ms, s, m, h and d"),
        ("write_timeout: 0ms", "too little"),
        ("max_keepalive: 65536s", "too much"),
        ("max_connect_size: 1", "too little"),
    ] {
        refused(
            &limit(line),
            &["f.yaml:13:", "`broker.limits.", why, "; write "],
        );
    }
    for ok in [
        "max_keepalive: 65535s",
        "write_timeout: none",
        "write_timeout: 1500ms",
        "connect_timeout: 2000ms",
        "max_client_id_length: 23",
        "max_client_id_length: 65000",
        "max_message_size: \"512KiB\"",
        "max_header_count: 0",
    ] {
        assert_eq!(lines(&limit(ok)), Vec::<String>::new(), "{ok}");
    }
    let least = with(&[]);
    refused(
        &least.replace("edge-1", "7"),
        &["not a string without quotes"],
    );
    refused(
        &least.replace("edge-1", "true"),
        &["not a string without quotes"],
    );
    refused(&least.replace("edge-1", "''"), &["has 0 bytes"]);
    refused(
        &least.replace("edge-1", "\"a\\tb\""),
        &["control character"],
    );
    refused(
        &with(&[("#broker", "log_level: trace")]),
        &["`debug` or `info`"],
    );
    refused(
        &with(&[("#mqtt", "mqtt: {min_protocol_version: 4}")]),
        &["`3.1.1` or `5`"],
    );
    refused(
        &with(&[("#mqtt", "mqtt: {allow_anonymous: yes}")]),
        &["not a boolean"],
    );
    refused(
        &with(&[("#mqtt", "mqtt: {allow_anonymous: \"true\"}")]),
        &["quotes make it one"],
    );
    refused(
        &with(&[("#broker", "session: {ack_commit_interval: 5ms}")]),
        &["10ms to 1s"],
    );
    refused(&with(&[("#provider", "segment_bytes: 4KiB")]), &["1MiB"]);
    refused(
        &least.replace("/var/lib/saguin", "lib/saguin"),
        &["not absolute"],
    );
    refused(&least.replace("/var/lib/saguin", "/var/../x"), &["`..`"]);
}

#[test]
fn addresses_need_a_port_and_share_none() {
    let listen = |tcp: &str| with(&[("#mqtt", &format!("mqtt: {{listen: {{tcp: {tcp}}}}}"))]);
    refused(&listen("{address: 127.0.0.1}"), &["has no port"]);
    refused(
        &listen("{address: 'localhost:1883'}"),
        &["not an IP address"],
    );
    refused(
        &listen("{address: '127.0.0.1:99999'}"),
        &["not an IP address"],
    );
    refused(&listen("[]"), &["empty list"]);
    refused(
        &listen("[{name: a, address: '127.0.0.1:1883'}, {name: b, address: '0.0.0.0:1883'}]"),
        &["`a` (line 3)", "`b`", "share port 1883"],
    );
    refused(
        &listen("[{name: a, address: '[::1]:1'}, {name: a, address: '[::1]:2'}]"),
        &["two listeners are named `a`"],
    );
    refused(
        &listen("[{name: 'a b', address: '[::1]:1'}]"),
        &["holds ` `"],
    );
    let two = listen("[{name: a, address: '127.0.0.1:0'}, {name: b, address: '127.0.0.1:0'}]");
    assert_eq!(load(&two).unwrap().broker.mqtt.listeners.len(), 2);
    let short = load(&listen("{address: ':1884'}")).unwrap();
    let listener = &short.broker.mqtt.listeners[0];
    assert_eq!(listener.address, "0.0.0.0:1884".parse().unwrap());
}

#[test]
fn providers_are_held_against_each_other_and_the_limits() {
    refused(
        &with(&[("#broker", "session: {storage: other}")]),
        &[
            "`broker.session.storage` names the provider `other`",
            "main",
        ],
    );
    refused(
        &with(&[]).replace("default: main", "default: mian"),
        &["`broker.storage.default` names the provider `mian`"],
    );
    refused(
        &channel("type: append, storage: x"),
        &["`channels.c.storage`", "main"],
    );
    refused(&with(&[("#provider", "max_bytes: 15MiB")]), &["16MiB"]);
    refused(
        &with(&[
            ("#provider", "max_bytes: 16MiB"),
            (
                "#broker",
                "limits: {max_message_size: 8MiB, session_queue_bytes: 8MiB}",
            ),
        ]),
        &["`broker.storage.providers.main.max_bytes`", "or more"],
    );
    let second = "segment_bytes: 1MiB\n#two";
    let text = with(&[("#provider", second)]).replace(
        "        #two\n",
        "      two: {type: log, log_dir: /var//lib/./saguin/}\n",
    );
    refused(&text, &["`main` (line 11)", "`two`", "share the directory"]);
    let bad_name = with(&[]).replace("      main:", "      'm/n':");
    let found = lines(&bad_name);
    assert!(
        found.iter().any(|line| line.contains("holds `/`")),
        "{found:#?}"
    );
    refused(
        &with(&[("#broker", "limits: {session_queue_bytes: 1KiB}")]),
        &["`broker.limits.session_queue_bytes`", "write 1MiB or more"],
    );
    for (key, why) in [
        ("file_path: /x", "log_dir"),
        ("synchronous: full", "sqlite"),
        ("read_connections: 2", "sqlite"),
        ("snapshot_dir: none", "memory"),
    ] {
        refused(&with(&[("#provider", key)]), &["does not belong here", why]);
    }
}

#[test]
fn a_key_of_another_type_of_channel_is_refused_with_its_reason() {
    for (keys, why) in [
        ("type: queue, retention_period: 1d", "never aged out"),
        ("type: queue, retention_bytes: 1GiB", "never aged out"),
        ("type: queue, start: tail", "type: append"),
        ("type: queue, deletion_retention_period: 1d", "type: latest"),
        ("type: latest, retention_bytes: 1GiB", "one value per topic"),
        ("type: latest, max_bytes: 1GiB", "one value per topic"),
        ("type: latest, start: tail", "type: append"),
        ("type: latest, retry: {}", "type: queue"),
        ("type: append, visibility_timeout: 1s", "type: queue"),
        ("type: append, job_expires_after: 1s", "type: queue"),
        (
            "type: append, deletion_retention_period: 1d",
            "type: latest",
        ),
        ("type: append, dlq_retention_bytes: none", "type: queue"),
    ] {
        refused(&channel(keys), &["f.yaml:15:", "does not belong here", why]);
    }
}

#[test]
fn queues_are_refused_what_no_job_could_survive() {
    refused(
        &channel("type: queue, visibility_timeout: 1m, job_expires_after: 60s"),
        &["`channels.c.visibility_timeout` (1m) is not shorter"],
    );
    refused(
        &channel("type: queue, retry: {backoff: linear}"),
        &["`channels.c.retry.backoff` is `linear`", "backoff_base"],
    );
    refused(
        &channel("type: queue, retry: {backoff_base: 2s}"),
        &["the base of no `backoff`"],
    );
    refused(
        &channel("type: queue, retry: {max_attempts: 0}"),
        &["too little"],
    );
    refused(
        &channel("type: queue, filter: 'a/{b,c}'"),
        &["without braces"],
    );
    refused(&channel("type: cue"), &["`channels.c.type` is `cue`"]);
    refused(&channel("type: [queue]"), &["not a word"]);
}

#[test]
fn names_and_filters_of_channels_follow_their_rules() {
    for (name, why) in [
        ("'a b'", "holds ` `"),
        ("'é'", "holds `é`"),
        ("..", "names a directory"),
        ("''", "has 0 characters"),
        ("x__dlq", "ends in `__dlq`"),
    ] {
        let text = with(&[("#channels", &format!("{name}: {{type: append, filter: a}}"))]);
        refused(&text, &["f.yaml:15:3:", "channel's name", why]);
    }
    let long = format!("{}: {{type: append, filter: a}}", "n".repeat(129));
    refused(&with(&[("#channels", &long)]), &["has 129 characters"]);
    for (filter, why) in [
        ("'#'", "first level"),
        ("$SYS/x", "`$`"),
        ("a/__dlq", "`__dlq`"),
        ("a/#/b", "last level"),
        ("a/b+", "fills its whole level"),
        ("'a/{b'", "brace"),
        ("'a/{b,}'", "alternative"),
        ("5", "not a string"),
    ] {
        let text = channel(&format!("type: append, filter: {filter}"));
        refused(&text, &["`channels.c.filter`", why]);
    }
    let narrow = |limit: &str| {
        with(&[
            ("#broker", &format!("limits: {{{limit}}}")),
            ("#channels", "c: {type: append, filter: aaaa/b/c}"),
        ])
    };
    refused(&narrow("max_topic_levels: 2"), &["has 3 levels"]);
    refused(&narrow("max_topic_length: 7"), &["has 8 bytes"]);
}

#[test]
fn one_filter_on_two_channels_names_both() {
    refused(
        &with(&[(
            "#channels",
            "one: {type: append, filter: 'a/{b,c}'}\ntwo: {type: latest, filter: a/c}",
        )]),
        &["f.yaml:16:", "`one` (line 15)", "`two`", "`a/c`"],
    );
    refused(
        &with(&[(
            "#channels",
            "one: {type: append, filter: two/#}\ntwo: {type: queue}",
        )]),
        &["`one` (line 15)", "`two`", "`two/#`"],
    );
}

#[test]
fn a_file_with_ten_mistakes_reports_ten() {
    let text = "\
broker:
  id: 5
  log_level: loud
  colour: red
  mqtt:
    allow_anonymous: false
  storage:
    default: nowhere
    default_retention_period: 0s
    default_retention_bytes: none
    providers:
      main: {type: log, log_dir: relative, segment_bytes: 1KB}
channels:
  q: {type: queue, retention_period: 1d, retry: {backoff: linear}}
";
    let found = lines(text);
    assert_eq!(found.len(), 10, "{found:#?}");
    let places: Vec<&str> = found.iter().map(|line| &line[..10]).collect();
    for (place, line) in places.iter().zip([2, 3, 4, 6, 8, 9, 12, 12, 14, 14]) {
        assert!(place.starts_with(&format!("f.yaml:{line}:")), "{found:#?}");
    }
}

#[test]
fn a_mistake_in_one_part_hides_none_in_another() {
    let text = with(&[
        ("#broker", "limits: {max_topic_levels: 2, max_bananas: 1}"),
        ("#channels", "c: {type: append, filter: a/b/c, storage: x}"),
    ]);
    let found = lines(&text.replace("  id: edge-1\n", ""));
    assert_eq!(found.len(), 4, "{found:#?}");
}

#[test]
fn what_is_wrong_with_the_file_itself_is_a_finding_too() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.yaml");
    let findings = Config::load(&missing).unwrap_err();
    assert!(
        findings
            .to_string()
            .contains("missing.yaml:1:1: the file cannot be read")
    );

    let binary = dir.path().join("binary.yaml");
    std::fs::write(&binary, b"broker:\n  id: \xff\n").unwrap();
    let findings = Config::load(&binary).unwrap_err();
    assert!(
        findings
            .to_string()
            .contains("binary.yaml:2:7: the file is not UTF-8")
    );

    let large = dir.path().join("large.yaml");
    let file = std::fs::File::create(&large).unwrap();
    file.set_len(MAX_FILE_BYTES + 1).unwrap();
    assert!(
        Config::load(&large)
            .unwrap_err()
            .to_string()
            .contains("more than")
    );

    let taken = dir.path().join("taken");
    std::fs::write(&taken, b"").unwrap();
    let path = dir.path().join("config.yaml");
    let text = with(&[]).replace("/var/lib/saguin", &taken.display().to_string());
    std::fs::write(&path, text).unwrap();
    let findings = Config::load(&path).unwrap_err();
    assert!(findings.to_string().contains("is not a directory"));
}

#[test]
fn a_provider_nobody_uses_is_warned_of() {
    let text = with(&[("#provider", "segment_bytes: 1MiB\n#two")])
        .replace("        #two\n", "      two: {type: log, log_dir: /x}\n");
    let warnings = load(&text).unwrap().warnings();
    assert_eq!(warnings, ["no channel uses the provider `two`"]);
}

#[test]
fn the_quickstart_loads_with_one_channel_of_each_type() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let config = load(&text).unwrap();
    assert_eq!(config.warnings(), Vec::<String>::new());
    let listeners = &config.broker.mqtt.listeners;
    assert_eq!(listeners[0].address, "127.0.0.1:1883".parse().unwrap());
    let channels: Vec<(&str, &str)> = config
        .channels
        .iter()
        .map(|channel| (channel.name.as_str(), channel.filter.as_written()))
        .collect();
    let expected = [
        ("events", "events/#"),
        ("state", "state/#"),
        ("jobs", "jobs/#"),
    ];
    assert_eq!(channels, expected);
    let ChannelSettings::Queue(queue) = &config.channels[2].settings else {
        panic!("{config:?}")
    };
    assert_eq!(queue.visibility_timeout.as_secs(), 5);
    assert_eq!(queue.retry.max_attempts, 3);
    assert_eq!(load(&config.to_yaml()), Ok(config));
}
