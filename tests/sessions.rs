//! What is kept for a client that is away, and when it ends.

mod common;

use common::{Broker, Client, hello, hello_v311};
use saguin_mqtt_codec::{Disconnect, Packet, QoS, ReasonCode, Will};

use ReasonCode as R;

fn publish(client: &mut Client, topic: &str, payload: &'static str) {
    assert_eq!(client.publish(topic, payload), R::Success);
}

#[test]
fn a_session_is_present_exactly_while_it_is_kept() {
    let mut broker = Broker::start();
    assert!(!hello("a").durable().connect(&broker).session_present);
    assert!(!hello_v311("b").durable().connect(&broker).session_present);
    broker.restart();
    assert!(hello("a").durable().connect(&broker).session_present);
    assert!(hello_v311("b").durable().connect(&broker).session_present);
    // Clean Start ends what there was, and that too is kept.
    assert!(!hello("a").connect(&broker).session_present);
    assert!(!hello_v311("b").connect(&broker).session_present);
    broker.restart();
    assert!(!hello("a").durable().connect(&broker).session_present);
    assert!(!hello_v311("b").durable().connect(&broker).session_present);
    // An expiry of zero is the end of it, said with the goodbye.
    hello("a").durable().connect(&broker).disconnect_for(0);
    assert!(!hello("a").durable().connect(&broker).session_present);
}

#[test]
fn a_session_expires() {
    let broker = Broker::start();
    let short = hello("a").set(|connect| connect.session_expiry = 1);
    let mut client = short.connect(&broker);
    client.follow("events/#");
    client.disconnect();
    let mut clock = hello("clock")
        .set(|connect| connect.keep_alive = 1)
        .connect(&broker);
    // One and a half seconds of silence: longer than the session is kept.
    clock.expect_disconnect(R::KeepAliveTimeout);
    assert!(!hello("a").durable().connect(&broker).session_present);
}

#[test]
fn a_clean_goodbye_stores_the_position() {
    for (hello, of) in [
        (hello as fn(&str) -> common::Hello, "v5"),
        (hello_v311, "3.1.1"),
    ] {
        let mut broker = Broker::start();
        let mut publisher = common::hello("publisher").connect(&broker);
        for payload in ["1", "2", "3", "4"] {
            publish(&mut publisher, "events/a", payload);
        }
        let mut consumer = hello("consumer").durable().connect(&broker);
        consumer.follow("events/#");
        assert_eq!(consumer.take().payload, "1");
        assert_eq!(consumer.take().payload, "2");
        consumer.disconnect();
        broker.kill9();
        broker.launch();
        let mut consumer = hello("consumer").durable().connect(&broker);
        assert!(consumer.session_present, "{of}");
        assert_eq!(consumer.take().payload, "3", "{of}");
        assert_eq!(consumer.take().payload, "4", "{of}");
        consumer.expect_nothing();
    }
}

#[test]
fn what_was_in_flight_is_sent_again_on_resumption() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    for payload in ["1", "2", "3"] {
        publish(&mut publisher, "events/a", payload);
    }
    let mut consumer = hello("consumer").durable().connect(&broker);
    consumer.follow("events/#");
    let first = consumer.delivery();
    let second = consumer.take();
    let third = consumer.delivery();
    assert!(!first.dup && !second.dup && !third.dup);
    // The PUBACK of the second is in before the connection goes.
    consumer.ping();
    consumer.drop_connection();
    let mut consumer = hello("consumer").durable().connect(&broker);
    assert!(consumer.session_present);
    let (again, last) = (consumer.take(), consumer.take());
    assert_eq!((again.payload, last.payload), ("1".into(), "3".into()));
    assert!(again.dup && last.dup);
    assert_eq!(
        (again.packet_id, last.packet_id),
        (first.packet_id, third.packet_id)
    );
    consumer.expect_nothing();
}

#[test]
fn a_gap_in_the_acknowledgements_is_not_stepped_over_by_a_kill() {
    let mut broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    for payload in ["1", "2", "3"] {
        publish(&mut publisher, "events/a", payload);
    }
    let mut consumer = hello("consumer").durable().connect(&broker);
    consumer.follow("events/#");
    assert_eq!(consumer.take().payload, "1");
    consumer.delivery();
    assert_eq!(consumer.take().payload, "3");
    consumer.disconnect();
    broker.restart();
    let mut consumer = hello("consumer").durable().connect(&broker);
    // The second was never acknowledged, so everything from it comes again.
    assert_eq!(consumer.take().payload, "2");
}

