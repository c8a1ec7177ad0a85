//! The lease rules, one by one.

use std::time::Duration;

use super::*;
use crate::broker::queue::{Backoff, Retry};

const A: WorkerId = WorkerId(1);
const B: WorkerId = WorkerId(2);
const C: WorkerId = WorkerId(3);
const START_MS: u64 = 1_700_000_000_000;
const VISIBILITY: u64 = 30;

/// A moment, in seconds since the start.
fn at(seconds: u64) -> Now {
    Now {
        since_start: Duration::from_secs(seconds),
        unix_ms: START_MS + seconds * 1000,
    }
}

fn settings() -> QueueSettings {
    QueueSettings::default()
}

fn with_backoff(base_seconds: u64) -> QueueSettings {
    QueueSettings {
        retry: Retry {
            max_attempts: 5,
            backoff: Backoff::Linear {
                base: Duration::from_secs(base_seconds),
            },
        },
        ..settings()
    }
}

fn with_attempts(max_attempts: u32) -> QueueSettings {
    let mut settings = settings();
    settings.retry.max_attempts = max_attempts;
    settings
}

fn with_expiry(seconds: u64) -> QueueSettings {
    QueueSettings {
        job_expires_after: Some(Duration::from_secs(seconds)),
        ..settings()
    }
}

fn queue(settings: QueueSettings, jobs: u64, workers: &[WorkerId]) -> QueueState {
    let mut queue = QueueState::new(settings, Epoch(9), Vec::new());
    for offset in 1..=jobs {
        queue.enqueued(offset, Some(START_MS));
    }
    for worker in workers {
        queue.add_worker(*worker);
    }
    queue
}

fn item(offset: u64, attempts: u32) -> WorkItem {
    WorkItem {
        offset,
        attempts,
        attempted: (attempts > 0).then_some((START_MS - 10, START_MS - 5)),
        received_at: Some(START_MS),
        size: 100,
    }
}

fn offer(queue: &mut QueueState, now: Now) -> Option<Offer> {
    queue.offer(now, &mut |_| true)
}

/// Offers, and has the PUBACK arrive and its attempt stored.
fn lease(queue: &mut QueueState, now: Now) -> Offer {
    let offer = offer(queue, now).expect("an offer");
    queue
        .transport_acked(&offer.delivery, now)
        .expect("an attempt to store");
    queue.attempt_stored(offer.offset, now);
    offer
}

fn give_back(queue: &mut QueueState, offer: &Offer, now: Now) -> Answer {
    let answer = queue.answer(&offer.delivery, offer.worker, Verb::Return, now);
    if let Answer::Applied(Effect::StoreAttempt { offset, .. }) = answer {
        queue.attempt_stored(offset, now);
    }
    answer
}

#[test]
fn jobs_are_offered_in_offset_order_to_workers_in_turn() {
    let mut queue = queue(settings(), 4, &[A, B]);
    let first = offer(&mut queue, at(0)).unwrap();
    let second = offer(&mut queue, at(0)).unwrap();
    assert_eq!((first.offset, first.worker), (1, A));
    assert_eq!((second.offset, second.worker), (2, B));
    queue.answer(&second.delivery, B, Verb::Ack, at(0));
    queue.answer(&first.delivery, A, Verb::Ack, at(0));
    // B was free first, so its turn comes first.
    assert_eq!(offer(&mut queue, at(0)).unwrap().worker, B);
    assert_eq!(offer(&mut queue, at(0)).unwrap().worker, A);
}

#[test]
fn a_worker_holds_one_job_of_a_queue() {
    let mut queue = queue(settings(), 2, &[A]);
    let first = offer(&mut queue, at(0)).unwrap();
    assert_eq!(offer(&mut queue, at(0)), None);
    queue.transport_acked(&first.delivery, at(0));
    queue.worker_ready(A);
    queue.add_worker(A);
    assert_eq!(offer(&mut queue, at(0)), None);
}

