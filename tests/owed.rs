//! Broadcast that a session is owed while its client is away, and what is on its way to it.

mod common;

use common::{Broker, Client, ENDS, Setup, hello, text};
use saguin_mqtt_codec::{
    Packet, Publish, PublishProperties, QoS, ReasonCode, Subscribe, Subscription,
};

use ReasonCode as R;

fn publish(client: &mut Client, topic: &str, payload: &'static str) {
    assert_eq!(client.publish(topic, payload), R::Success);
}

fn payloads(client: &mut Client, count: usize) -> Vec<String> {
    let one = |_| String::from_utf8(client.take().payload.to_vec()).expect("text");
    (0..count).map(one).collect()
}

#[test]
fn what_is_published_meanwhile_is_owed_across_any_end_in_order() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut reader = hello("reader").durable().connect(&broker);
        reader.follow("talk/#");
        reader.disconnect();
        let mut publisher = hello("publisher").connect(&broker);
        publish(&mut publisher, "talk/a", "1");
        publisher.publish_once("talk/b", "2");
        // QoS 0 is for those who are there.
        publisher.tell("talk/c", "missed");
        publish(&mut publisher, "talk/d", "3");
        broker.restart_by(end);
        let mut reader = hello("reader").durable().connect(&broker);
        assert!(reader.session_present);
        assert_eq!(payloads(&mut reader, 3), ["1", "2", "3"], "{end:?}");
        reader.expect_nothing();
        reader.disconnect();
        broker.restart_by(end);
        let mut reader = hello("reader").durable().connect(&broker);
        reader.expect_nothing();
    }
}

#[test]
fn what_was_not_acknowledged_comes_again_under_its_identifier_and_first() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut reader = hello("reader").durable().connect(&broker);
        reader.follow("talk/#");
        let mut publisher = hello("publisher").connect(&broker);
        for payload in ["1", "2", "3"] {
            publish(&mut publisher, "talk/a", payload);
        }
        let sent = [(); 3].map(|()| reader.delivery());
        reader.acknowledge(&sent[1]);
        reader.ping();
        reader.drop_connection();
        publish(&mut publisher, "talk/a", "4");
        broker.restart_by(end);
        let mut reader = hello("reader").durable().connect(&broker);
        for at in [0, 2] {
            let again = reader.take();
            assert_eq!(
                (again.packet_id, again.dup, &again.payload),
                (sent[at].packet_id, true, &sent[at].payload),
                "{end:?}"
            );
        }
        assert_eq!(reader.take().payload, "4");
        reader.expect_nothing();
    }
}

#[test]
fn each_is_owed_what_its_subscriptions_say_when_it_is_sent() {
    let broker = Broker::start();
    let mut reader = hello("reader").durable().connect(&broker);
    let subscribe = |reader: &mut Client, filter: &str, qos, identifier| {
        let answer = reader.send_subscribe(Subscribe {
            subscription_identifier: identifier,
            filters: vec![Subscription {
                filter: text(filter),
                qos,
                ..Subscription::default()
            }],
            ..Subscribe::default()
        });
        assert!((answer.reasons[0] as u8) < 3);
    };
    subscribe(&mut reader, "talk/+", QoS::AtLeastOnce, Some(7));
    subscribe(&mut reader, "talk/#", QoS::AtMostOnce, Some(9));
    subscribe(&mut reader, "chat/#", QoS::AtLeastOnce, None);
    reader.disconnect();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "talk/a", "both");
    publish(&mut publisher, "chat/a", "unsubscribed");
    let mut reader = hello("reader")
        .durable()
        .set(|connect| connect.receive_maximum = 1)
        .connect(&broker);
    let first = reader.delivery();
    assert_eq!(first.payload, "both");
    let mut identifiers = first.properties.subscription_identifiers.clone();
    identifiers.sort_unstable();
    assert_eq!(identifiers, [7, 9]);
    // The second waits for the window, and its subscription ends before it is sent.
    reader.unsubscribe("chat/#", None);
    reader.acknowledge(&first);
    reader.expect_nothing();
}

#[test]
fn an_expired_message_is_owed_no_more_and_what_is_left_of_the_time_is_said() {
    let mut broker = Broker::start();
    let mut reader = hello("reader").durable().connect(&broker);
    reader.follow("talk/#");
    reader.disconnect();
    let mut publisher = hello("publisher").connect(&broker);
    let expiring = |seconds| PublishProperties {
        expiry_seconds: Some(seconds),
        ..PublishProperties::default()
    };
    assert_eq!(
        publisher.publish_with("talk/a", "short", expiring(1)),
        R::Success
    );
    assert_eq!(
        publisher.publish_with("talk/b", "long", expiring(1000)),
        R::Success
    );
    let mut clock = hello("clock")
        .set(|connect| connect.keep_alive = 1)
        .connect(&broker);
    // One and a half seconds of silence.
    clock.expect_disconnect(R::KeepAliveTimeout);
    broker.restart();
    let mut reader = hello("reader").durable().connect(&broker);
    let came = reader.take();
    assert_eq!(came.payload, "long");
    let left = came.properties.expiry_seconds.expect("an expiry");
    assert!((900..1000).contains(&left), "{left}");
    reader.expect_nothing();
}

