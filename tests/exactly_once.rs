//! QoS 2, from clients and to them: held between PUBREC and PUBREL, sent once, across any end.

mod common;

use common::{Broker, Client, ENDS, End, Setup, hello, hello_v311, text};
use saguin_mqtt_codec::{Ack, Packet, Publish, QoS, ReasonCode};

use ReasonCode as R;

const OF_EVERY_KIND: [(&str, &str); 4] = [
    ("events/a", "events/#"),
    ("state/a", "state/#"),
    ("jobs/a", "$saguin/queue/jobs"),
    ("talk/a", "talk/#"),
];

/// Everything a fresh reader finds, and it finds nothing more.
fn found(broker: &Broker, filter: &str, count: usize) -> Vec<String> {
    let mut reader = hello("reader").connect(broker);
    reader.follow(filter);
    let came = (0..count)
        .map(|_| String::from_utf8(reader.take().payload.to_vec()).expect("text"))
        .collect();
    reader.expect_nothing();
    came
}

#[test]
fn what_is_held_is_seen_by_nobody_before_its_release() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    let mut reader = hello("reader").connect(&broker);
    for (topic, filter) in OF_EVERY_KIND {
        reader.follow(filter);
        let received = publisher.hold(topic, "once");
        assert_eq!(received.reason, R::Success, "{topic}");
        reader.expect_nothing();
        let again = publisher.hold_again(received.packet_id, topic, "once");
        assert_eq!(again.reason, R::Success, "{topic}");
        assert_eq!(publisher.release(received.packet_id), R::Success);
        assert_eq!(reader.take().payload, "once", "{topic}");
        reader.expect_nothing();
        // Closed: the identifier is free, and a PUBREL names nothing.
        let nothing = publisher.release(received.packet_id);
        assert_eq!(nothing, R::PacketIdentifierNotFound, "{topic}");
    }
}

#[test]
fn held_before_an_end_it_lands_once_after_it() {
    for end in ENDS {
        for (topic, filter) in &OF_EVERY_KIND[..3] {
            let mut broker = Broker::start();
            let mut publisher = hello("publisher").durable().connect(&broker);
            let id = publisher.hold(topic, "once").packet_id;
            broker.restart_by(end);
            assert!(found(&broker, filter, 0).is_empty());
            let mut publisher = hello("publisher").durable().connect(&broker);
            assert!(publisher.session_present);
            // The client does not know whether its PUBREC or its PUBREL was lost.
            assert_eq!(publisher.hold_again(id, topic, "once").reason, R::Success);
            assert_eq!(publisher.release(id), R::Success, "{topic} {end:?}");
            assert_eq!(found(&broker, filter, 1), ["once"], "{topic} {end:?}");
        }
    }
}

#[test]
fn released_before_an_end_it_is_there_once_after_it() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut publisher = hello("publisher").durable().connect(&broker);
        publisher.publish_once("events/a", "once");
        let id = publisher.hold("events/a", "twice?").packet_id;
        assert_eq!(publisher.release(id), R::Success);
        broker.restart_by(end);
        let mut publisher = hello("publisher").durable().connect(&broker);
        // Its PUBCOMP was lost, so the client sends the PUBREL again.
        assert_eq!(publisher.release(id), R::PacketIdentifierNotFound);
        assert_eq!(found(&broker, "events/#", 2), ["once", "twice?"], "{end:?}");
    }
}

#[test]
fn a_broadcast_message_held_before_an_end_reaches_who_is_owed_it_once() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut reader = hello("reader").durable().connect(&broker);
        let granted = reader.subscribe("talk/#", QoS::ExactlyOnce);
        assert_eq!(granted, R::GrantedQos2);
        let mut publisher = hello("publisher").durable().connect(&broker);
        let id = publisher.hold("talk/a", "once").packet_id;
        broker.restart_by(end);
        let mut publisher = hello("publisher").durable().connect(&broker);
        assert_eq!(publisher.release(id), R::Success);
        let mut reader = hello("reader").durable().connect(&broker);
        let came = reader.take();
        assert_eq!((came.qos, came.payload), (QoS::ExactlyOnce, "once".into()));
        reader.expect_nothing();
    }
}

