//! Shared subscriptions: each message to one member of a group.

mod common;

use common::{Broker, Client, ENDS, Setup, hello, hello_v311, text};
use saguin_mqtt_codec::{Publish, QoS, ReasonCode, Subscribe, Subscription, UserPropertiesBuilder};

use ReasonCode as R;

const GROUP: &str = "$share/g/talk/#";

fn publish(client: &mut Client, topic: &str, payload: &str) {
    assert_eq!(client.publish(topic, payload.to_owned()), R::Success);
}

fn member(broker: &Broker, client_id: &str, filter: &str) -> Client {
    let mut client = hello(client_id).connect(broker);
    client.follow(filter);
    client
}

fn durable_member(broker: &Broker, client_id: &str) -> Client {
    let mut client = hello(client_id).durable().connect(broker);
    client.follow(GROUP);
    client
}

fn payload(publish: &Publish) -> String {
    String::from_utf8(publish.payload.to_vec()).expect("text")
}

#[test]
fn each_message_goes_to_one_member_in_turn() {
    let broker = Broker::start();
    // In the order of client identifiers, whenever they came.
    let mut members = ["c", "a", "b"].map(|id| (id, member(&broker, id, GROUP)));
    members.sort_by_key(|(id, _)| *id);
    let mut other = member(&broker, "other", "$share/h/talk/#");
    let mut plain = member(&broker, "plain", "talk/#");
    let mut publisher = hello("publisher").connect(&broker);
    for number in 0..6 {
        publish(&mut publisher, "talk/a", &number.to_string());
        let (_, member) = &mut members[number % 3];
        assert_eq!(payload(&member.take()), number.to_string());
        assert_eq!(payload(&other.take()), number.to_string());
        assert_eq!(payload(&plain.take()), number.to_string());
    }
    publisher.tell("talk/a", "zero");
    publisher.publish_once("talk/a", "twice");
    assert_eq!(payload(&members[0].1.take()), "zero");
    let twice = members[1].1.take();
    assert_eq!(
        (payload(&twice), twice.qos),
        ("twice".into(), QoS::AtLeastOnce)
    );
    for (_, member) in &mut members {
        member.expect_nothing();
    }
}

#[test]
fn a_member_that_cannot_take_it_is_passed_over() {
    let broker = Broker::start();
    let mut busy = hello("a").set(|c| c.receive_maximum = 1).connect(&broker);
    busy.follow(GROUP);
    let mut small = hello("b")
        .set(|c| c.maximum_packet_size = Some(200))
        .connect(&broker);
    small.follow(GROUP);
    let mut free = member(&broker, "c", GROUP);
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "talk/a", "first");
    let first = busy.delivery();
    publish(&mut publisher, "talk/a", &"x".repeat(500));
    assert_eq!(free.take().payload.len(), 500);
    publish(&mut publisher, "talk/a", "second");
    assert_eq!(payload(&small.take()), "second");
    publish(&mut publisher, "talk/a", "third");
    assert_eq!(payload(&free.take()), "third");
    busy.acknowledge(&first);
    busy.expect_nothing();
}

#[test]
fn nobody_there_means_dropped_unless_a_members_session_is_kept() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut publisher = hello("publisher").connect(&broker);
        let gone = member(&broker, "gone", GROUP);
        gone.disconnect();
        publish(&mut publisher, "talk/a", "before there was a group");
        let kept = durable_member(&broker, "kept");
        kept.disconnect();
        for number in 0..5 {
            publish(&mut publisher, "talk/a", &number.to_string());
        }
        publisher.tell("talk/a", "QoS 0 is for those who are there");
        broker.restart_by(end);
        // Any member is served what the group holds, first of all.
        let mut other = member(&broker, "other", GROUP);
        let mut publisher = hello("publisher").connect(&broker);
        publish(&mut publisher, "talk/a", "5");
        for number in 0..6 {
            assert_eq!(payload(&other.take()), number.to_string(), "{end:?}");
        }
        other.expect_nothing();
        // What was acknowledged is in the store within a second: a kill before that sends it again.
        let mut clock = hello("clock")
            .set(|connect| connect.keep_alive = 1)
            .connect(&broker);
        clock.expect_disconnect(R::KeepAliveTimeout);
        broker.restart_by(end);
        let mut kept = hello("kept").durable().connect(&broker);
        kept.expect_nothing();
    }
}

