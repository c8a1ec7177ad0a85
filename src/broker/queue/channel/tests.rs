//! The queue over a store: what is stored before what is told, and who is offered what.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::{Backoff, Retry, moved_at};
use super::*;
use crate::storage::ReadLimit;
use crate::storage::testing::{ModelStore, message};

const QUEUE: ChannelId = ChannelId(1);
const DEAD: ChannelId = ChannelId(2);
const START_MS: u64 = 1_700_000_000_000;

/// A worker that keeps what it is offered, with as much room as the test says.
struct TestWorker {
    id: WorkerId,
    room: Mutex<usize>,
    offers: Mutex<Vec<JobOffer>>,
}

impl TestWorker {
    fn new(id: u64, room: usize) -> Arc<Self> {
        Arc::new(TestWorker {
            id: WorkerId(id),
            room: Mutex::new(room),
            offers: Mutex::default(),
        })
    }

    fn take(&self) -> Option<JobOffer> {
        self.offers.lock().unwrap().pop()
    }

    fn only(&self) -> JobOffer {
        let offer = self.take().expect("an offer");
        assert!(self.take().is_none(), "one job at a time");
        offer
    }
}

impl Worker for TestWorker {
    fn id(&self) -> WorkerId {
        self.id
    }

    fn reserve(&self) -> bool {
        let mut room = self.room.lock().unwrap();
        let had = *room > 0;
        *room = room.saturating_sub(1);
        had
    }

    fn release(&self) {
        *self.room.lock().unwrap() += 1;
    }

    fn offer(&self, offer: JobOffer) {
        self.offers.lock().unwrap().push(offer);
    }
}

struct Scene {
    store: ModelStore,
    queue: Arc<QueueChannel>,
    seconds: Arc<AtomicU64>,
    alarm: Arc<Mutex<Option<Duration>>>,
}

impl Scene {
    fn new(settings: QueueSettings) -> Self {
        Self::over(ModelStore::new(), settings, Epoch(1))
    }

    fn over(store: ModelStore, settings: QueueSettings, epoch: Epoch) -> Self {
        let seconds = Arc::new(AtomicU64::new(0));
        let alarm = Arc::new(Mutex::new(None));
        let (reads, asks) = (Arc::clone(&seconds), Arc::clone(&alarm));
        let queue = QueueChannel::open(QueueSetup {
            name: "jobs".into(),
            filter: TopicFilter::parse("jobs/#").unwrap(),
            channel: QUEUE,
            dead_letters: DEAD,
            settings,
            epoch,
            store: Arc::new(store.clone()),
            clock: Arc::new(move || {
                let seconds = reads.load(Ordering::Relaxed);
                Now {
                    since_start: Duration::from_secs(seconds),
                    unix_ms: START_MS + seconds * 1000,
                }
            }),
            alarm: Arc::new(move |at| *asks.lock().unwrap() = Some(at)),
        });
        Scene {
            store,
            queue,
            seconds,
            alarm,
        }
    }

    fn publish(&self, payload: &str) -> Arc<Mutex<Option<Result<u64, StoreError>>>> {
        let outcome = Arc::new(Mutex::new(None));
        let told = Arc::clone(&outcome);
        let mut job = message("jobs/a", payload);
        job.received_at = Some(START_MS + self.seconds.load(Ordering::Relaxed) * 1000);
        let done = Box::new(move |result| *told.lock().unwrap() = Some(result));
        self.queue.publish(job, done);
        outcome
    }

    fn stored(&self, payload: &str) {
        self.publish(payload);
        self.store.settle();
    }

    fn worker(&self, id: u64) -> Arc<TestWorker> {
        let worker = TestWorker::new(id, 10);
        self.queue
            .add_worker(Arc::clone(&worker) as Arc<dyn Worker>);
        worker
    }

