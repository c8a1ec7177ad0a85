//! What a client asks by a publish: seeks and point reads.

use super::*;
use crate::storage::StoreError;

const SEEK: &str = "$saguin/consumer/events/seek";

/// A publish that asks, with a Response Topic and Correlation Data.
pub(super) fn ask(topic: &str, text: &str) -> Publish {
    Publish {
        properties: PublishProperties {
            response_topic: Some(Bytes::from_static(b"re/me")),
            correlation_data: Some(Bytes::from_static(b"17")),
            ..PublishProperties::default()
        },
        ..publish(topic, text)
    }
}

impl Client {
    /// Asks; returns the reply, if there was one, and what the PUBACK says.
    pub(super) fn ask(&self, ask: Publish) -> (Option<OutgoingPublish>, Reason) {
        assert_eq!(self.connection.publish(ask, self.now()), Flow::Continue);
        self.take_into_stash();
        self.settle();
        let mut reply = None;
        let reason = loop {
            let packet = self.pick(|packet| match packet {
                Outgoing::Puback { reason, .. } => Some(Err(*reason)),
                Outgoing::Publish(publish) if publish.qos == 0 => Some(Ok(publish.clone())),
                _ => None,
            });
            match packet.expect("a PUBACK") {
                Ok(publish) => reply = Some(publish),
                Err(reason) => break reason,
            }
        };
        (reply, reason)
    }

    fn take_into_stash(&self) {
        let _ = self.pick(|_| None::<()>);
    }

    fn seek(&self, target: &str) -> (String, Reason) {
        let (reply, reason) = self.ask(ask(SEEK, target));
        (payload(&reply.expect("a reply")), reason)
    }
}

/// A durable consumer that has read and acknowledged `1` to `5`, one a minute.
fn reader_of_five(world: &World) -> Client {
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    let publisher = world.connect(connect("p"));
    for number in ["1", "2", "3", "4", "5"] {
        publisher.publish("events/x", number);
        world.pass(Duration::from_secs(60));
    }
    assert_eq!(client.consume().len(), 5);
    client
}

#[test]
fn a_seek_takes_every_form() {
    let world = World::new();
    let client = reader_of_five(&world);
    // Record `n` is 6 - n minutes old.
    for (target, offset, first) in [
        ("0", "1", Some("1")),
        ("-1", "6", None),
        ("3", "3", Some("3")),
        ("6", "6", None),
        ("-2m", "4", Some("4")),
        ("121s", "4", Some("4")),
        ("1d", "1", Some("1")),
        ("1s", "6", None),
        // 90 seconds after the first of them.
        ("2023-11-14T22:14:50Z", "3", Some("3")),
        ("2023-11-14T23:14:20+01:00", "2", Some("2")),
        ("1999-01-01T00:00:00Z", "1", Some("1")),
        ("2100-01-01T00:00:00Z", "6", None),
    ] {
        assert_eq!(
            client.seek(target),
            (offset.into(), Reason::Success),
            "{target}"
        );
        assert_eq!(
            client.consume().first().map(String::as_str),
            first,
            "{target}"
        );
    }
}

#[test]
fn a_seek_is_stored_before_it_is_answered_and_answered_before_the_replay() {
    let world = World::new();
    let client = reader_of_five(&world);
    let connection = &client.connection;
    connection.publish(ask(SEEK, "2"), world.now());
    assert!(client.take().is_empty(), "nothing before it is stored");
    world.settle();
    assert_eq!(world.store.crash().position("a", EVENTS), Some(2));
    let out = client.take();
    let Outgoing::Publish(reply) = &out[0] else {
        panic!("{out:?}")
    };
    assert_eq!(
        (&reply.topic[..], &reply.payload[..]),
        (&b"re/me"[..], &b"2"[..])
    );
    assert_eq!(&reply.properties[..], [0x09, 0, 2, b'1', b'7']);
    assert!(matches!(
        out[1],
        Outgoing::Puback {
            reason: Reason::Success,
            ..
        }
    ));
    let replayed: Vec<_> = out.into_iter().filter_map(message).skip(1).collect();
    let replayed: Vec<_> = replayed.iter().map(payload).collect();
    assert_eq!(replayed, ["2", "3", "4", "5"]);
}

