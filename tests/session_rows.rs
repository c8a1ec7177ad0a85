//! What is held for a session and what becomes of it: the rows that no other file has, each across
//! SIGTERM and `kill -9`. Owed messages are in `owed.rs`, QoS 2 in `exactly_once.rs`, Wills in `wills.rs`.

mod common;

use std::thread;

use common::{Answer, Broker, Client, ENDS, End, hello, property, text};
use saguin_mqtt_codec::{
    Packet, Publish, QoS, ReasonCode, Subscribe, Subscription, UserPropertiesBuilder,
};

use ReasonCode as R;

fn publish(client: &mut Client, topic: &str, payload: &str) {
    assert_eq!(client.publish(topic, payload.to_owned()), R::Success);
}

#[test]
fn subscriptions_their_options_and_partitions_are_restored_and_go_with_the_session() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut client = hello("a").durable().connect(&broker);
        let mut pairs = UserPropertiesBuilder::new();
        pairs
            .push("saguin-filter", "topic_hash(2, 0)")
            .expect("a pair");
        client.send_subscribe(Subscribe {
            subscription_identifier: Some(77),
            user_properties: pairs.build(),
            filters: vec![Subscription {
                filter: text("talk/+"),
                qos: QoS::AtLeastOnce,
                retain_as_published: true,
                no_local: true,
                ..Subscription::default()
            }],
            ..Subscribe::default()
        });
        broker.restart_by(end);
        let mut client = hello("a").durable().connect(&broker);
        assert!(client.session_present);
        client.ping();
        let mut publisher = hello("publisher").connect(&broker);
        for number in 0..20 {
            let topic = format!("talk/{number}");
            publish(&mut client, &topic, "its own");
            publisher.send_publish(Publish {
                retain: true,
                topic: text(&topic),
                payload: "x".into(),
                ..Publish::default()
            });
        }
        publisher.ping();
        let mut share = 0;
        client.ping();
        client.unsubscribe("talk/+", None);
        publish(&mut publisher, "events/end", "end");
        client.follow("events/#");
        loop {
            let came = client.take();
            if came.payload == "end" {
                break;
            }
            assert_eq!(came.payload, "x", "No Local");
            assert!(came.retain, "Retain As Published");
            assert_eq!(came.properties.subscription_identifiers, [77]);
            share += 1;
        }
        assert!((1..20).contains(&share), "one of two slices: {share}");
        client.disconnect_for(0);
        broker.restart_by(end);
        let mut client = hello("a").durable().connect(&broker);
        assert!(!client.session_present);
        let mut publisher = hello("publisher").connect(&broker);
        publish(&mut publisher, "talk/1", "x");
        publish(&mut publisher, "events/1", "x");
        client.expect_nothing();
    }
}

#[test]
fn a_position_is_kept_and_goes_with_the_session() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut publisher = hello("publisher").connect(&broker);
        for payload in ["1", "2", "3"] {
            publish(&mut publisher, "events/a", payload);
        }
        let mut client = hello("a").durable().connect(&broker);
        client.follow("events/#");
        assert_eq!(client.take().payload, "1");
        client.disconnect();
        broker.restart_by(end);
        let mut client = hello("a").durable().connect(&broker);
        for payload in ["2", "3"] {
            assert_eq!(client.take().payload, payload, "{end:?}");
        }
        client.disconnect_for(0);
        broker.restart_by(end);
        let mut client = hello("a").durable().connect(&broker);
        client.follow("events/#");
        assert_eq!(client.take().payload, "1");
    }
}

#[test]
fn a_latest_channel_is_sent_whole_after_a_restart() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut publisher = hello("publisher").connect(&broker);
        publish(&mut publisher, "state/a", "1");
        let mut client = hello("a").durable().connect(&broker);
        client.follow("state/#");
        assert_eq!(client.take().payload, "1");
        client.disconnect();
        // Its mark is kept while the broker runs.
        let mut client = hello("a").durable().connect(&broker);
        client.expect_nothing();
        broker.restart_by(end);
        let mut client = hello("a").durable().connect(&broker);
        let again = client.take();
        assert_eq!((again.payload, again.retain), ("1".into(), true), "{end:?}");
    }
}

#[test]
fn a_job_that_was_held_is_available_after_a_restart() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut worker = hello("worker").durable().connect(&broker);
        worker.follow("$saguin/queue/jobs");
        let mut publisher = hello("publisher").connect(&broker);
        publish(&mut publisher, "jobs/a", "job");
        let held = worker.take();
        assert_eq!(property(&held, "saguin-attempt"), "1");
        worker.ping();
        broker.restart_by(end);
        let mut other = hello("other").connect(&broker);
        other.follow("$saguin/queue/jobs");
        let again = other.take();
        assert_eq!(again.payload, "job", "{end:?}");
        // The attempt is stored behind its PUBACK, and a kill may come before that.
        let attempt = property(&again, "saguin-attempt");
        assert!(
            attempt == "2" || (end == End::Kill9 && attempt == "1"),
            "{attempt}"
        );
        assert_eq!(other.answer(&again, "ack"), R::Success);
    }
}

#[test]
fn of_many_connections_with_one_client_identifier_the_last_has_the_session() {
    let broker = Broker::start();
    let mut first = hello("one").durable().connect(&broker);
    first.follow("talk/#");
    let storm: Vec<Client> = thread::scope(|scope| {
        let connect = |number: usize| {
            let broker = &broker;
            move || {
                let wish = hello("one").durable();
                let wish = wish.set(|connect| connect.keep_alive = 100 + number as u16);
                wish.answer(broker).0
            }
        };
        let threads: Vec<_> = (0..40).map(|number| scope.spawn(connect(number))).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("admitted"));
        joined.collect()
    });
    assert!(storm.iter().all(|client| client.session_present));
    first.expect_disconnect(R::SessionTakenOver);
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "talk/a", "x");
    // All but one are told, and the one is served. Another may have been served before it was told.
    let mut served = vec![];
    for mut client in storm {
        if is_served(&mut client) {
            served.push(client);
        }
    }
    served.retain_mut(|client| {
        client.send(&Packet::PingReq);
        !matches!(client.read(), Answer::Packet(Packet::Disconnect(_)))
    });
    assert_eq!(served.len(), 1);
}

/// Whether a delivery comes, and not the news that another connection has the session.
fn is_served(client: &mut Client) -> bool {
    match client.read() {
        Answer::Packet(Packet::Disconnect(last)) => {
            assert_eq!(last.reason, R::SessionTakenOver);
            false
        }
        Answer::Packet(Packet::Publish(publish)) => {
            assert_eq!(publish.payload, "x");
            true
        }
        other => panic!("{other:?}"),
    }
}