    fn answer(&self, offer: &JobOffer, worker: u64, verb: Verb) -> Told {
        let outcome = Arc::new(Mutex::new(None));
        let told = Arc::clone(&outcome);
        let done = Box::new(move |result| *told.lock().unwrap() = Some(result));
        let data = offer.delivery.as_bytes();
        self.queue.answer(data, WorkerId(worker), verb, done);
        outcome
    }

    /// Lets the clock run to the moment the alarm was asked for, and calls back.
    fn ring(&self) {
        let at = self.alarm.lock().unwrap().take().expect("an alarm");
        self.seconds.store(at.as_secs(), Ordering::Relaxed);
        self.queue.on_deadline();
        self.store.settle();
    }

    fn dead_letters(&self) -> Vec<Record> {
        let limit = ReadLimit {
            records: 100,
            bytes: u64::MAX,
        };
        self.store.read_from(DEAD, 1, limit).unwrap().records
    }
}

type Told = Arc<Mutex<Option<Result<AnswerOutcome, StoreError>>>>;

fn told(outcome: &Told) -> Option<Result<AnswerOutcome, StoreError>> {
    outcome.lock().unwrap().clone()
}

fn one_attempt() -> QueueSettings {
    QueueSettings {
        retry: Retry {
            max_attempts: 1,
            backoff: Backoff::None,
        },
        ..QueueSettings::default()
    }
}

#[test]
fn a_job_is_acknowledged_and_offered_only_once_it_is_stored() {
    let scene = Scene::new(QueueSettings::default());
    let worker = scene.worker(1);
    let outcome = scene.publish("a");
    assert!(outcome.lock().unwrap().is_none());
    assert!(worker.take().is_none());
    scene.store.settle();
    assert_eq!(*outcome.lock().unwrap(), Some(Ok(1)));
    let offer = worker.only();
    assert_eq!((offer.attempt, offer.job.offset), (1, 1));
    assert_eq!(&*offer.response_topic, "$saguin/queue/jobs/response");
    assert_eq!(offer.job.message.topic, "jobs/a");
}

#[test]
fn a_refused_publish_is_told_why_and_offered_to_nobody() {
    let scene = Scene::new(QueueSettings::default());
    scene.store.set_max_bytes(QUEUE, 10);
    let worker = scene.worker(1);
    let outcome = scene.publish("a");
    scene.store.settle();
    let refused = outcome.lock().unwrap().take();
    assert!(matches!(refused, Some(Err(StoreError::ChannelFull { .. }))));
    assert!(worker.take().is_none());
    assert_eq!(scene.queue.counts().unresolved, 0);
}

#[test]
fn an_answer_is_told_only_once_it_is_stored() {
    for verb in [Verb::Ack, Verb::Return] {
        let scene = Scene::new(QueueSettings::default());
        scene.stored("a");
        let worker = scene.worker(1);
        let offer = worker.only();
        let outcome = scene.answer(&offer, 1, verb);
        assert_eq!(told(&outcome), None);
        assert!(worker.take().is_none());
        scene.store.settle();
        assert_eq!(told(&outcome), Some(Ok(AnswerOutcome::Applied)));
        let kept = scene.store.unresolved(QUEUE);
        match verb {
            Verb::Ack => assert!(kept.is_empty()),
            Verb::Return => assert_eq!(kept[0].attempts, 1),
        }
    }
}

#[test]
fn an_answer_that_changes_nothing_is_told_so_at_once() {
    let scene = Scene::new(QueueSettings::default());
    scene.stored("a");
    let offer = scene.worker(1).only();
    let other = scene.answer(&offer, 2, Verb::Ack);
    let ignored = |why| Some(Ok(AnswerOutcome::Ignored(why)));
    assert_eq!(told(&other), ignored(Ignored::NotHolder));
    let outcome: Told = Arc::default();
    let tell = Arc::clone(&outcome);
    let done = Box::new(move |result| *tell.lock().unwrap() = Some(result));
    scene.queue.answer(b"no id", WorkerId(1), Verb::Ack, done);
    assert_eq!(told(&outcome), ignored(Ignored::NotCurrent));
    assert_eq!(scene.store.pending(), 0);
}