#[test]
fn a_worker_without_room_is_passed_over_until_it_has_some() {
    let mut queue = queue(settings(), 2, &[A, B]);
    let got = queue.offer(at(0), &mut |worker| worker == B).unwrap();
    assert_eq!(got.worker, B);
    let asked_again = queue.offer(at(0), &mut |_| panic!("asked without a reason"));
    assert_eq!(asked_again, None);
    queue.worker_ready(A);
    assert_eq!(offer(&mut queue, at(0)).unwrap().worker, A);
}

#[test]
fn changed_grants_have_every_worker_asked_again() {
    let mut queue = queue(settings(), 2, &[A, B]);
    assert_eq!(queue.offer(at(0), &mut |_| false), None);
    queue.all_workers_ready();
    assert!(offer(&mut queue, at(0)).is_some());
    assert!(offer(&mut queue, at(0)).is_some());
}

#[test]
fn the_visibility_clock_starts_at_the_puback_and_never_at_the_send() {
    let mut queue = queue(settings(), 1, &[A, B]);
    let offered = offer(&mut queue, at(0)).unwrap();
    assert_eq!(queue.next_deadline(at(0)), None);
    assert!(queue.tick(at(10_000)).is_empty());
    assert_eq!(queue.counts().inflight, 1);

    queue.transport_acked(&offered.delivery, at(10_000));
    queue.attempt_stored(1, at(10_000));
    let deadline = at(10_000 + VISIBILITY);
    assert_eq!(queue.next_deadline(at(10_000)), Some(deadline.since_start));
    assert!(queue.tick(at(10_000 + VISIBILITY - 1)).is_empty());
    assert_eq!(queue.counts().ready, 0);
    assert!(queue.tick(deadline).is_empty());
    assert_eq!(queue.counts().ready, 1);
}

#[test]
fn a_superseded_delivery_resolves_nothing() {
    let mut queue = queue(settings(), 1, &[A, B]);
    let stalled = lease(&mut queue, at(0));
    assert!(queue.tick(at(VISIBILITY)).is_empty());
    let second = lease(&mut queue, at(VISIBILITY));
    assert_eq!(second.worker, B);
    assert_ne!(second.delivery, stalled.delivery);
    for verb in [Verb::Ack, Verb::Return] {
        let late = queue.answer(&stalled.delivery, A, verb, at(VISIBILITY));
        assert_eq!(late, Answer::Ignored(Ignored::NotCurrent));
    }
    assert_eq!(queue.transport_acked(&stalled.delivery, at(40)), None);
    queue.unsent(&stalled.delivery, at(40));
    assert_eq!(queue.counts().inflight, 1);
    let answer = queue.answer(&second.delivery, B, Verb::Ack, at(40));
    assert_eq!(answer, Answer::Applied(Effect::Resolve { offset: 1 }));
}

#[test]
fn only_the_holder_answers() {
    let mut queue = queue(settings(), 2, &[A, B]);
    let first = lease(&mut queue, at(0));
    let second = lease(&mut queue, at(0));
    let other = queue.answer(&first.delivery, second.worker, Verb::Ack, at(0));
    assert_eq!(other, Answer::Ignored(Ignored::NotHolder));
    let stranger = queue.answer(&first.delivery, C, Verb::Ack, at(0));
    assert_eq!(stranger, Answer::Ignored(Ignored::NotHolder));
    assert_eq!(queue.counts().inflight, 2);
}

#[test]
fn the_same_answer_applies_once() {
    let mut queue = queue(settings(), 1, &[A]);
    let held = lease(&mut queue, at(0));
    assert!(matches!(
        give_back(&mut queue, &held, at(1)),
        Answer::Applied(_)
    ));
    let again = queue.answer(&held.delivery, A, Verb::Return, at(1));
    assert_eq!(again, Answer::Ignored(Ignored::NotCurrent));
    let next = offer(&mut queue, at(1)).unwrap();
    assert_eq!(next.attempt, 2);
    let later = queue.answer(&held.delivery, A, Verb::Ack, at(1));
    assert_eq!(later, Answer::Ignored(Ignored::NotCurrent));
}

