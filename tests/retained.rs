//! Retained broadcast values.

mod common;

use common::{Broker, CHANNELS, Client, ENDS, Setup, hello, hello_v311, text};
use saguin_mqtt_codec::{
    Publish, PublishProperties, QoS, ReasonCode, RetainHandling, Subscribe, Subscription,
    UserPropertiesBuilder, Will,
};

use ReasonCode as R;

fn retain(client: &mut Client, topic: &str, payload: &str) {
    assert_eq!(client.publish_retained(topic, payload), R::Success);
}

fn subscription(filter: &str, handling: u8) -> Subscription {
    Subscription {
        filter: text(filter),
        qos: QoS::AtLeastOnce,
        retain_handling: match handling {
            0 => RetainHandling::Always,
            1 => RetainHandling::NewSubscription,
            _ => RetainHandling::Never,
        },
        ..Subscription::default()
    }
}

/// What a client is sent for a filter: topic and payload, all marked RETAIN.
fn current(broker: &Broker, filter: &str, count: usize) -> Vec<(String, String)> {
    let mut reader = hello("fresh").connect(broker);
    reader.follow(filter);
    let mut came: Vec<(String, String)> = (0..count)
        .map(|_| {
            let publish = reader.take();
            assert!(publish.retain, "{publish:?}");
            let payload = String::from_utf8(publish.payload.to_vec()).expect("text");
            (publish.topic.to_string(), payload)
        })
        .collect();
    reader.expect_nothing();
    came.sort();
    came
}

fn pair(topic: &str, payload: &str) -> (String, String) {
    (topic.to_owned(), payload.to_owned())
}

#[test]
fn the_last_value_of_each_topic_is_kept_across_any_end() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut publisher = hello("publisher").durable().connect(&broker);
        retain(&mut publisher, "talk/a", "1");
        retain(&mut publisher, "talk/a", "2");
        retain(&mut publisher, "talk/b/c", "3");
        retain(&mut publisher, "talk/gone", "4");
        retain(&mut publisher, "talk/gone", "");
        retain(&mut publisher, "talk/never", "");
        publisher.send_publish(Publish {
            retain: true,
            topic: text("talk/zero"),
            payload: "5".into(),
            ..Publish::default()
        });
        let id = publisher.send_publish(Publish {
            qos: QoS::ExactlyOnce,
            retain: true,
            topic: text("talk/twice"),
            payload: "6".into(),
            ..Publish::default()
        });
        assert_eq!(publisher.pubrec(id).reason, R::Success);
        let values = [
            pair("talk/a", "2"),
            pair("talk/b/c", "3"),
            pair("talk/twice", "6"),
            pair("talk/zero", "5"),
        ];
        let without = [values[0].clone(), values[1].clone(), values[3].clone()];
        assert_eq!(current(&broker, "talk/#", 3), without);
        broker.restart_by(end);
        assert_eq!(current(&broker, "talk/#", 3), without, "{end:?}");
        let mut publisher = hello("publisher").durable().connect(&broker);
        assert_eq!(publisher.release(id), R::Success);
        broker.restart_by(end);
        assert_eq!(current(&broker, "talk/#", 4), values, "{end:?}");
        assert_eq!(current(&broker, "talk/a", 1), [pair("talk/a", "2")]);
        assert_eq!(current(&broker, "talk/+", 3).len(), 3);
        assert_eq!(current(&broker, "talk/never", 0), []);
    }
}

#[test]
fn a_live_delivery_is_not_marked_and_a_value_is() {
    let broker = Broker::start();
    let mut reader = hello("reader").connect(&broker);
    reader.follow("talk/#");
    let mut as_published = hello("as published").connect(&broker);
    as_published.subscribe_all(vec![Subscription {
        retain_as_published: true,
        ..subscription("talk/#", 0)
    }]);
    let mut publisher = hello("publisher").connect(&broker);
    retain(&mut publisher, "talk/a", "1");
    assert!(!reader.take().retain);
    assert!(as_published.take().retain);
    retain(&mut publisher, "talk/a", "");
    let deletion = reader.take();
    assert!(deletion.payload.is_empty() && !deletion.retain);
}

#[test]
fn retain_handling_is_followed() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    retain(&mut publisher, "talk/a", "1");
    let mut reader = hello("reader").connect(&broker);
    for (handling, times) in [(2, 0), (1, 0), (0, 1), (0, 1), (1, 0), (2, 0)] {
        reader.subscribe_all(vec![subscription("talk/+", handling)]);
        for _ in 0..times {
            assert!(reader.take().retain);
        }
        reader.expect_nothing();
    }
    reader.unsubscribe("talk/+", None);
    reader.subscribe_all(vec![subscription("talk/+", 1)]);
    assert!(reader.take().retain);
    // One for each filter that asks, with the identifier of the SUBSCRIBE.
    reader.send_subscribe(Subscribe {
        subscription_identifier: Some(5),
        filters: vec![subscription("talk/#", 0), subscription("talk/a", 0)],
        ..Subscribe::default()
    });
    for _ in 0..2 {
        assert_eq!(reader.take().properties.subscription_identifiers, [5]);
    }
    reader.expect_nothing();
    // A client that wants nothing of its own is sent nothing of its own.
    publisher.subscribe_all(vec![Subscription {
        no_local: true,
        ..subscription("talk/a", 0)
    }]);
    publisher.expect_nothing();
    let mut old = hello_v311("old").connect(&broker);
    old.follow("talk/a");
    assert!(old.take().retain);
}