#[test]
fn every_event_offers_at_once() {
    let scene = Scene::new(QueueSettings::default());
    let worker = scene.worker(1);
    scene.stored("a");
    let first = worker.only();
    scene.stored("b");
    scene.stored("c");
    assert!(worker.take().is_none());
    // An answer frees its worker before anything is stored.
    scene.answer(&first, 1, Verb::Ack);
    let second = worker.only();
    assert_eq!(second.job.message.payload, "b");
    // A new worker is offered what waits.
    let late = scene.worker(2);
    assert_eq!(late.only().job.message.payload, "c");
    // A worker that goes hands its job to one that is idle.
    scene.answer(&second, 1, Verb::Ack);
    scene.queue.worker_gone(WorkerId(2));
    assert_eq!(worker.only().job.message.payload, "c");
}

#[test]
fn a_worker_whose_window_was_full_is_offered_when_it_says_so() {
    let scene = Scene::new(QueueSettings::default());
    let worker = TestWorker::new(1, 0);
    scene
        .queue
        .add_worker(Arc::clone(&worker) as Arc<dyn Worker>);
    scene.stored("a");
    assert!(worker.take().is_none());
    worker.release();
    scene.queue.worker_ready(WorkerId(1));
    let offer = worker.only();
    scene.queue.unsent(&offer.delivery);
    assert!(worker.take().is_none());
    worker.release();
    scene.queue.all_workers_ready();
    assert_eq!(worker.only().attempt, 1);
}

#[test]
fn the_attempt_is_stored_at_the_puback_and_outlives_a_crash() {
    let scene = Scene::new(QueueSettings::default());
    scene.stored("a");
    let offer = scene.worker(1).only();
    scene.queue.transport_acked(&offer.delivery);
    scene.store.settle();
    let after = Scene::over(
        scene.store.crash(),
        QueueSettings::default(),
        Epoch::random(),
    );
    let again = after.worker(1).only();
    assert_eq!(again.attempt, 2);
    assert_eq!(again.job, offer.job);
    let stale = after.answer(&offer, 1, Verb::Ack);
    assert!(matches!(
        told(&stale),
        Some(Ok(AnswerOutcome::Ignored(Ignored::NotCurrent)))
    ));
}

#[test]
fn a_lease_that_runs_out_is_offered_again_by_the_alarm() {
    let scene = Scene::new(QueueSettings::default());
    scene.stored("a");
    let worker = scene.worker(1);
    let offer = worker.only();
    assert_eq!(*scene.alarm.lock().unwrap(), None, "no clock on delivering");
    scene.queue.transport_acked(&offer.delivery);
    scene.store.settle();
    scene.ring();
    assert_eq!(worker.only().attempt, 2);
}

#[test]
fn a_nearer_deadline_is_asked_for_and_a_farther_one_is_not() {
    let mut settings = QueueSettings::default();
    settings.retry.backoff = Backoff::Linear {
        base: Duration::from_secs(2),
    };
    let scene = Scene::new(settings);
    let asked = || scene.alarm.lock().unwrap().take().map(|at| at.as_secs());
    scene.stored("a");
    scene.stored("b");
    let (first, second) = (scene.worker(1), scene.worker(2));
    let held = first.only();
    scene.queue.transport_acked(&held.delivery);
    scene.store.settle();
    assert_eq!(asked(), Some(30));
    scene.seconds.store(5, Ordering::Relaxed);
    let other = second.only();
    scene.queue.transport_acked(&other.delivery);
    scene.store.settle();
    assert_eq!(asked(), None, "30 is on its way");
    scene.answer(&other, 2, Verb::Return);
    scene.store.settle();
    assert_eq!(asked(), Some(7));
    scene.seconds.store(7, Ordering::Relaxed);
    scene.queue.on_deadline();
    assert_eq!(second.only().job.offset, 2);
    assert_eq!(asked(), Some(30));
}