#[test]
fn what_is_on_its_way_to_a_member_stays_its_own_across_any_end() {
    for end in ENDS {
        let mut broker = Broker::start();
        let mut first = durable_member(&broker, "a");
        let mut publisher = hello("publisher").connect(&broker);
        publish(&mut publisher, "talk/a", "1");
        let sent = first.delivery();
        first.drop_connection();
        let mut second = durable_member(&broker, "b");
        second.expect_nothing();
        publish(&mut publisher, "talk/a", "2");
        assert_eq!(payload(&second.take()), "2");
        second.disconnect();
        broker.restart_by(end);
        let mut second = hello("b").durable().connect(&broker);
        second.expect_nothing();
        let mut first = hello("a").durable().connect(&broker);
        let again = first.take();
        assert_eq!(
            (again.packet_id, again.dup, payload(&again)),
            (sent.packet_id, true, "1".into()),
            "{end:?}"
        );
        first.expect_nothing();
    }
}

#[test]
fn a_session_that_ends_gives_back_what_it_did_not_acknowledge() {
    for end in [None, Some(ENDS[0]), Some(ENDS[1])] {
        let mut broker = Broker::start();
        let mut first = durable_member(&broker, "a");
        let mut publisher = hello("publisher").connect(&broker);
        for number in 0..3 {
            publish(&mut publisher, "talk/a", &number.to_string());
        }
        let sent = [(); 3].map(|()| first.delivery());
        first.acknowledge(&sent[1]);
        first.ping();
        let kept = durable_member(&broker, "b");
        kept.disconnect();
        publish(&mut publisher, "talk/a", "3");
        first.disconnect_for(0);
        if let Some(end) = end {
            broker.restart_by(end);
        }
        let mut kept = hello("b").durable().connect(&broker);
        let came = [(); 3].map(|()| payload(&kept.take()));
        assert_eq!(came, ["0", "2", "3"], "{end:?}");
        kept.expect_nothing();
    }
}

#[test]
fn at_qos_2_what_a_member_may_have_is_not_given_to_another() {
    let broker = Broker::start();
    let subscribe = |client: &mut Client| {
        let granted = client.subscribe(GROUP, QoS::ExactlyOnce);
        assert_eq!(granted, R::GrantedQos2);
    };
    let mut first = hello("a").connect(&broker);
    subscribe(&mut first);
    let mut publisher = hello("publisher").connect(&broker);
    publisher.publish_once("talk/a", "1");
    assert_eq!(payload(&first.delivery()), "1");
    let mut second = hello("b").connect(&broker);
    subscribe(&mut second);
    first.drop_connection();
    second.expect_nothing();
    publisher.publish_once("talk/a", "2");
    assert_eq!(payload(&second.take()), "2");
}

#[test]
fn a_group_is_served_new_records_and_changes_and_nothing_of_a_queue() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    for topic in ["events/a", "state/a", "jobs/a"] {
        publish(&mut publisher, topic, "before");
    }
    assert_eq!(publisher.publish_retained("talk/a", "retained"), R::Success);
    let mut first = hello("a").connect(&broker);
    first.follow("$share/g/#");
    first.follow("$share/g/jobs/#");
    let mut second = member(&broker, "b", "$share/g/#");
    first.expect_nothing();
    for number in 0..4 {
        let topic = ["events/a", "state/a"][number % 2];
        publish(&mut publisher, topic, &number.to_string());
        let member = if number % 2 == 0 {
            &mut first
        } else {
            &mut second
        };
        let came = member.take();
        assert_eq!(
            (came.topic.as_str(), payload(&came)),
            (topic, number.to_string())
        );
        assert!(!came.retain);
        common::property(&came, "saguin-offset");
    }
    publish(&mut publisher, "jobs/a", "after");
    first.expect_nothing();
    second.expect_nothing();
}

#[test]
fn a_message_held_too_long_is_dropped() {
    let broker = Broker::with(&Setup {
        broker: "  share: {expires_after: 1s}",
        ..Setup::default()
    });
    durable_member(&broker, "kept").disconnect();
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "talk/a", "old");
    let mut clock = hello("clock")
        .set(|connect| connect.keep_alive = 1)
        .connect(&broker);
    // One and a half seconds of silence.
    clock.expect_disconnect(R::KeepAliveTimeout);
    publish(&mut publisher, "talk/a", "new");
    let mut kept = hello("kept").durable().connect(&broker);
    assert_eq!(payload(&kept.take()), "new");
    kept.expect_nothing();
}