#[test]
fn an_answer_before_the_puback_counts_as_receipt() {
    let mut queue = queue(settings(), 1, &[A]);
    let offered = offer(&mut queue, at(3)).unwrap();
    let answer = queue.answer(&offered.delivery, A, Verb::Return, at(4));
    let stored = Effect::StoreAttempt {
        offset: 1,
        attempts: 1,
        attempted: (at(4).unix_ms, at(4).unix_ms),
    };
    assert_eq!(answer, Answer::Applied(stored));
    assert_eq!(queue.transport_acked(&offered.delivery, at(5)), None);
    queue.attempt_stored(1, at(5));
    assert_eq!(offer(&mut queue, at(5)).unwrap().attempt, 2);
}

#[test]
fn attempts_rise_at_the_puback_once() {
    let mut queue = queue(settings(), 1, &[A]);
    let offered = offer(&mut queue, at(0)).unwrap();
    assert_eq!(offered.attempt, 1);
    let stored = Effect::StoreAttempt {
        offset: 1,
        attempts: 1,
        attempted: (at(2).unix_ms, at(2).unix_ms),
    };
    assert_eq!(
        queue.transport_acked(&offered.delivery, at(2)),
        Some(stored)
    );
    assert_eq!(queue.transport_acked(&offered.delivery, at(3)), None);
    let answer = give_back(&mut queue, &offered, at(4));
    // Returned again: the same attempt, stored once more so that the answer means something is.
    assert_eq!(answer, Answer::Applied(stored));
}

#[test]
fn an_unsent_job_goes_back_with_its_attempt_unspent() {
    let mut queue = queue(with_attempts(1), 1, &[A, B]);
    let offered = offer(&mut queue, at(0)).unwrap();
    queue.unsent(&offered.delivery, at(0));
    let again = offer(&mut queue, at(0)).unwrap();
    assert_eq!((again.attempt, again.worker), (1, B));
    queue.unsent(&again.delivery, at(0));
    // Neither worker is tried again by itself: there is no loop.
    assert_eq!(offer(&mut queue, at(0)), None);
    assert!(queue.tick(at(1)).is_empty());
    queue.worker_ready(A);
    assert_eq!(offer(&mut queue, at(1)).unwrap().attempt, 1);
}

#[test]
fn a_job_whose_worker_vanished_before_its_puback_is_unspent() {
    let mut queue = queue(with_backoff(10), 1, &[A, B]);
    offer(&mut queue, at(0)).unwrap();
    queue.worker_gone(A, at(1));
    let again = offer(&mut queue, at(1)).unwrap();
    assert_eq!((again.attempt, again.worker), (1, B));
}

#[test]
fn a_worker_that_goes_returns_its_leased_job_at_once_with_its_backoff() {
    let mut queue = queue(with_backoff(10), 1, &[A, B]);
    let held = lease(&mut queue, at(0));
    queue.worker_gone(A, at(5));
    assert_eq!(offer(&mut queue, at(5)), None);
    assert_eq!(queue.next_deadline(at(5)), Some(at(15).since_start));
    assert!(queue.tick(at(15)).is_empty());
    let again = offer(&mut queue, at(15)).unwrap();
    assert_eq!((again.attempt, again.worker), (2, B));
    let late = queue.answer(&held.delivery, A, Verb::Ack, at(16));
    assert_eq!(late, Answer::Ignored(Ignored::NotCurrent));
}

#[test]
fn an_unsubscribed_worker_keeps_its_job_and_gets_no_other() {
    let mut queue = queue(settings(), 2, &[A]);
    let held = lease(&mut queue, at(0));
    queue.remove_worker(A);
    assert_eq!(queue.counts().inflight, 1);
    let answer = queue.answer(&held.delivery, A, Verb::Ack, at(1));
    assert!(matches!(answer, Answer::Applied(_)));
    assert_eq!(offer(&mut queue, at(1)), None);
    assert_eq!(queue.counts().workers, 0);
}

#[test]
fn an_unsubscribed_workers_job_times_out_and_comes_back_with_its_connection() {
    let mut queue = queue(settings(), 1, &[A, B]);
    let held = lease(&mut queue, at(0));
    queue.remove_worker(held.worker);
    assert!(queue.tick(at(VISIBILITY)).is_empty());
    let second = lease(&mut queue, at(VISIBILITY));
    assert_eq!(second.worker, B);
    queue.remove_worker(B);
    queue.worker_gone(B, at(VISIBILITY + 1));
    assert_eq!(queue.counts().ready, 1);
}