#[test]
fn what_is_held_goes_with_its_session_and_its_time() {
    let mut broker = Broker::with(&Setup {
        broker: "  qos2: {expires_after: 1s}",
        ..Setup::default()
    });
    // A clean start, and a session that ends with its connection.
    let mut first = hello("a").durable().connect(&broker);
    let id = first.hold("events/a", "gone").packet_id;
    first.disconnect();
    let mut second = hello("a").connect(&broker);
    assert_eq!(second.release(id), R::PacketIdentifierNotFound);
    let id = second.hold("events/a", "gone").packet_id;
    second.drop_connection();
    let mut third = hello("a").durable().connect(&broker);
    assert_eq!(third.release(id), R::PacketIdentifierNotFound);

    let id = third.hold("events/a", "late").packet_id;
    let asked = third.hold("$saguin/catalogue/events", "").packet_id;
    let mut clock = hello("clock")
        .set(|connect| connect.keep_alive = 1)
        .connect(&broker);
    // One and a half seconds of silence.
    clock.expect_disconnect(R::KeepAliveTimeout);
    assert_eq!(third.release(id), R::PacketIdentifierNotFound);
    assert_eq!(third.release(asked), R::PacketIdentifierNotFound);
    broker.restart();
    assert!(found(&broker, "events/#", 0).is_empty());
}

#[test]
fn no_more_is_held_of_a_client_than_it_may() {
    let broker = Broker::with(&Setup {
        broker: "  qos2: {max_inflight_per_client: 2}",
        ..Setup::default()
    });
    let mut client = hello("a").connect(&broker);
    let first = client.hold("events/a", "1").packet_id;
    client.hold("events/a", "2");
    assert_eq!(client.hold("events/a", "3").reason, R::QuotaExceeded);
    assert_eq!(client.release(first), R::Success);
    assert_eq!(client.hold("events/a", "4").reason, R::Success);
    // MQTT 3.1.1 has no word for it.
    let mut old = hello_v311("b").connect(&broker);
    old.hold("events/a", "1");
    old.hold("events/a", "2");
    old.send_publish(Publish {
        qos: QoS::ExactlyOnce,
        topic: text("events/a"),
        ..Publish::default()
    });
    old.expect_closed();
}

#[test]
fn more_unfinished_than_receive_maximum_ends_the_connection() {
    let broker = Broker::with(&Setup {
        broker: "  qos2: {max_inflight_per_client: 1024}",
        ..Setup::default()
    });
    let mut client = hello("a").connect(&broker);
    for _ in 0..1024 {
        client.send_publish(Publish {
            qos: QoS::ExactlyOnce,
            topic: text("events/a"),
            ..Publish::default()
        });
    }
    for id in 1..=1024 {
        assert_eq!(client.pubrec(id).reason, R::Success);
    }
    client.send_publish(Publish {
        qos: QoS::ExactlyOnce,
        topic: text("events/a"),
        ..Publish::default()
    });
    client.expect_disconnect(R::ReceiveMaximumExceeded);
}

#[test]
fn a_channel_that_filled_meanwhile_keeps_the_hold_until_there_is_room() {
    for end in [None, Some(End::Kill9)] {
        let mut broker = Broker::with_channels(
            "\n  events: {type: append, filter: events/#, max_bytes: 600, retention_bytes: none}\n  jobs: {type: queue, filter: jobs/#, max_bytes: 600}\n",
        );
        let mut client = hello("a").durable().connect(&broker);
        let id = client.hold("jobs/a", &"x".repeat(300)).packet_id;
        assert_eq!(client.publish("jobs/b", "y".repeat(400)), R::Success);
        client.send(&Packet::PubRel(Ack::new(id, R::Success)));
        client.expect_disconnect(R::QuotaExceeded);
        if let Some(end) = end {
            broker.restart_by(end);
        }
        let mut worker = hello("worker").connect(&broker);
        worker.follow("$saguin/queue/jobs");
        let job = worker.take();
        assert_eq!(worker.answer(&job, "ack"), R::Success);
        worker.ping();
        let mut client = hello("a").durable().connect(&broker);
        assert_eq!(client.release(id), R::Success);
        assert_eq!(worker.take().payload, "x".repeat(300));
    }
}

#[test]
fn identifiers_out_of_order_unknown_and_repeated() {
    let broker = Broker::start();
    let mut client = hello("a").connect(&broker);
    assert_eq!(client.release(77), R::PacketIdentifierNotFound);
    let first = client.hold("events/a", "1").packet_id;
    let second = client.hold("events/a", "2").packet_id;
    assert_eq!(client.release(second), R::Success);
    assert_eq!(client.release(second), R::PacketIdentifierNotFound);
    assert_eq!(client.release(first), R::Success);
    // Answers to nothing are no harm.
    client.receive(9);
    assert_eq!(client.pubrel(), 9);
    client.complete(9);
    client.send(&Packet::PubAck(Ack::new(9, R::Success)));
    assert_eq!(found(&broker, "events/#", 2), ["2", "1"]);
    client.ping();
}

