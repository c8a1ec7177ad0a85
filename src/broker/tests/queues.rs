//! Workers over the broker: who is offered what, and what an answer does.

use super::*;
use crate::broker::queue::{Backoff, Retry};

/// Worker `a` on the queue, and a job published by another client.
fn worker(world: &World, client_id: &str) -> Client {
    let client = world.connect(connect(client_id));
    assert_eq!(
        client.subscribe("$saguin/queue/jobs"),
        SubackReason::Granted(1)
    );
    client
}

fn answer(message: &OutgoingPublish, verb: &str) -> Publish {
    let region = &message.properties;
    // Correlation Data of 32 bytes stands right behind the Response Topic.
    let at = region
        .windows(3)
        .position(|window| window == [0x09, 0, 32])
        .unwrap();
    Publish {
        properties: PublishProperties {
            correlation_data: Some(region.slice(at + 3..at + 35)),
            ..PublishProperties::default()
        },
        ..publish("$saguin/queue/jobs/response", verb)
    }
}

#[test]
fn a_job_goes_to_one_worker_and_is_done_when_it_says_so() {
    let world = World::new();
    let (a, b) = (worker(&world, "a"), worker(&world, "b"));
    let publisher = world.connect(connect("p"));
    assert_eq!(publisher.publish("jobs/1", "x"), Reason::Success);
    let (to_a, to_b) = (a.messages(), b.messages());
    assert_eq!(to_a.len() + to_b.len(), 1);
    let (holder, job) = if to_a.is_empty() {
        (&b, &to_b[0])
    } else {
        (&a, &to_a[0])
    };
    assert_eq!((job.topic.as_ref(), job.qos), (&b"jobs/1"[..], 1));
    assert_eq!(property(job, "saguin-attempt").as_deref(), Some("1"));
    holder.ack(std::slice::from_ref(job));
    // A PUBACK moves a packet and finishes nothing (invariant 6).
    assert_eq!(world.store.unresolved_jobs(), 1);
    assert_eq!(holder.send(answer(job, "ack")), Reason::Success);
    assert_eq!(world.store.unresolved_jobs(), 0);
}

#[test]
fn a_job_is_offered_again_as_soon_as_its_connection_ends() {
    let world = World::new();
    let a = worker(&world, "a");
    a.publish("jobs/1", "x");
    let job = a.messages().remove(0);
    let b = worker(&world, "b");
    assert!(b.messages().is_empty());
    a.ack(std::slice::from_ref(&job));
    a.lose();
    let again = b.messages();
    assert_eq!(again.len(), 1);
    assert_eq!(property(&again[0], "saguin-attempt").as_deref(), Some("2"));
    // The delivery of the connection that is gone resolves nothing (invariant 3).
    let late = world.connect(connect("a"));
    assert_eq!(late.send(answer(&job, "ack")), Reason::Success);
    assert_eq!(world.store.unresolved_jobs(), 1);
}

#[test]
fn an_offer_that_was_never_sent_goes_back_unspent() {
    let world = World::new();
    let a = worker(&world, "a");
    let publisher = world.connect(connect("p"));
    publisher.publish("jobs/1", "x");
    a.lose();
    let b = worker(&world, "b");
    assert_eq!(
        property(&b.messages()[0], "saguin-attempt").as_deref(),
        Some("1")
    );
}

#[test]
fn a_lease_runs_from_the_puback_and_then_ends() {
    let world = World::new();
    let (a, b) = (worker(&world, "a"), worker(&world, "b"));
    let publisher = world.connect(connect("p"));
    publisher.publish("jobs/1", "x");
    let mut held = a.messages();
    let (holder, other) = if held.is_empty() {
        held = b.messages();
        (&b, &a)
    } else {
        (&a, &b)
    };
    // Without a PUBACK no clock runs (invariant 7).
    world.advance(Duration::from_secs(600));
    assert!(other.messages().is_empty());
    holder.ack(&held);
    world.advance(Duration::from_secs(29));
    assert!(other.messages().is_empty());
    world.advance(Duration::from_secs(1));
    let again: usize = a.messages().len() + b.messages().len();
    assert_eq!(again, 1);
}

#[test]
fn a_worker_without_a_window_is_asked_again_when_it_has_one() {
    let world = World::new();
    let a = world.connect(Connect {
        receive_maximum: 1,
        ..connect("a")
    });
    a.subscribe("events/#");
    let publisher = world.connect(connect("p"));
    publisher.publish("events/1", "in the way");
    let first = a.messages();
    assert_eq!(a.subscribe("$saguin/queue/jobs"), SubackReason::Granted(1));
    publisher.publish("jobs/1", "x");
    assert!(a.messages().is_empty());
    a.ack(&first);
    assert_eq!(a.payloads(), ["x"]);
}

#[test]
fn an_answer_nobody_can_read_is_acknowledged_and_changes_nothing() {
    let world = World::new();
    let a = worker(&world, "a");
    a.connection.publish(publish("jobs/1", "x"), world.now());
    world.settle();
    let job = a.messages().remove(0);
    assert_eq!(a.send(answer(&job, "maybe")), Reason::Success);
    let bare = publish("$saguin/queue/jobs/response", "ack");
    assert_eq!(a.send(bare), Reason::Success);
    let other = worker(&world, "b");
    assert_eq!(other.send(answer(&job, "ack")), Reason::Success);
    assert_eq!(world.store.unresolved_jobs(), 1);
    let ignored = &world.broker.counters().answers_ignored;
    assert_eq!(ignored.load(std::sync::atomic::Ordering::Relaxed), 3);
}