#[test]
fn a_late_acknowledgement_of_the_era_before_moves_nothing() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    let publisher = world.connect(connect("p"));
    for number in ["1", "2", "3"] {
        publisher.publish("events/x", number);
    }
    let before = client.messages();
    assert_eq!(client.seek("2").1, Reason::Success);
    client.ack(&before);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.crash().position("a", EVENTS), Some(2));
    let replayed = client.messages();
    assert_eq!(replayed.iter().map(payload).collect::<Vec<_>>(), ["2", "3"]);
    client.ack(&replayed);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.crash().position("a", EVENTS), Some(4));
}

#[test]
fn a_refused_seek_says_why_and_moves_nothing() {
    let world = World::with(Options {
        retention_period: Some(Duration::from_secs(200)),
        ..Options::default()
    });
    let client = reader_of_five(&world);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.counted(EVENTS).floor, 3);
    for (target, word) in [
        ("1", "below-floor"),
        ("7", "beyond-end"),
        ("1h", "below-floor"),
        ("1999-01-01T00:00:00Z", "below-floor"),
        ("", "malformed"),
        ("-2", "malformed"),
        ("soon", "malformed"),
        ("1w", "malformed"),
    ] {
        let refused = (word.to_owned(), Reason::ImplementationSpecific);
        assert_eq!(client.seek(target), refused, "{target}");
    }
    let (reply, _) = client.ask(ask(SEEK, "1"));
    assert_eq!(
        property(&reply.unwrap(), "saguin-floor").as_deref(),
        Some("3")
    );
    let (reply, _) = client.ask(ask(SEEK, "7"));
    assert_eq!(
        property(&reply.unwrap(), "saguin-next").as_deref(),
        Some("6")
    );
    assert!(client.consume().is_empty());
    assert_eq!(client.seek("0"), ("3".to_owned(), Reason::Success));
    assert_eq!(client.consume(), ["3", "4", "5"]);
}

#[test]
fn on_an_emptied_channel_no_past_moment_is_served_as_if_nothing_had_been_there() {
    let world = World::with(Options {
        retention_period: Some(Duration::from_secs(200)),
        ..Options::default()
    });
    let client = reader_of_five(&world);
    world.advance(Duration::from_secs(600));
    assert_eq!(client.seek("10m").0, "below-floor");
    assert_eq!(client.seek("0").0, "6");
    assert_eq!(client.seek("2100-01-01T00:00:00Z").0, "6");
}

#[test]
fn a_seek_without_a_kept_session_or_an_append_channel_is_refused() {
    let world = World::new();
    let client = world.connect(connect("a"));
    client.subscribe("events/#");
    let refused = ("no-session".to_owned(), Reason::ImplementationSpecific);
    assert_eq!(client.seek("0"), refused);
    let client = world.connect(durable("b"));
    for channel in ["state", "jobs", "none"] {
        let topic = format!("$saguin/consumer/{channel}/seek");
        let (reply, reason) = client.ask(ask(&topic, "0"));
        assert_eq!(
            (reply, reason),
            (None, Reason::TopicNameInvalid),
            "{channel}"
        );
    }
    let (reply, reason) = client.ask(publish("$saguin/consumer/jobs__dlq/seek", "0"));
    assert_eq!(reason, Reason::Success);
    let topic = reply.unwrap().topic;
    assert_eq!(topic, "$saguin/consumer/jobs__dlq/seek/reply");
}

#[test]
fn a_seek_before_the_first_read_is_where_that_starts_across_a_crash() {
    let world = World::new();
    let publisher = world.connect(connect("p"));
    for number in ["1", "2", "3"] {
        publisher.publish("events/x", number);
    }
    let client = world.connect(durable("a"));
    assert_eq!(client.seek("2").1, Reason::Success);
    let world = world.crash();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    assert_eq!(client.consume(), ["2", "3"]);
    client.disconnect();
    // It was used once: the next place in the channel begins as any does.
    let client = world.connect(durable("a"));
    client.unsubscribe("events/#");
    client.subscribe("events/#");
    assert_eq!(client.consume(), ["1", "2", "3"]);
}

#[test]
fn a_seek_that_cannot_be_stored_leaves_the_position_where_it_was() {
    let world = World::new();
    let client = reader_of_five(&world);
    world.store.refuse_when(|_| Some(StoreError::ProviderFull));
    let refused = ("storage".to_owned(), Reason::ImplementationSpecific);
    assert_eq!(client.seek("0"), refused);
    assert!(client.consume().is_empty());
    world.store.refuse_nothing();
    world.connect(connect("q")).publish("events/x", "6");
    assert_eq!(client.consume(), ["6"]);
}