#[test]
fn a_worker_that_subscribes_again_while_holding_a_job_is_served_after_it() {
    let mut queue = queue(settings(), 2, &[A]);
    let held = lease(&mut queue, at(0));
    queue.remove_worker(A);
    queue.add_worker(A);
    assert_eq!(offer(&mut queue, at(0)), None);
    queue.answer(&held.delivery, A, Verb::Ack, at(0));
    assert_eq!(offer(&mut queue, at(0)).unwrap().offset, 2);
}

#[test]
fn a_job_waiting_out_its_backoff_is_skipped_and_never_waited_on() {
    let mut queue = queue(with_backoff(60), 2, &[A]);
    let held = lease(&mut queue, at(0));
    give_back(&mut queue, &held, at(0));
    let other = offer(&mut queue, at(0)).unwrap();
    assert_eq!(other.offset, 2);
    queue.answer(&other.delivery, A, Verb::Ack, at(1));
    assert_eq!(offer(&mut queue, at(1)), None);
    assert!(queue.tick(at(60)).is_empty());
    assert_eq!(offer(&mut queue, at(60)).unwrap().offset, 1);
}

#[test]
fn a_returned_job_is_offered_only_once_its_attempt_is_stored() {
    let mut queue = queue(settings(), 1, &[A]);
    let held = lease(&mut queue, at(0));
    queue.answer(&held.delivery, A, Verb::Return, at(0));
    assert_eq!(offer(&mut queue, at(0)), None);
    queue.attempt_stored(1, at(0));
    assert!(offer(&mut queue, at(0)).is_some());
}

#[test]
fn an_answered_job_is_offered_to_nobody_and_its_worker_is_free() {
    let mut queue = queue(settings(), 2, &[A, B]);
    let held = lease(&mut queue, at(0));
    queue.answer(&held.delivery, A, Verb::Ack, at(0));
    assert_eq!(offer(&mut queue, at(0)).unwrap().offset, 2);
    assert_eq!(offer(&mut queue, at(0)), None);
    queue.resolved(1);
    assert_eq!(queue.counts().unresolved, 1);
    assert_eq!(queue.totals().acknowledged, 1);
}

#[test]
fn a_job_whose_removal_was_not_stored_is_tried_again_after_a_pause() {
    let mut queue = queue(settings(), 1, &[A]);
    let offered = offer(&mut queue, at(0)).unwrap();
    queue.answer(&offered.delivery, A, Verb::Ack, at(0));
    let effect = queue.resolve_failed(1, at(0));
    assert!(matches!(
        effect,
        Some(Effect::StoreAttempt { attempts: 1, .. })
    ));
    queue.attempt_failed(1, at(0));
    assert_eq!(offer(&mut queue, at(0)), None);
    assert_eq!(queue.next_deadline(at(0)), Some(at(1).since_start));
    let retried = queue.tick(at(1));
    assert!(matches!(
        retried[..],
        [Effect::StoreAttempt { attempts: 1, .. }]
    ));
    assert_eq!(offer(&mut queue, at(1)), None, "not before it is stored");
    queue.attempt_stored(1, at(1));
    let again = offer(&mut queue, at(1)).unwrap();
    assert_eq!(again.attempt, 2);
    let retry = queue.answer(&offered.delivery, A, Verb::Ack, at(1));
    assert_eq!(retry, Answer::Ignored(Ignored::NotCurrent));
}

