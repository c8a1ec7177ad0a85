//! What a SUBSCRIBE is granted.

use super::*;

#[test]
fn a_filter_is_granted_or_refused_by_its_rule() {
    use SubackReason::{Granted, Refused};
    let world = World::new();
    let client = world.connect(connect("a"));
    for (filter, answer) in [
        ("a/b", Granted(1)),
        ("#", Granted(1)),
        ("jobs/+/x", Refused(Reason::TopicFilterInvalid)),
        ("jobs/__dlq/#", Granted(1)),
        ("a/#/b", Refused(Reason::TopicFilterInvalid)),
        ("", Refused(Reason::TopicFilterInvalid)),
        ("$SYS/#", Refused(Reason::NotAuthorized)),
        ("$saguin/x", Refused(Reason::NotAuthorized)),
        ("$saguin/queue/none", Refused(Reason::TopicFilterInvalid)),
        ("$saguin/queue/events", Refused(Reason::TopicFilterInvalid)),
        ("$saguin/queue/+", Refused(Reason::TopicFilterInvalid)),
        ("$share/g/a", Granted(1)),
        (
            "$saguin/consumer/state/seek/reply",
            Refused(Reason::TopicFilterInvalid),
        ),
        ("$saguin/consumer/events/seek/reply", Granted(1)),
        ("$saguin/queue/jobs", Granted(1)),
    ] {
        assert_eq!(client.subscribe(filter), answer, "{filter}");
    }
    let qos_2 = SubscribeRequest {
        qos: 2,
        ..request("a/b")
    };
    assert_eq!(client.subscribe_as(qos_2), Granted(2));
    let worker = |qos, no_local| SubscribeRequest {
        qos,
        no_local,
        ..request("$saguin/queue/jobs")
    };
    assert_eq!(
        client.subscribe_as(worker(0, false)),
        Refused(Reason::ImplementationSpecific)
    );
    assert_eq!(
        client.subscribe_as(worker(1, true)),
        Refused(Reason::TopicFilterInvalid)
    );
    let old = world.connect(v311("b"));
    assert_eq!(
        old.subscribe("$saguin/queue/jobs"),
        Refused(Reason::TopicFilterInvalid)
    );
}

#[test]
fn a_durable_suback_waits_for_its_record_and_deliveries_wait_for_the_suback() {
    let world = World::new();
    let other = world.connect(connect("b"));
    other.publish("events/1", "old");
    let client = world.connect(durable("a"));
    let subscribe = Subscribe {
        packet_id: 1,
        identifier: None,
        filters: vec![request("events/#"), request("live")],
        user_properties: UserPairs::default(),
    };
    client.connection.subscribe(&subscribe);
    other
        .connection
        .publish(publish("live", "live"), world.now());
    assert_eq!(client.take(), []);
    world.settle();
    let out = client.take();
    assert!(matches!(out[0], Outgoing::Suback { .. }), "{out:?}");
    // What is owed goes out once its identifier is stored.
    world.settle();
    let mut payloads: Vec<String> = out
        .into_iter()
        .chain(client.take())
        .filter_map(message)
        .map(|m| payload(&m))
        .collect();
    payloads.sort();
    assert_eq!(payloads, ["live", "old"]);
}

#[test]
fn a_subscription_that_cannot_be_stored_is_refused_and_not_in_force() {
    let world = World::new();
    let client = world.connect(durable("a"));
    world
        .store
        .refuse_when(|_| Some(crate::storage::StoreError::ProviderFull));
    assert_eq!(
        client.subscribe("live"),
        SubackReason::Refused(Reason::QuotaExceeded)
    );
    world
        .store
        .refuse_when(|_| Some(crate::storage::StoreError::Failed("gone".into())));
    assert_eq!(
        client.subscribe("live"),
        SubackReason::Refused(Reason::ImplementationSpecific)
    );
    world.store.refuse_nothing();
    client.publish("live", "x");
    assert!(client.messages().is_empty());
}