#[test]
fn an_exhausted_job_moves_in_one_operation_and_keeps_its_identity() {
    let scene = Scene::new(one_attempt());
    scene.stored("a");
    let offer = scene.worker(1).only();
    let outcome = scene.answer(&offer, 1, Verb::Return);
    assert_eq!(told(&outcome), None);
    scene.store.settle();
    assert_eq!(told(&outcome), Some(Ok(AnswerOutcome::Applied)));
    assert!(scene.store.unresolved(QUEUE).is_empty());
    let [letter] = &scene.dead_letters()[..] else {
        panic!("one dead letter");
    };
    assert_eq!(letter.message.id, offer.job.message.id);
    assert_eq!(letter.message.payload, "a");
    assert_eq!(letter.message.topic, "jobs/__dlq/a");
    assert_eq!(moved_at(&letter.message), Some(START_MS));
    let moves = scene.store.stored();
    let moves = moves
        .iter()
        .filter(|op| matches!(op, Operation::DeadLetter { .. }));
    assert_eq!(moves.count(), 1);
}

#[test]
fn a_refused_move_leaves_the_job_where_it_is_until_it_succeeds() {
    let scene = Scene::new(one_attempt());
    scene.stored("a");
    let worker = scene.worker(1);
    let offer = worker.only();
    scene.queue.transport_acked(&offer.delivery);
    scene.store.settle();
    let before = scene.store.unresolved(QUEUE);
    scene.store.refuse_when(|operation| match operation {
        Operation::DeadLetter { .. } => Some(StoreError::ProviderFull),
        _ => None,
    });
    let outcome = scene.answer(&offer, 1, Verb::Return);
    scene.store.settle();
    assert_eq!(told(&outcome), Some(Err(StoreError::ProviderFull)));
    assert_eq!(scene.store.unresolved(QUEUE), before);
    assert!(worker.take().is_none());
    scene.ring();
    assert_eq!(scene.store.unresolved(QUEUE), before);
    scene.store.refuse_nothing();
    scene.ring();
    assert!(scene.store.unresolved(QUEUE).is_empty());
    assert_eq!(scene.dead_letters().len(), 1);
}

#[test]
fn an_old_job_is_dead_lettered_at_the_start() {
    let settings = QueueSettings {
        job_expires_after: Some(Duration::from_secs(5)),
        ..QueueSettings::default()
    };
    let scene = Scene::new(settings);
    scene.stored("a");
    let store = scene.store.crash();
    let mut job = message("jobs/old", "b");
    job.received_at = Some(START_MS - 5_000);
    store.put(Operation::Enqueue {
        channel: QUEUE,
        message: job,
    });
    let after = Scene::over(store, settings, Epoch(2));
    after.store.settle();
    assert_eq!(after.store.unresolved(QUEUE).len(), 1);
    assert_eq!(after.dead_letters()[0].message.topic, "jobs/__dlq/old");
}

#[test]
fn a_job_that_cannot_be_read_is_tried_again_later() {
    let scene = Scene::new(QueueSettings::default());
    scene.stored("a");
    scene.store.set_unreadable(Some("a bad sector"));
    let worker = scene.worker(1);
    assert!(worker.take().is_none());
    assert_eq!(*worker.room.lock().unwrap(), 10, "its place was given back");
    scene.store.set_unreadable(None);
    scene.ring();
    assert_eq!(worker.only().attempt, 1);
}

#[test]
fn a_failed_store_is_told_to_the_worker_and_not_retried_hot() {
    let scene = Scene::new(QueueSettings::default());
    scene.stored("a");
    let worker = scene.worker(1);
    let offer = worker.only();
    scene
        .store
        .refuse_when(|_| Some(StoreError::Failed("gone".to_owned())));
    let outcome = scene.answer(&offer, 1, Verb::Ack);
    scene.store.settle();
    assert!(matches!(told(&outcome), Some(Err(StoreError::Failed(_)))));
    assert!(worker.take().is_none());
    assert_eq!(scene.store.unresolved(QUEUE).len(), 1);
}

#[path = "properties.rs"]
mod properties;