#[test]
fn a_job_without_an_attempt_left_is_dead_lettered_instead_of_becoming_available() {
    let exhausted = |queue: &mut QueueState, now: Now| {
        let effects = queue.tick(now);
        let [effect] = effects[..] else {
            panic!("{effects:?}");
        };
        let Effect::DeadLetter {
            reason, attempts, ..
        } = effect
        else {
            panic!("{effect:?}");
        };
        assert_eq!((reason, attempts), (Reason::AttemptsExhausted, 1));
        assert_eq!(offer(queue, now), None);
    };
    // By timeout.
    let mut timed_out = queue(with_attempts(1), 1, &[A]);
    lease(&mut timed_out, at(0));
    exhausted(&mut timed_out, at(VISIBILITY));
    // By the worker going.
    let mut abandoned = queue(with_attempts(1), 1, &[A]);
    lease(&mut abandoned, at(0));
    abandoned.worker_gone(A, at(1));
    exhausted(&mut abandoned, at(1));
    // By return: the move is what the answer waits for.
    let mut returned = queue(with_attempts(1), 1, &[A]);
    let held = lease(&mut returned, at(0));
    let answer = give_back(&mut returned, &held, at(1));
    assert!(matches!(
        answer,
        Answer::Applied(Effect::DeadLetter {
            reason: Reason::AttemptsExhausted,
            ..
        })
    ));
    assert_eq!(offer(&mut returned, at(1)), None);
    returned.dead_lettered(1);
    assert_eq!(
        returned.counts(),
        Counts {
            workers: 1,
            ..Counts::default()
        }
    );
}

#[test]
fn a_refused_move_leaves_the_job_and_is_tried_again_at_a_bounded_pace() {
    let unresolved = (1..=200).map(|offset| item(offset, 5)).collect();
    let mut queue = QueueState::new(settings(), Epoch(1), unresolved);
    let mut now = at(0);
    let first = queue.tick(now);
    assert_eq!(first.len(), MAX_MOVES);
    assert!(queue.tick(now).is_empty(), "a bounded number at once");
    for effect in first {
        let Effect::DeadLetter { offset, .. } = effect else {
            panic!("{effect:?}");
        };
        queue.dead_letter_failed(offset, now);
    }
    assert_eq!(queue.counts().doomed, 200);
    let mut pauses = Vec::new();
    for _ in 0..3 {
        assert!(queue.tick(now).is_empty(), "not before the pause is over");
        let next = queue.next_deadline(now).unwrap();
        pauses.push(next - now.since_start);
        now = Now {
            since_start: next,
            ..now
        };
        let probe = queue.tick(now);
        let [Effect::DeadLetter { offset, .. }] = probe[..] else {
            panic!("one at a time: {probe:?}");
        };
        queue.dead_letter_failed(offset, now);
    }
    assert_eq!(pauses, [1, 2, 4].map(Duration::from_secs));
    // One that succeeds lets the rest follow at full pace.
    now.since_start = queue.next_deadline(now).unwrap();
    let probe = queue.tick(now);
    let [Effect::DeadLetter { offset, .. }] = probe[..] else {
        panic!("{probe:?}");
    };
    queue.dead_lettered(offset);
    assert_eq!(queue.tick(now).len(), MAX_MOVES);
}

#[test]
fn a_move_refused_after_a_return_keeps_the_attempt() {
    let mut queue = queue(with_attempts(1), 1, &[A]);
    let offered = offer(&mut queue, at(0)).unwrap();
    queue.answer(&offered.delivery, A, Verb::Return, at(0));
    let effect = queue.dead_letter_failed(1, at(0));
    assert!(matches!(
        effect,
        Some(Effect::StoreAttempt { attempts: 1, .. })
    ));
}

#[test]
fn a_job_out_with_a_worker_never_expires_under_it() {
    let mut queue = queue(with_expiry(10), 1, &[A, B]);
    let held = lease(&mut queue, at(9));
    assert!(queue.tick(at(20)).is_empty());
    assert_eq!(queue.counts().inflight, 1);
    // Back, it is too old to be offered again.
    give_back(&mut queue, &held, at(21));
    assert_eq!(offer(&mut queue, at(21)), None);
    let effects = queue.tick(at(21));
    assert!(matches!(
        effects[..],
        [Effect::DeadLetter {
            reason: Reason::Expired,
            attempts: 1,
            ..
        }]
    ));
}