#[test]
fn an_unsubscribed_member_is_out_of_its_turn() {
    let broker = Broker::start();
    let mut first = member(&broker, "a", GROUP);
    let mut second = member(&broker, "b", GROUP);
    first.unsubscribe(GROUP, None);
    let mut publisher = hello("publisher").connect(&broker);
    for number in 0..4 {
        publish(&mut publisher, "talk/a", &number.to_string());
        assert_eq!(payload(&second.take()), number.to_string());
    }
    first.expect_nothing();
}

#[test]
fn what_a_shared_subscription_is_refused_for() {
    let broker = Broker::start();
    let mut client = hello("a").connect(&broker);
    let shared = |no_local| Subscription {
        filter: text(GROUP),
        qos: QoS::AtLeastOnce,
        no_local,
        ..Subscription::default()
    };
    let mut pairs = UserPropertiesBuilder::new();
    pairs
        .push("saguin-filter", "topic_hash(2, 0)")
        .expect("a pair");
    let partitioned = client.send_subscribe(Subscribe {
        user_properties: pairs.build(),
        filters: vec![shared(false)],
        ..Subscribe::default()
    });
    assert_eq!(partitioned.reasons, [R::ImplementationSpecific]);
    client.send(&saguin_mqtt_codec::Packet::Subscribe(Subscribe {
        packet_id: 9,
        filters: vec![shared(true)],
        ..Subscribe::default()
    }));
    client.expect_disconnect(R::ProtocolError);
    let mut old = hello_v311("old").connect(&broker);
    let refused = old.subscribe(GROUP, QoS::AtLeastOnce);
    assert_eq!(refused, R::Unspecified);
}

#[test]
fn what_comes_back_to_a_group_comes_in_its_order() {
    let broker = Broker::start();
    let mut first = member(&broker, "a", GROUP);
    let mut second = member(&broker, "b", GROUP);
    let mut publisher = hello("publisher").connect(&broker);
    for number in 0..10 {
        publish(&mut publisher, "talk/a", &number.to_string());
    }
    for number in [0, 2, 4, 6, 8] {
        assert_eq!(payload(&first.delivery()), number.to_string());
    }
    for number in [1, 3, 5, 7, 9] {
        assert_eq!(payload(&second.take()), number.to_string());
    }
    first.drop_connection();
    for number in [0, 2, 4, 6, 8] {
        assert_eq!(payload(&second.take()), number.to_string());
    }
}

#[test]
fn what_no_member_takes_for_its_size_holds_up_nobody() {
    let broker = Broker::start();
    let mut small = hello("a")
        .durable()
        .set(|c| c.maximum_packet_size = Some(200))
        .connect(&broker);
    small.follow(GROUP);
    let mut publisher = hello("publisher").connect(&broker);
    publish(&mut publisher, "talk/a", &"x".repeat(500));
    publish(&mut publisher, "talk/a", "1");
    assert_eq!(payload(&small.take()), "1");
    small.disconnect();
    publish(&mut publisher, "talk/a", &"x".repeat(500));
    publish(&mut publisher, "talk/a", "2");
    let mut small = hello("a")
        .durable()
        .set(|c| c.maximum_packet_size = Some(200))
        .connect(&broker);
    assert_eq!(payload(&small.take()), "2");
    small.expect_nothing();
}

#[test]
fn a_long_name_and_a_full_window_are_no_harm() {
    let broker = Broker::with(&Setup {
        limits: "session_queue_bytes: 64MiB",
        ..Setup::default()
    });
    let group = format!("$share/{}/talk/#", "g".repeat(900));
    let join = |id: &str| {
        let mut client = hello(id).durable().connect(&broker);
        let granted = client.subscribe(&group, QoS::ExactlyOnce);
        assert_eq!(granted, R::GrantedQos2);
        client
    };
    join("away").disconnect();
    let mut there = join("there");
    let mut publisher = hello("publisher").connect(&broker);
    for number in 0..1500 {
        publisher.publish_once("talk/a", &number.to_string());
    }
    let sent: Vec<Publish> = (0..1500).map(|_| there.delivery()).collect();
    for (number, publish) in sent.iter().enumerate() {
        assert_eq!(payload(publish), number.to_string());
    }
    there.ping();
}