#[test]
fn an_unknown_label_refuses_every_filter_of_the_packet() {
    let world = World::new();
    let client = world.connect(connect("a"));
    for key in ["saguin-other", "saguin-deletion"] {
        let subscribe = Subscribe {
            packet_id: 1,
            identifier: None,
            filters: vec![request("a"), request("b")],
            user_properties: pairs(&[(key, "topic_hash(2, 0)")]),
        };
        client.connection.subscribe(&subscribe);
        let out = client.take();
        let refused = SubackReason::Refused(Reason::ImplementationSpecific);
        assert!(
            matches!(&out[0], Outgoing::Suback { reasons, .. } if *reasons == [refused; 2]),
            "{out:?}"
        );
    }
}

#[test]
fn a_client_has_at_most_max_subscriptions() {
    let world = World::with(Options {
        settings: Settings {
            max_subscriptions: 1,
            ..Settings::default()
        },
        ..Options::default()
    });
    let client = world.connect(connect("a"));
    assert_eq!(client.subscribe("a"), SubackReason::Granted(1));
    assert_eq!(
        client.subscribe("b"),
        SubackReason::Refused(Reason::QuotaExceeded)
    );
    // Subscribing again replaces and takes no more room.
    assert_eq!(client.subscribe("a"), SubackReason::Granted(1));
}

#[test]
fn unsubscribing_ends_what_the_filter_earned_and_its_place_in_the_channel() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    client.subscribe("live");
    assert_eq!(client.unsubscribe("events/#"), Reason::Success);
    assert_eq!(client.unsubscribe("live"), Reason::Success);
    assert_eq!(client.unsubscribe("live"), Reason::NoSubscriptionExisted);
    assert_eq!(world.store.crash().position("a", EVENTS), None);
    client.publish("events/1", "x");
    client.publish("live", "x");
    assert!(client.messages().is_empty());
}

#[test]
fn what_is_no_filter_closes_mqtt_311() {
    let world = World::new();
    let client = world.connect(v311("a"));
    let subscribe = Subscribe {
        packet_id: 1,
        identifier: None,
        filters: vec![request("a/#/b")],
        user_properties: UserPairs::default(),
    };
    assert_eq!(client.connection.subscribe(&subscribe), Flow::Stop);
    assert!(client.connection.is_closing());
}

#[test]
fn an_unsubscribe_that_cannot_be_stored_leaves_the_filter_in_force() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    client.subscribe("$saguin/queue/jobs");
    let refuse = || Some(crate::storage::StoreError::ProviderFull);
    for filter in ["events/#", "$saguin/queue/jobs"] {
        world.store.refuse_when(move |_| refuse());
        assert_eq!(client.unsubscribe(filter), Reason::ImplementationSpecific);
        world.store.refuse_nothing();
    }
    client.publish("events/1", "x");
    client.publish("jobs/1", "job");
    let mut seen = client.consume();
    seen.sort();
    assert_eq!(seen, ["job", "x"]);
    // Asked again, both go, and for good.
    for filter in ["events/#", "$saguin/queue/jobs"] {
        assert_eq!(client.unsubscribe(filter), Reason::Success);
        assert_eq!(client.unsubscribe(filter), Reason::NoSubscriptionExisted);
    }
    client.publish("events/1", "y");
    assert!(client.messages().is_empty());
    let world = world.crash();
    let client = world.connect(durable("a"));
    client.publish("events/1", "z");
    client.publish("jobs/1", "job");
    assert!(client.messages().is_empty());
}

#[test]
fn a_subscribe_behind_an_unsubscribe_waits_for_the_store() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("state/#");
    let unsubscribe = Unsubscribe {
        packet_id: 2,
        filters: vec!["state/#".into(), "state/#".into()],
        user_properties: UserPairs::default(),
    };
    let subscribe = Subscribe {
        packet_id: 3,
        identifier: None,
        filters: vec![request("state/#")],
        user_properties: UserPairs::default(),
    };
    assert_eq!(client.connection.unsubscribe(&unsubscribe), Flow::Continue);
    assert_eq!(client.connection.subscribe(&subscribe), Flow::Retry);
    world.settle();
    assert_eq!(client.connection.subscribe(&subscribe), Flow::Continue);
    world.settle();
    client.publish("state/1", "x");
    assert_eq!(client.payloads(), ["x"]);
}
