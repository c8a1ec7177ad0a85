//! Wills, each across SIGTERM and `kill -9`.

mod common;

use common::{Broker, Client, ENDS, End, Hello, hello, text};
use saguin_mqtt_codec::{Disconnect, Packet, QoS, ReasonCode, Will};

use ReasonCode as R;

fn armed(client_id: &str, delay_seconds: u32, expiry: u32) -> Hello {
    let payload = client_id.to_owned();
    hello(client_id).durable().set(|connect| {
        connect.session_expiry = expiry;
        connect.will = Some(Will {
            topic: text("events/will"),
            payload: payload.into(),
            qos: QoS::AtLeastOnce,
            delay_seconds,
            ..Will::default()
        });
    })
}

/// The Wills published so far, by client.
fn published(broker: &Broker) -> Vec<String> {
    let mut publisher = hello("marker").connect(broker);
    let marker = format!("{:?}", std::time::Instant::now());
    assert_eq!(
        publisher.publish("events/marker", marker.clone()),
        R::Success
    );
    let mut reader = hello("reader").connect(broker);
    reader.follow("events/#");
    let mut came = vec![];
    loop {
        let publish = reader.take();
        if publish.payload == marker {
            came.sort();
            return came;
        }
        if publish.topic.as_str() == "events/will" {
            came.push(String::from_utf8(publish.payload.to_vec()).expect("text"));
        }
    }
}

fn wait_seconds(broker: &Broker, seconds: u16) {
    let mut clock = hello("clock")
        .set(|connect| connect.keep_alive = seconds)
        .connect(broker);
    // Silence of one and a half times that.
    clock.expect_disconnect(R::KeepAliveTimeout);
}

#[test]
fn a_waiting_will_is_published_at_the_next_start_or_waits_on() {
    for end in ENDS {
        let mut broker = Broker::start();
        armed("soon", 1, 1000).connect(&broker).drop_connection();
        armed("later", 1000, 1000)
            .connect(&broker)
            .drop_connection();
        // Its session is over before the broker is back.
        armed("over", 1, 1).connect(&broker).drop_connection();
        // The store keeps its order: behind this the ends of those connections are stored.
        let mut fence = hello("fence").connect(&broker);
        assert_eq!(fence.publish("events/fence", "x"), R::Success);
        match end {
            End::Sigterm => assert!(broker.stop().success()),
            End::Kill9 => broker.kill9(),
        }
        let other = Broker::start();
        wait_seconds(&other, 1);
        broker.launch();
        assert_eq!(published(&broker), ["over", "soon"], "{end:?}");
        // Its return cancels the one that waits.
        let back = hello("later").durable().connect(&broker);
        assert!(back.session_present);
        broker.restart_by(end);
        wait_seconds(&broker, 1);
        assert_eq!(published(&broker), ["over", "soon"], "{end:?}");
    }
}

#[test]
fn a_stop_publishes_no_will_and_what_was_armed_stays_so() {
    for end in ENDS {
        let mut broker = Broker::start();
        let clients = [
            armed("back", 0, 1000).connect(&broker),
            armed("away", 0, 2).connect(&broker),
            armed("none", 0, 0).connect(&broker),
        ];
        broker.restart_by(end);
        drop(clients);
        let mut back = armed("back", 0, 1000).connect(&broker);
        assert!(back.session_present);
        back.ping();
        if end == End::Kill9 {
            // It is kept from the start on, and ends with its Will.
            let mut reader = hello("reader").connect(&broker);
            reader.follow("events/#");
            assert_eq!(reader.take().payload, "away");
            reader.expect_nothing();
        } else {
            assert_eq!(published(&broker), Vec::<String>::new());
        }
        back.disconnect();
    }
}

#[test]
fn a_farewell_withdraws_a_will_before_it_is_answered() {
    for end in ENDS {
        let mut broker = Broker::start();
        armed("left", 1, 1000).connect(&broker).disconnect();
        broker.restart_by(end);
        wait_seconds(&broker, 1);
        assert_eq!(published(&broker), Vec::<String>::new());
    }
}

#[test]
fn a_takeover_a_clean_start_and_a_disconnect_with_will_publish_it() {
    let broker = Broker::start();
    let mut reader = hello("reader").connect(&broker);
    reader.follow("events/#");
    let mut first = armed("taken", 0, 1000).connect(&broker);
    let second = armed("taken", 500, 1000).connect(&broker);
    assert_eq!(reader.take().payload, "taken");
    first.expect_disconnect(R::SessionTakenOver);
    second.drop_connection();
    reader.expect_nothing();
    // Clean Start ends the session that waits with it.
    let clean = hello("taken").connect(&broker);
    assert_eq!(reader.take().payload, "taken");
    clean.disconnect();
    let mut asked: Client = armed("asked", 0, 1000).connect(&broker);
    asked.send(&Packet::Disconnect(Disconnect::new(R::DisconnectWithWill)));
    assert_eq!(reader.take().payload, "asked");
    asked.expect_closed();
}