#[test]
fn past_its_bound_a_session_gives_up_the_oldest() {
    let mut broker = Broker::with(&Setup {
        limits: "max_message_size: 1KiB, session_queue_bytes: 4KiB",
        ..Setup::default()
    });
    let mut reader = hello("reader").durable().connect(&broker);
    reader.follow("talk/#");
    reader.disconnect();
    let mut publisher = hello("publisher").connect(&broker);
    for number in 0..20 {
        let payload = format!("{number:0500}");
        assert_eq!(publisher.publish("talk/a", payload), R::Success);
    }
    broker.restart();
    let mut reader = hello("reader").durable().connect(&broker);
    let mut came = vec![];
    loop {
        let publish = reader.take();
        let number: u32 = std::str::from_utf8(&publish.payload)
            .expect("text")
            .parse()
            .expect("a number");
        came.push(number);
        if number == 19 {
            break;
        }
    }
    assert!(came.len() >= 2 && came.len() < 9, "{came:?}");
    assert!(
        came.windows(2).all(|pair| pair[1] == pair[0] + 1),
        "{came:?}"
    );
}

#[test]
fn a_session_that_ends_is_owed_nothing() {
    let broker = Broker::start();
    let mut reader = hello("reader").durable().connect(&broker);
    reader.follow("talk/#");
    reader.disconnect();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "talk/a", "1");
    let mut reader = hello("reader").connect(&broker);
    assert!(!reader.session_present);
    reader.follow("talk/#");
    reader.expect_nothing();
    publish(&mut publisher, "talk/a", "2");
    assert_eq!(reader.take().payload, "2");
}

#[test]
fn a_subscription_is_owed_nothing_from_before_it() {
    let mut broker = Broker::start();
    let mut other = hello("other").durable().connect(&broker);
    other.follow("talk/#");
    other.disconnect();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "talk/a", "before");
    let mut reader = hello("reader").durable().connect(&broker);
    reader.follow("talk/#");
    reader.disconnect();
    publish(&mut publisher, "talk/a", "after");
    broker.restart();
    let mut reader = hello("reader").durable().connect(&broker);
    assert_eq!(payloads(&mut reader, 1), ["after"]);
    reader.expect_nothing();
    let mut other = hello("other").durable().connect(&broker);
    assert_eq!(payloads(&mut other, 2), ["before", "after"]);
}

#[test]
fn a_deaf_client_with_a_session_costs_the_others_nothing() {
    let broker = Broker::start();
    let mut deaf = hello("deaf")
        .durable()
        .set(|c| c.receive_maximum = 1)
        .connect(&broker);
    deaf.follow("talk/#");
    let mut reader = hello("reader").connect(&broker);
    reader.follow("talk/#");
    let mut publisher = hello("publisher").connect(&broker);
    for number in 0..300 {
        let payload = format!("{number:010000}");
        let id = publisher.send_publish(Publish {
            qos: QoS::AtLeastOnce,
            topic: text("talk/a"),
            payload: payload.into(),
            ..Publish::default()
        });
        assert_eq!(publisher.puback(id).reason, R::Success);
        assert_eq!(reader.take().payload.len(), 10_000);
    }
    // It is told what it can still have, from the first that it did not take.
    let first = deaf.take();
    assert!(first.payload.starts_with(b"000"));
    let second = deaf.take();
    assert!(second.payload > first.payload);
    deaf.send(&Packet::PingReq);
}

#[test]
fn on_a_full_provider_what_is_owed_gives_way_to_a_channel() {
    let broker = Broker::with(&Setup {
        provider: ", max_bytes: 16MiB",
        limits: "session_queue_bytes: 64MiB",
        ..Setup::default()
    });
    let mut reader = hello("reader").durable().connect(&broker);
    reader.follow("talk/#");
    reader.disconnect();
    let mut publisher = hello("publisher").connect(&broker);
    let payload = |number: u32| format!("{number:060000}");
    let mut owed = 0;
    while publisher.publish("talk/a", payload(owed)) == R::Success {
        owed += 1;
        assert!(owed < 1000, "a bound of 16 MiB");
    }
    // Records of a channel take its place, one after the other, as it gives way.
    let began = std::time::Instant::now();
    let mut kept = 0;
    while kept < 40 {
        match publisher.publish("events/a", payload(kept)) {
            R::Success => kept += 1,
            refused => assert_eq!(refused, R::QuotaExceeded),
        }
        assert!(began.elapsed() < common::PATIENCE, "{kept} of 40");
    }
    broker.wait_for_line("is given up");
    let mut reader = hello("reader").durable().connect(&broker);
    let mut last = None;
    while last != Some(owed - 1) {
        let number = payloads(&mut reader, 1)[0].parse().expect("a number");
        assert!(
            last.is_none_or(|last| number == last + 1),
            "{last:?} {number}"
        );
        assert!(last.is_some() || number > 0, "the oldest gave way");
        last = Some(number);
    }
}