#[test]
fn replies_may_be_subscribed_to_where_there_is_something_to_seek() {
    let world = World::new();
    let client = world.connect(durable("a"));
    let filter = "$saguin/consumer/events/seek/reply";
    assert_eq!(client.subscribe(filter), SubackReason::Granted(1));
    for channel in ["state", "jobs", "none"] {
        let filter = format!("$saguin/consumer/{channel}/seek/reply");
        let refused = SubackReason::Refused(Reason::TopicFilterInvalid);
        assert_eq!(client.subscribe(&filter), refused, "{channel}");
    }
    let world = world.crash();
    let client = world.connect(durable("a"));
    assert!(client.connack.session_present);
    assert_eq!(client.unsubscribe(filter), Reason::Success);
}

#[test]
fn a_point_read_is_answered_with_the_value_or_with_nothing() {
    let world = World::new();
    let client = world.connect(connect("a"));
    client.publish("state/x", "1");
    client.publish("state/x", "2");
    client.publish("state/gone", "1");
    client.publish("state/gone", "");
    for (topic, value) in [("state/x", "2"), ("state/gone", ""), ("state/never", "")] {
        let (reply, reason) = client.ask(ask("$saguin/kv/get", topic));
        let reply = reply.unwrap();
        assert_eq!((payload(&reply).as_str(), reason), (value, Reason::Success));
        assert_eq!(reply.topic, "re/me");
        assert_eq!(&reply.properties[..], [0x09, 0, 2, b'1', b'7']);
        assert!(!reply.retain);
    }
    let mut bare = ask("$saguin/kv/get", "state/x");
    bare.properties.correlation_data = None;
    let (reply, _) = client.ask(bare);
    assert_eq!(&reply.unwrap().properties[..], b"\x09\x00\x07state/x");
}

#[test]
fn a_point_read_is_refused_with_its_code() {
    let world = World::new();
    let client = world.connect(Connect {
        maximum_packet_size: Some(64),
        ..connect("a")
    });
    let deep = format!("state/{}", "/".repeat(200));
    for (key, reason) in [
        ("", Reason::ImplementationSpecific),
        ("live", Reason::TopicNameInvalid),
        ("events/x", Reason::TopicNameInvalid),
        ("jobs/x", Reason::TopicNameInvalid),
        ("jobs/__dlq/x", Reason::TopicNameInvalid),
        ("state/+", Reason::TopicNameInvalid),
        ("state/#", Reason::TopicNameInvalid),
        ("$saguin/kv/get", Reason::TopicNameInvalid),
        ("$SYS/x", Reason::TopicNameInvalid),
        ("$share/g/state/x", Reason::TopicNameInvalid),
        (
            &format!("state/{}", "x".repeat(1024)),
            Reason::TopicNameInvalid,
        ),
        (&deep, Reason::TopicNameInvalid),
    ] {
        assert_eq!(
            client.ask(ask("$saguin/kv/get", key)),
            (None, reason),
            "{key}"
        );
    }
    let without = client.ask(publish("$saguin/kv/get", "state/x"));
    assert_eq!(without, (None, Reason::ImplementationSpecific));
    let long = "x".repeat(100);
    world.connect(connect("b")).publish("state/x", &long);
    let too_large = client.ask(ask("$saguin/kv/get", "state/x"));
    assert_eq!(too_large, (None, Reason::ImplementationSpecific));
    world.store.set_unreadable(Some("a bad sector"));
    let unreadable = client.ask(ask("$saguin/kv/get", "state/x"));
    assert_eq!(unreadable, (None, Reason::ImplementationSpecific));
    world.store.set_unreadable(None);
    let at_qos_0 = Publish {
        qos: 0,
        ..ask("$saguin/kv/get", "state/x")
    };
    client.connection.publish(at_qos_0, world.now());
    assert!(client.take().is_empty());
    let will = will("$saguin/kv/get", "state/x", 0);
    assert_eq!(
        world.refused(Connect {
            will,
            ..connect("c")
        }),
        Reason::TopicNameInvalid
    );
}