#[test]
fn a_clean_start_ends_subscriptions_and_position() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "events/a", "1");
    let mut consumer = hello("consumer").durable().connect(&broker);
    consumer.follow("events/#");
    assert_eq!(consumer.take().payload, "1");
    consumer.disconnect();
    let mut consumer = hello("consumer")
        .durable()
        .set(|connect| connect.clean_start = true)
        .connect(&broker);
    assert!(!consumer.session_present);
    publish(&mut publisher, "events/a", "2");
    consumer.expect_nothing();
    consumer.follow("events/#");
    assert_eq!(consumer.take().payload, "1");
    assert_eq!(consumer.take().payload, "2");
}

#[test]
fn a_resumed_session_has_its_subscriptions_and_its_place_at_a_queue() {
    let mut broker = Broker::start();
    let mut client = hello("client").durable().connect(&broker);
    client.follow("events/#");
    client.follow("$saguin/queue/jobs");
    client.follow("talk/#");
    client.follow("#");
    client.unsubscribe("#", None);
    client.disconnect();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "talk/a", "owed");
    publish(&mut publisher, "events/a", "kept");
    broker.restart();
    let mut client = hello("client").durable().connect(&broker);
    assert!(client.session_present);
    // Ownership moves when the CONNACK has been written; a PINGRESP says that it has.
    client.ping();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "talk/a", "live");
    publish(&mut publisher, "jobs/a", "job");
    let mut came = [(); 4].map(|()| client.take().payload);
    came.sort();
    assert_eq!(came, ["job", "kept", "live", "owed"]);
    client.expect_nothing();
}

#[test]
fn a_takeover_goes_on_with_the_session() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "events/a", "1");
    publish(&mut publisher, "events/a", "2");
    let mut first = hello("consumer").durable().connect(&broker);
    first.follow("events/#");
    let held = first.delivery();
    let mut second = hello("consumer").durable().connect(&broker);
    assert!(second.session_present);
    first.expect_disconnect(R::SessionTakenOver);
    let again = second.take();
    assert_eq!(
        (again.payload, again.packet_id),
        (held.payload, held.packet_id)
    );
    assert_eq!(second.take().payload, "2");
    second.ping();
}

#[test]
fn a_refused_connect_leaves_the_session_and_its_owner_alone() {
    let broker = Broker::start();
    let mut owner = hello("owner").durable().connect(&broker);
    owner.follow("events/#");
    let refused = hello("owner").set(|connect| {
        connect.authentication_method = Some(common::text("x"));
    });
    assert_eq!(refused.refused(&broker), R::BadAuthenticationMethod);
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "events/a", "still here");
    assert_eq!(owner.take().payload, "still here");
}

fn with_will(client_id: &str, topic: &str) -> common::Hello {
    hello(client_id).set(|connect| {
        connect.will = Some(Will {
            topic: common::text(topic),
            payload: "gone".into(),
            qos: QoS::AtLeastOnce,
            ..Will::default()
        });
    })
}

#[test]
fn a_will_is_published_unless_the_goodbye_withdraws_it() {
    let broker = Broker::start();
    let mut listener = hello("listener").connect(&broker);
    listener.follow("talk/#");
    listener.follow("events/#");
    with_will("lost", "talk/lost")
        .connect(&broker)
        .drop_connection();
    assert_eq!(listener.take().topic, "talk/lost");
    with_will("lost", "events/lost")
        .connect(&broker)
        .drop_connection();
    assert_eq!(listener.take().topic, "events/lost");
    with_will("polite", "talk/polite")
        .connect(&broker)
        .disconnect();
    let mut loud = with_will("loud", "talk/loud").connect(&broker);
    loud.send(&Packet::Disconnect(Disconnect::new(R::DisconnectWithWill)));
    loud.expect_closed();
    assert_eq!(
        listener.take().topic,
        "talk/loud",
        "and not of the polite one"
    );
}
