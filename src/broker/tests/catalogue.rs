//! What a channel is, and the end of somebody's connection.

use super::requests::ask;
use super::*;

#[test]
fn a_channel_is_described_and_what_is_not_there_is_nothing() {
    let world = World::new();
    let client = world.connect(connect("a"));
    let told = |name: &str| {
        let (reply, reason) = client.ask(ask(&format!("$saguin/catalogue/{name}"), ""));
        assert_eq!(reason, Reason::Success);
        let reply = reply.expect("a reply");
        assert_eq!(reply.topic, "re/me");
        payload(&reply)
    };
    assert_eq!(
        told("events"),
        r#"{"name":"events","type":"append","filter":"events/#","verbs":["write","read","seek"]}"#
    );
    assert_eq!(
        told("state"),
        r#"{"name":"state","type":"latest","filter":"state/#","verbs":["write","read","delete"]}"#
    );
    assert_eq!(
        told("jobs"),
        r#"{"name":"jobs","type":"queue","filter":"jobs/#","verbs":["write","consume"],"pin":"$saguin/queue/jobs"}"#
    );
    assert_eq!(
        told("jobs__dlq"),
        r#"{"name":"jobs__dlq","type":"append","filter":"jobs/__dlq/#","verbs":["read","seek"]}"#
    );
    assert_eq!(told("nothing"), "");
}

#[test]
fn a_request_without_a_place_to_answer_to_is_refused() {
    let world = World::new();
    let client = world.connect(connect("a"));
    world.connect(connect("b"));
    for (topic, text) in [
        ("$saguin/catalogue/events", ""),
        ("$saguin/sessions/disconnect", "b"),
    ] {
        let (reply, reason) = client.ask(publish(topic, text));
        assert_eq!(
            (reply, reason),
            (None, Reason::ImplementationSpecific),
            "{topic}"
        );
    }
    for text in ["", "a"] {
        let (reply, reason) = client.ask(ask("$saguin/sessions/disconnect", text));
        assert_eq!(
            (reply, reason),
            (None, Reason::ImplementationSpecific),
            "{text:?}"
        );
    }
}

#[test]
fn a_client_is_hung_up_and_keeps_its_session() {
    let world = World::new();
    let operator = world.connect(connect("operator"));
    let watcher = world.connect(connect("watcher"));
    watcher.subscribe("gone");
    let device = world.connect(Connect {
        will: will("gone", "device", 0),
        ..durable("device")
    });
    device.subscribe("events/#");
    let hang_up = |client: &str| {
        let (reply, reason) = operator.ask(ask("$saguin/sessions/disconnect", client));
        assert_eq!(reason, Reason::Success);
        payload(&reply.expect("a reply"))
    };
    assert_eq!(hang_up("device"), "hung-up");
    assert_eq!(device.closed(), Some(Reason::AdministrativeAction));
    assert_eq!(hang_up("device"), "no-such-client", "it is on its way out");
    device.lose();
    world.settle();
    assert_eq!(watcher.payloads(), ["device"], "its Will");
    assert_eq!(hang_up("device"), "no-such-client", "it is away");
    assert_eq!(hang_up("nobody"), "no-such-client");
    operator.publish("events/x", "kept for it");
    let device = world.connect(durable("device"));
    assert_eq!(device.consume(), ["kept for it"]);
}

#[test]
fn at_qos_0_a_request_is_answered_where_it_can_be_and_dropped_otherwise() {
    let world = World::new();
    let client = world.connect(connect("a"));
    let at_qos_0 = |publish: Publish| {
        let publish = Publish {
            qos: 0,
            packet_id: 0,
            ..publish
        };
        let flow = client.connection.publish(publish, world.now());
        assert_eq!(flow, Flow::Continue);
        let mut answers = client.messages();
        world.settle();
        answers.extend(client.messages());
        answers
    };
    let answers = at_qos_0(ask("$saguin/catalogue/nothing", ""));
    assert_eq!(answers.len(), 1);
    assert_eq!(payload(&answers[0]), "");
    let before = world.broker.counters().refused();
    assert_eq!(at_qos_0(publish("$saguin/catalogue/events", "")), []);
    assert_ne!(world.broker.counters().refused(), before, "it is counted");
}
