//! A queue: each job to one worker at a time, until it is done or dead-lettered.

mod common;

use common::{Broker, Client, hello, property, text};
use saguin_mqtt_codec::{Publish, PublishProperties, QoS, ReasonCode};

use ReasonCode as R;

const PATIENT: &str = "
  events: {type: append, filter: events/#}
  jobs: {type: queue, filter: jobs/#, visibility_timeout: 1h, retry: {max_attempts: 3}}
";

fn put(client: &mut Client, payloads: &[&'static str]) {
    for payload in payloads {
        assert_eq!(client.publish("jobs/a", *payload), R::Success);
    }
}

fn worker(broker: &Broker, name: &str) -> Client {
    let mut worker = hello(name).connect(broker);
    worker.follow("$saguin/queue/jobs");
    worker
}

#[test]
fn two_workers_have_one_job_each() {
    let broker = Broker::with_channels(PATIENT);
    let mut publisher = hello("publisher").connect(&broker);
    let mut first = worker(&broker, "first");
    let mut second = worker(&broker, "second");
    put(&mut publisher, &["1", "2", "3"]);
    let one = first.take();
    let two = second.take();
    let mut both = [one.payload.clone(), two.payload.clone()];
    both.sort();
    assert_eq!(both, ["1", "2"]);
    first.expect_nothing();
    second.expect_nothing();
    // The answer of one frees that one.
    assert_eq!(second.answer(&two, "ack"), R::Success);
    let three = second.take();
    assert_eq!(three.payload, "3");
    assert_eq!(property(&three, "saguin-attempt"), "1");
    first.expect_nothing();
}

#[test]
fn a_job_waits_for_a_worker_and_is_gone_once_it_is_done() {
    let mut broker = Broker::with_channels(PATIENT);
    let mut publisher = hello("publisher").connect(&broker);
    put(&mut publisher, &["1", "2"]);
    // Whatever it was published at, a job is offered at QoS 1.
    publisher.tell("jobs/a", "3");
    // Nobody is told that one is stored, so it is known by what was stored after it.
    assert_eq!(publisher.publish("events/a", "after it"), R::Success);
    broker.restart();
    let mut only = worker(&broker, "only");
    for payload in ["1", "2", "3"] {
        let job = only.take();
        assert_eq!(
            (job.qos, job.payload.clone()),
            (QoS::AtLeastOnce, payload.into())
        );
        assert!(!job.retain);
        assert_eq!(only.answer(&job, "ack"), R::Success);
    }
    only.expect_nothing();
    broker.restart();
    worker(&broker, "only").expect_nothing();
}

#[test]
fn a_worker_that_leaves_returns_its_job_at_once() {
    let broker = Broker::with_channels(PATIENT);
    let mut publisher = hello("publisher").connect(&broker);
    put(&mut publisher, &["1"]);
    let mut first = worker(&broker, "first");
    let job = first.take();
    // Its PUBACK is in before it leaves.
    first.ping();
    let mut second = worker(&broker, "second");
    second.expect_nothing();
    first.drop_connection();
    let again = second.take();
    assert_eq!(again.payload, "1");
    assert_eq!(property(&again, "saguin-attempt"), "2");
    assert_eq!(property(&again, "saguin-id"), property(&job, "saguin-id"));
    second.ping();
    second.disconnect();
    let third = worker(&broker, "third").take();
    assert_eq!(property(&third, "saguin-attempt"), "3");
}

#[test]
fn a_job_that_was_not_acknowledged_has_spent_no_attempt() {
    let broker = Broker::with_channels(PATIENT);
    let mut publisher = hello("publisher").connect(&broker);
    put(&mut publisher, &["1"]);
    for _ in 0..5 {
        let mut deaf = worker(&broker, "deaf");
        let job = deaf.delivery();
        assert_eq!(property(&job, "saguin-attempt"), "1");
        deaf.drop_connection();
    }
}

#[test]
fn a_late_answer_changes_nothing() {
    let broker = Broker::start();
    let mut publisher = hello("publisher").connect(&broker);
    put(&mut publisher, &["1"]);
    let mut slow = worker(&broker, "slow");
    let job = slow.take();
    slow.unsubscribe("$saguin/queue/jobs", None);
    let mut quick = worker(&broker, "quick");
    // It timed out, and is another's.
    let again = quick.delivery();
    assert_eq!(
        slow.answer(&job, "ack"),
        R::Success,
        "acknowledged, and ignored"
    );
    quick.acknowledge(&again);
    assert_eq!(property(&again, "saguin-attempt"), "2");
    // Nor can one answer with what another was given, or with an answer given before.
    assert_eq!(slow.answer(&again, "ack"), R::Success);
    assert_eq!(quick.answer(&again, "return"), R::Success);
    assert_eq!(quick.answer(&again, "ack"), R::Success);
    let last = quick.take();
    assert_eq!(last.payload, "1");
    assert_eq!(property(&last, "saguin-attempt"), "3");
    assert_eq!(quick.answer(&last, "ack"), R::Success);
    drop(quick);
    worker(&broker, "another").expect_nothing();
}

#[test]
fn what_is_no_answer_is_acknowledged_and_ignored() {
    let broker = Broker::with_channels(PATIENT);
    let mut publisher = hello("publisher").connect(&broker);
    put(&mut publisher, &["1", "2"]);
    let mut only = worker(&broker, "only");
    let job = only.take();
    assert_eq!(only.answer(&job, "perhaps"), R::Success);
    let response = "$saguin/queue/jobs/response";
    assert_eq!(only.publish(response, "ack"), R::Success);
    let made_up = PublishProperties {
        correlation_data: Some("made up".into()),
        ..PublishProperties::default()
    };
    assert_eq!(only.publish_with(response, "ack", made_up), R::Success);
    only.expect_nothing();
    assert_eq!(only.answer(&job, "ack"), R::Success);
    assert_eq!(only.take().payload, "2");
}

#[test]
fn an_answer_before_the_puback_counts_as_receipt() {
    let broker = Broker::with_channels(PATIENT);
    let mut publisher = hello("publisher").connect(&broker);
    put(&mut publisher, &["1"]);
    let mut only = worker(&broker, "only");
    let job = only.delivery();
    assert_eq!(only.answer(&job, "return"), R::Success);
    only.acknowledge(&job);
    let again = only.take();
    assert_eq!(property(&again, "saguin-attempt"), "2");
}

#[test]
fn a_worker_with_a_job_may_leave_the_queue_and_still_finish_it() {
    let broker = Broker::with_channels(PATIENT);
    let mut publisher = hello("publisher").connect(&broker);
    put(&mut publisher, &["1", "2"]);
    let mut leaving = worker(&broker, "leaving");
    let job = leaving.take();
    assert_eq!(
        leaving.unsubscribe("$saguin/queue/jobs", None).reasons,
        [R::Success]
    );
    assert_eq!(leaving.answer(&job, "ack"), R::Success);
    leaving.expect_nothing();
    let mut staying = worker(&broker, "staying");
    let job = staying.take();
    assert_eq!(job.payload, "2");
    assert_eq!(staying.answer(&job, "ack"), R::Success);
    staying.expect_nothing();
}

#[test]
fn no_ordinary_filter_is_served_a_job() {
    let broker = Broker::with_channels(PATIENT);
    let mut nosy = hello("nosy").connect(&broker);
    for filter in ["#", "+/a", "+/#", "jobs/__dlq/#"] {
        nosy.follow(filter);
    }
    let mut publisher = hello("publisher").connect(&broker);
    assert_eq!(publisher.publish_retained("jobs/a", "secret"), R::Success);
    let mut only = worker(&broker, "only");
    let job = only.take();
    assert!(!job.retain);
    nosy.expect_nothing();
    assert_eq!(only.answer(&job, "ack"), R::Success);
    assert_eq!(publisher.publish("talk/a", "for all"), R::Success);
    assert_eq!(nosy.take().payload, "for all");
}

#[test]
fn attempts_survive_kills_until_the_job_is_dead_lettered() {
    let mut broker = Broker::with_channels(PATIENT);
    let mut publisher = hello("publisher").connect(&broker);
    put(&mut publisher, &["1"]);
    let mut before = None;
    for attempt in ["1", "2", "3"] {
        let mut only = worker(&broker, "only");
        if let Some(job) = &before {
            // A Delivery ID from before the restart resolves nothing.
            assert_eq!(only.answer(job, "ack"), R::Success);
        }
        let job = only.take();
        assert_eq!(property(&job, "saguin-attempt"), attempt);
        // The log keeps things in the order they came: once this is acknowledged, the attempt that
        // the PUBACK before it spent is stored.
        assert_eq!(only.publish("events/a", "after it"), R::Success);
        before = Some(job);
        broker.restart();
    }
    let mut reader = hello("reader").connect(&broker);
    reader.follow("jobs/__dlq/#");
    let letter = reader.take();
    assert_eq!(property(&letter, "saguin-dlq-attempts"), "3");
    assert_eq!(property(&letter, "saguin-dlq-reason"), "attempts_exhausted");
    worker(&broker, "only").expect_nothing();
}

#[test]
fn an_old_job_is_dead_lettered_as_expired() {
    let broker = Broker::with_channels(
        "{jobs: {type: queue, visibility_timeout: 1s, job_expires_after: 2s}}",
    );
    let mut reader = hello("reader").connect(&broker);
    reader.follow("jobs/__dlq/#");
    let mut publisher = hello("publisher").connect(&broker);
    put(&mut publisher, &["1"]);
    let letter = reader.take();
    assert_eq!(letter.topic, "jobs/__dlq/a");
    assert_eq!(property(&letter, "saguin-dlq-reason"), "expired");
    assert_eq!(property(&letter, "saguin-dlq-attempts"), "0");
    let labels = &letter.properties.user_properties;
    assert_eq!(labels.get("saguin-dlq-first"), None);
    assert_eq!(labels.get("saguin-dlq-last"), None);
    property(&letter, "saguin-dlq-at");
}

#[test]
fn a_backoff_is_waited_out() {
    let broker =
        Broker::with_channels("{jobs: {type: queue, retry: {backoff: linear, backoff_base: 1s}}}");
    let mut publisher = hello("publisher").connect(&broker);
    put(&mut publisher, &["1", "2"]);
    let mut only = worker(&broker, "only");
    let first = only.take();
    assert_eq!(only.answer(&first, "return"), R::Success);
    // The one that waits is skipped, not waited on.
    let second = only.take();
    assert_eq!(second.payload, "2");
    assert_eq!(only.answer(&second, "ack"), R::Success);
    only.expect_nothing();
    let again = only.take();
    assert_eq!(
        (again.payload.clone(), property(&again, "saguin-attempt")),
        ("1".into(), "2")
    );
}

#[test]
fn a_full_queue_refuses_jobs_and_takes_answers() {
    let broker =
        Broker::with_channels("{jobs: {type: queue, max_bytes: 1KiB, retry: {max_attempts: 1}}}");
    let mut publisher = hello("publisher").connect(&broker);
    let large = "x".repeat(600);
    assert_eq!(publisher.publish("jobs/a", large.clone()), R::Success);
    assert_eq!(publisher.publish("jobs/a", large.clone()), R::QuotaExceeded);
    let mut only = worker(&broker, "only");
    let job = only.take();
    assert_eq!(only.answer(&job, "return"), R::Success);
    assert_eq!(publisher.publish("jobs/a", large.clone()), R::Success);
    let job = only.take();
    assert_eq!(only.answer(&job, "ack"), R::Success);
    assert_eq!(publisher.publish("jobs/a", large), R::Success);
}

#[test]
fn a_worker_with_no_room_in_its_window_is_offered_nothing() {
    let broker = Broker::with_channels(PATIENT);
    let mut publisher = hello("publisher").connect(&broker);
    let mut busy = hello("busy")
        .set(|connect| connect.receive_maximum = 1)
        .connect(&broker);
    busy.follow("events/#");
    assert_eq!(publisher.publish("events/a", "in the way"), R::Success);
    let event = busy.delivery();
    busy.follow("$saguin/queue/jobs");
    put(&mut publisher, &["1"]);
    busy.expect_nothing();
    busy.acknowledge(&event);
    assert_eq!(busy.take().payload, "1");
}

#[test]
fn a_job_too_large_for_a_worker_ends_it_and_spends_no_attempt() {
    let broker = Broker::with_channels(PATIENT);
    let mut publisher = hello("publisher").connect(&broker);
    publisher.send_publish(Publish {
        topic: text("jobs/a"),
        payload: vec![b'x'; 1000].into(),
        ..Publish::default()
    });
    publisher.ping();
    let mut small = hello("small")
        .set(|connect| connect.maximum_packet_size = Some(500))
        .connect(&broker);
    small.follow("$saguin/queue/jobs");
    small.expect_disconnect(R::PacketTooLarge);
    let job = worker(&broker, "large").take();
    assert_eq!(property(&job, "saguin-attempt"), "1");
}