#[test]
fn a_worker_that_unsubscribed_keeps_its_job_until_its_connection_ends() {
    let world = World::new();
    let a = worker(&world, "a");
    a.connection.publish(publish("jobs/1", "x"), world.now());
    world.settle();
    let job = a.messages();
    assert_eq!(job.len(), 1);
    assert_eq!(a.unsubscribe("$saguin/queue/jobs"), Reason::Success);
    a.publish("jobs/2", "y");
    assert!(a.messages().is_empty());
    let b = worker(&world, "b");
    assert_eq!(b.payloads(), ["y"]);
    let c = worker(&world, "c");
    assert!(c.payloads().is_empty());
    a.lose();
    assert_eq!(c.payloads(), ["x"]);
}

#[test]
fn a_resumed_session_works_again_without_subscribing() {
    let world = World::new();
    let a = world.connect(durable("a"));
    a.subscribe("$saguin/queue/jobs");
    a.lose();
    world.connect(connect("p")).publish("jobs/1", "x");
    let a = world.connect(durable("a"));
    assert_eq!(a.payloads(), ["x"]);
    let world = world.crash();
    let a = world.connect(durable("a"));
    assert_eq!(a.payloads(), ["x"]);
}

#[test]
fn a_job_too_large_for_its_worker_ends_that_connection_unspent() {
    let world = World::new();
    let a = world.connect(Connect {
        maximum_packet_size: Some(300),
        ..connect("a")
    });
    a.subscribe("$saguin/queue/jobs");
    world
        .connect(connect("p"))
        .publish("jobs/1", &"x".repeat(300));
    assert_eq!(a.closed(), Some(Reason::PacketTooLarge));
    a.lose();
    let b = worker(&world, "b");
    assert_eq!(
        property(&b.messages()[0], "saguin-attempt").as_deref(),
        Some("1")
    );
}

#[test]
fn an_unsubscribe_right_behind_the_subscribe_leaves_no_worker() {
    for connect in [connect("a"), durable("a")] {
        let world = World::new();
        let a = world.connect(connect);
        let subscribe = Subscribe {
            packet_id: 1,
            identifier: None,
            filters: vec![request("$saguin/queue/jobs")],
            user_properties: UserPairs::default(),
        };
        // Nothing is stored between the two.
        a.connection.subscribe(&subscribe);
        assert_eq!(a.unsubscribe("$saguin/queue/jobs"), Reason::Success);
        world.connect(super::connect("p")).publish("jobs/1", "x");
        assert!(a.messages().is_empty());
        assert_eq!(worker(&world, "c").payloads(), ["x"]);
    }
}

#[test]
fn an_offer_not_sent_by_the_unsubscribe_goes_to_another_worker() {
    let world = World::new();
    let a = worker(&world, "a");
    let publisher = world.connect(super::connect("p"));
    publisher.publish("jobs/1", "x");
    assert_eq!(a.unsubscribe("$saguin/queue/jobs"), Reason::Success);
    assert!(a.messages().is_empty());
    let b = worker(&world, "b");
    let job = b.messages().remove(0);
    assert_eq!(property(&job, "saguin-attempt").as_deref(), Some("1"));
}

#[test]
fn a_session_that_returns_with_mqtt_311_works_no_more() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("$saguin/queue/jobs");
    client.lose();
    // It could not answer: there is no Correlation Data to answer with.
    let old = world.connect(Connect {
        clean_start: false,
        ..v311("a")
    });
    assert!(old.connack.session_present);
    let publisher = world.connect(connect("p"));
    publisher.publish("jobs/1", "x");
    assert!(old.messages().is_empty());
    let job = worker(&world, "b").messages().remove(0);
    assert_eq!(property(&job, "saguin-attempt").as_deref(), Some("1"));
    old.lose();
    // The session is a worker again once its client speaks MQTT 5.
    publisher.publish("jobs/2", "y");
    let client = world.connect(durable("a"));
    assert_eq!(client.payloads(), ["y"]);
}

#[test]
fn a_full_queue_refuses_publishes_and_nothing_that_relieves_it() {
    let world = World::with(Options {
        queue: QueueSettings {
            retry: Retry {
                max_attempts: 1,
                backoff: Backoff::None,
            },
            ..QueueSettings::default()
        },
        ..Options::default()
    });
    let (a, publisher) = (worker(&world, "a"), world.connect(connect("p")));
    publisher.publish("jobs/1", "1");
    publisher.publish("jobs/2", "2");
    world.store.refuse_when(|operation| match operation {
        crate::storage::Operation::Enqueue { .. } => Some(crate::storage::StoreError::ProviderFull),
        _ => None,
    });
    assert_eq!(publisher.publish("jobs/3", "3"), Reason::QuotaExceeded);
    let first = a.messages();
    a.ack(&first);
    assert_eq!(a.send(answer(&first[0], "return")), Reason::Success);
    assert_eq!(world.store.counted(DEAD_JOBS).count, 1);
    let second = a.messages();
    a.ack(&second);
    assert_eq!(a.send(answer(&second[0], "ack")), Reason::Success);
    assert_eq!(world.store.unresolved_jobs(), 0);
}

#[test]
fn a_retained_job_loses_the_flag_and_is_counted() {
    let world = World::new();
    let a = worker(&world, "a");
    for qos in [0, 1] {
        let retained = Publish {
            qos,
            retain: true,
            ..publish("jobs/1", "x")
        };
        a.connection.publish(retained, world.now());
        world.settle();
    }
    let job = a.messages();
    assert_eq!((job.len(), job[0].retain, job[0].qos), (1, false, 1));
    let dropped = &world.broker.counters().queue_retain_dropped;
    assert_eq!(dropped.load(std::sync::atomic::Ordering::Relaxed), 2);
}