#[test]
fn an_old_job_is_found_at_the_offer_and_by_the_sweep() {
    let mut at_offer = queue(with_expiry(10), 1, &[A]);
    assert_eq!(offer(&mut at_offer, at(10)), None);
    let mut swept = queue(with_expiry(10), 1, &[]);
    assert_eq!(swept.next_deadline(at(4)), Some(at(10).since_start));
    for queue in [&mut at_offer, &mut swept] {
        let effects = queue.tick(at(10));
        assert!(matches!(
            effects[..],
            [Effect::DeadLetter {
                reason: Reason::Expired,
                attempted: None,
                ..
            }]
        ));
        assert_eq!(queue.totals().expired, 1);
    }
}

#[test]
fn a_job_waiting_out_its_backoff_expires() {
    let mut settings = with_backoff(100);
    settings.job_expires_after = Some(Duration::from_secs(50));
    let mut queue = queue(settings, 1, &[A]);
    let held = lease(&mut queue, at(0));
    give_back(&mut queue, &held, at(0));
    assert_eq!(queue.next_deadline(at(0)), Some(at(50).since_start));
    assert_eq!(queue.tick(at(50)).len(), 1);
    queue.dead_lettered(1);
    assert_eq!(queue.next_deadline(at(50)), None);
}

#[test]
fn a_sweep_of_a_large_backlog_takes_more_than_one_tick() {
    let jobs = MAX_EXPIRED_PER_TICK as u64 + 10;
    let mut queue = queue(with_expiry(10), jobs, &[]);
    assert_eq!(queue.tick(at(10)).len(), MAX_MOVES);
    assert_eq!(queue.counts().ready, 10);
    assert_eq!(queue.next_deadline(at(10)), Some(at(10).since_start));
}

#[test]
fn nothing_from_before_a_restart_is_live() {
    let mut before = queue(settings(), 1, &[A]);
    let held = lease(&mut before, at(0));
    let mut after = QueueState::new(settings(), Epoch(10), vec![item(1, 1)]);
    after.add_worker(A);
    let current = offer(&mut after, at(0)).unwrap();
    assert_eq!(current.attempt, 2, "attempts survive");
    let stale = after.answer(&held.delivery, A, Verb::Ack, at(0));
    assert_eq!(stale, Answer::Ignored(Ignored::NotCurrent));
    assert_eq!(after.transport_acked(&held.delivery, at(0)), None);
    assert_eq!(after.next_deadline(at(0)), None, "no deadline is restored");
}

#[test]
fn a_job_exhausted_before_a_restart_is_dead_lettered_after_it() {
    let mut queue = QueueState::new(settings(), Epoch(1), vec![item(1, 5), item(2, 4)]);
    queue.add_worker(A);
    let effects = queue.tick(at(0));
    assert!(matches!(
        effects[..],
        [Effect::DeadLetter {
            offset: 1,
            attempts: 5,
            attempted: Some(_),
            ..
        }]
    ));
    assert_eq!(offer(&mut queue, at(0)).unwrap().offset, 2);
    assert_eq!(queue.totals().exhausted_at_start, 1);
}

#[test]
fn an_unreadable_job_waits_and_its_worker_gets_another() {
    let mut queue = queue(settings(), 2, &[A]);
    let offered = offer(&mut queue, at(0)).unwrap();
    queue.unreadable(&offered.delivery, at(0));
    assert_eq!(offer(&mut queue, at(0)).unwrap().offset, 2);
    assert_eq!(queue.next_deadline(at(0)), Some(at(1).since_start));
    assert!(queue.tick(at(1)).is_empty());
    assert_eq!(queue.counts().ready, 1);
}

#[test]
fn the_worst_jobs_are_shown_first() {
    let unresolved = vec![item(1, 0), item(2, 3), item(3, 3), item(4, 1)];
    let mut queue = QueueState::new(settings(), Epoch(1), unresolved);
    queue.add_worker(A);
    let held = lease(&mut queue, at(0));
    let view = queue.view(3);
    let offsets: Vec<u64> = view.iter().map(|job| job.offset).collect();
    assert_eq!(offsets, [2, 3, 1]);
    assert_eq!(
        view[2].standing,
        JobStanding::Leased {
            worker: held.worker,
            until: at(VISIBILITY).since_start
        }
    );
}