#[test]
fn a_value_goes_out_as_published_and_expires() {
    let mut broker = Broker::with(&Setup {
        broker: "  retained: {retention_period: 1h}",
        ..Setup::default()
    });
    let mut publisher = hello("publisher").connect(&broker);
    let mut pairs = UserPropertiesBuilder::new();
    pairs.push("own", "kept").expect("a pair");
    pairs
        .push("saguin-id", "0190c2a6-3f4b-7cc0-8a4e-0123456789ab")
        .expect("a pair");
    for (topic, expiry) in [
        ("talk/a", None),
        ("talk/b", Some(1000)),
        ("talk/c", Some(1)),
    ] {
        let id = publisher.send_publish(Publish {
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: text(topic),
            payload: "x".into(),
            properties: PublishProperties {
                expiry_seconds: expiry,
                content_type: Some(text("text/x")),
                user_properties: pairs.clone().build(),
                ..PublishProperties::default()
            },
            ..Publish::default()
        });
        assert_eq!(publisher.puback(id).reason, R::Success);
    }
    let mut clock = hello("clock")
        .set(|connect| connect.keep_alive = 1)
        .connect(&broker);
    // One and a half seconds of silence.
    clock.expect_disconnect(R::KeepAliveTimeout);
    broker.restart();
    let mut reader = hello("reader").connect(&broker);
    reader.follow("talk/#");
    for topic in ["talk/a", "talk/b"] {
        let came = reader.take();
        assert_eq!(came.topic.as_str(), topic);
        let properties = &came.properties;
        assert_eq!(properties.content_type, Some(text("text/x")));
        let own: Vec<_> = properties.user_properties.iter().collect();
        assert_eq!(own, [("own", "kept")]);
        let left = properties.expiry_seconds;
        assert_eq!(left.is_some(), topic == "talk/b");
        assert!(
            left.is_none_or(|left| (900..1000).contains(&left)),
            "{left:?}"
        );
    }
    reader.expect_nothing();
}

#[test]
fn a_partition_divides_the_values_too() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    for number in 0..20 {
        retain(&mut publisher, &format!("talk/{number}"), "x");
    }
    let mut total = 0;
    for slice in 0..2 {
        let mut reader = hello(&format!("reader {slice}")).connect(&broker);
        let mut pairs = UserPropertiesBuilder::new();
        pairs
            .push("saguin-filter", &format!("topic_hash(2, {slice})"))
            .expect("a pair");
        reader.send_subscribe(Subscribe {
            user_properties: pairs.build(),
            filters: vec![Subscription {
                qos: QoS::AtMostOnce,
                ..subscription("talk/+", 0)
            }],
            ..Subscribe::default()
        });
        retain(&mut publisher, "other", "x");
        reader.follow("other");
        loop {
            let came = reader.take();
            if came.topic.as_str() == "other" {
                break;
            }
            total += 1;
        }
    }
    assert_eq!(total, 20);
}

#[test]
fn more_values_than_one_read_and_one_window_hold_all_come() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    for number in 0..700 {
        let id = publisher.send_publish(Publish {
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: text(&format!("talk/{number}")),
            payload: format!("{number:0200}").into(),
            ..Publish::default()
        });
        assert_eq!(publisher.puback(id).reason, R::Success);
    }
    let mut reader = hello("reader")
        .durable()
        .set(|c| c.receive_maximum = 10)
        .connect(&broker);
    reader.follow("talk/#");
    for number in 0..300 {
        assert_eq!(reader.take().payload, format!("{number:0200}"));
    }
    // A pass goes on where its connection ended.
    reader.drop_connection();
    let mut reader = hello("reader").durable().connect(&broker);
    for number in 300..700 {
        assert_eq!(reader.take().payload, format!("{number:0200}"));
    }
    reader.expect_nothing();
    let filters = (0..700).map(|number| subscription(&format!("talk/{number}"), 0));
    reader.subscribe_all(filters.collect());
    for number in 0..700 {
        assert_eq!(reader.take().payload, format!("{number:0200}"));
    }
}