#[test]
fn a_refused_publish_is_refused_with_its_pubrec() {
    let broker = Broker::start();
    let mut client = hello("a").connect(&broker);
    assert_eq!(client.hold("$SYS/x", "").reason, R::NotAuthorized);
    assert_eq!(client.hold("jobs/__dlq/x", "").reason, R::NotAuthorized);
    let refused = client.hold("$share/x", "");
    assert_eq!(refused.reason, R::TopicNameInvalid);
    // Nothing goes under its identifier.
    let nothing = client.release(refused.packet_id);
    assert_eq!(nothing, R::PacketIdentifierNotFound);
    let mut old = hello_v311("b").connect(&broker);
    old.send_publish(Publish {
        qos: QoS::ExactlyOnce,
        topic: text("$SYS/x"),
        ..Publish::default()
    });
    old.expect_closed();
}

/// A reader at QoS 2 with one delivery under way.
fn reader_with_one(broker: &Broker, topic: &str, filter: &str) -> (Client, Publish) {
    let mut reader = hello("reader").durable().connect(broker);
    let granted = reader.subscribe(filter, QoS::ExactlyOnce);
    assert_eq!(granted, R::GrantedQos2);
    let mut publisher = hello("publisher").connect(broker);
    publisher.publish_once(topic, "once");
    let came = reader.delivery();
    assert_eq!((came.qos, came.dup), (QoS::ExactlyOnce, false));
    (reader, came)
}

#[test]
fn a_delivery_that_was_not_received_comes_again_under_its_identifier() {
    for end in ENDS {
        for (topic, filter) in [("talk/a", "talk/#"), ("events/a", "events/#")] {
            let mut broker = Broker::start();
            let (reader, first) = reader_with_one(&broker, topic, filter);
            reader.drop_connection();
            let mut reader = hello("reader").durable().connect(&broker);
            let again = reader.delivery();
            assert_eq!((again.packet_id, again.dup), (first.packet_id, true));
            broker.restart_by(end);
            let mut reader = hello("reader").durable().connect(&broker);
            let again = reader.delivery();
            assert_eq!(
                (again.packet_id, again.dup, again.payload.clone()),
                (first.packet_id, true, "once".into()),
                "{topic} {end:?}"
            );
            reader.acknowledge(&again);
            reader.expect_nothing();
        }
    }
}

#[test]
fn a_delivery_that_was_received_is_completed_and_never_sent_again() {
    for end in ENDS {
        for (topic, filter) in OF_EVERY_KIND
            .into_iter()
            .filter(|(topic, _)| *topic != "jobs/a")
        {
            let mut broker = Broker::start();
            let (mut reader, first) = reader_with_one(&broker, topic, filter);
            reader.receive(first.packet_id);
            assert_eq!(reader.pubrel(), first.packet_id);
            broker.restart_by(end);
            let mut reader = hello("reader").durable().connect(&broker);
            assert_eq!(reader.pubrel(), first.packet_id, "{topic} {end:?}");
            reader.complete(first.packet_id);
            if topic == "state/a" {
                // After a restart a latest channel is read from its current state.
                assert_eq!(reader.take().payload, "once");
            }
            reader.expect_nothing();
            reader.disconnect();
            let mut reader = hello("reader").durable().connect(&broker);
            reader.expect_nothing();
        }
    }
}

#[test]
fn an_identifier_is_not_given_to_another_message_before_its_exchange_is_over() {
    for end in ENDS {
        let mut broker = Broker::start();
        let (mut reader, first) = reader_with_one(&broker, "talk/a", "talk/#");
        let mut publisher = hello("publisher").connect(&broker);
        publisher.publish_once("talk/b", "second");
        let second = reader.delivery();
        assert_ne!(first.packet_id, second.packet_id);
        reader.receive(first.packet_id);
        assert_eq!(reader.pubrel(), first.packet_id);
        broker.restart_by(end);
        let mut reader = hello("reader").durable().connect(&broker);
        assert_eq!(reader.pubrel(), first.packet_id);
        let again = reader.delivery();
        assert_eq!(
            (again.packet_id, again.payload),
            (second.packet_id, second.payload)
        );
        let mut publisher = hello("publisher").connect(&broker);
        publisher.publish_once("talk/c", "third");
        let third = reader.delivery();
        assert!(![first.packet_id, second.packet_id].contains(&third.packet_id));
    }
}