#[test]
fn a_channel_that_claims_the_topics_takes_them_over_or_drops_them() {
    let mut broker = Broker::with_channels(CHANNELS);
    let mut publisher = hello("publisher").connect(&broker);
    for topic in ["later/state/a", "later/events/a", "later/jobs/a", "talk/a"] {
        retain(&mut publisher, topic, "kept");
    }
    assert!(broker.stop().success());
    let config = std::fs::read_to_string(broker.config()).expect("the configuration");
    let more = "\n  s: {type: latest, filter: later/state/#}\n  e: {type: append, filter: later/events/#}\n  j: {type: queue, filter: later/jobs/#}\n";
    std::fs::write(broker.config(), format!("{}{more}", config.trim_end())).expect("written");
    broker.launch();
    broker.wait_for_line("a latest channel took them over");
    assert_eq!(
        current(&broker, "later/#", 1),
        [pair("later/state/a", "kept")]
    );
    assert_eq!(current(&broker, "talk/#", 1), [pair("talk/a", "kept")]);
    // Back again: what moved is the channel's now.
    assert!(broker.stop().success());
    std::fs::write(broker.config(), config).expect("written");
    broker.launch();
    assert_eq!(current(&broker, "later/#", 0), []);
}

#[test]
fn a_retained_will_is_a_value() {
    let mut broker = Broker::start();
    let client = hello("a")
        .set(|connect| {
            connect.will = Some(Will {
                topic: text("talk/will"),
                payload: "gone".into(),
                qos: QoS::ExactlyOnce,
                retain: true,
                ..Will::default()
            });
        })
        .connect(&broker);
    let mut reader = hello("reader").connect(&broker);
    reader.follow("talk/#");
    client.drop_connection();
    assert_eq!(reader.take().payload, "gone");
    broker.restart();
    assert_eq!(current(&broker, "talk/#", 1), [pair("talk/will", "gone")]);
}

#[test]
fn where_there_is_no_room_it_is_refused_and_delivered_to_nobody() {
    let broker = Broker::with(&Setup {
        provider: ", max_bytes: 16MiB",
        ..Setup::default()
    });
    let mut reader = hello("reader").connect(&broker);
    reader.follow("talk/#");
    let mut publisher = hello("publisher").connect(&broker);
    let payload = "x".repeat(900_000);
    let refused = (0..40).find(|number| {
        let topic = format!("talk/{number}");
        match publisher.publish_retained(&topic, &payload) {
            R::Success => {
                assert_eq!(reader.take().topic.as_str(), topic);
                false
            }
            refused => {
                assert_eq!(refused, R::QuotaExceeded);
                true
            }
        }
    });
    assert!(refused.is_some());
    reader.expect_nothing();
    // What gives room back is not refused.
    retain(&mut publisher, "talk/0", "");
    assert!(reader.take().payload.is_empty());
}

#[test]
fn a_publishers_messages_keep_their_order_whatever_each_waits_for() {
    let broker = Broker::start();
    let mut there = hello("there").connect(&broker);
    there.follow("talk/#");
    let mut kept = hello("kept").durable().connect(&broker);
    kept.follow("talk/kept");
    let mut publisher = hello("publisher").connect(&broker);
    for topic in ["talk/a", "talk/kept"] {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
            for number in 0..60 {
                publisher.send_publish(Publish {
                    qos,
                    retain: number % 3 == 0,
                    topic: text(topic),
                    payload: number.to_string().into(),
                    ..Publish::default()
                });
            }
            for number in 0..60 {
                assert_eq!(there.take().payload, number.to_string(), "{topic} {qos:?}");
            }
        }
    }
}

#[test]
fn refused_for_what_is_owed_it_replaces_no_value_in_another_provider() {
    let two = tempfile::TempDir::new().expect("a directory");
    let provider = format!(
        ", max_bytes: 16MiB}}\n      two: {{type: log, log_dir: \"{}\"",
        two.path().display()
    );
    let mut broker = Broker::with(&Setup {
        provider: &provider,
        broker: "  retained: {storage: two}",
        limits: "session_queue_bytes: 64MiB",
        ..Setup::default()
    });
    let mut reader = hello("reader").durable().connect(&broker);
    reader.follow("talk/#");
    reader.disconnect();
    let mut publisher = hello("publisher").connect(&broker);
    retain(&mut publisher, "talk/a", "old");
    // Until the sessions' provider has no room.
    let value = |number: u32| format!("{number:060000}");
    let refused = (0..1000).find(|number| {
        let answer = publisher.publish_retained("talk/b", &value(*number));
        assert!([R::Success, R::QuotaExceeded].contains(&answer));
        answer == R::QuotaExceeded
    });
    let last = value(refused.expect("a bound of 16 MiB") - 1);
    assert_eq!(current(&broker, "talk/b", 1), [pair("talk/b", &last)]);
    broker.restart();
    assert_eq!(current(&broker, "talk/b", 1), [pair("talk/b", &last)]);
    assert_eq!(current(&broker, "talk/a", 1), [pair("talk/a", "old")]);
}
