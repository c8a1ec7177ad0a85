//! Any sequence of events, crashes included, against an oracle that knows only what was told.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const MAX_ATTEMPTS: u32 = 3;
const VISIBILITY: u64 = 30;
const WORKERS: usize = 3;

#[derive(Clone, Debug)]
enum Event {
    Publish,
    Subscribe(usize),
    Unsubscribe(usize),
    /// The connection ends; the client comes back under another worker id.
    Disconnect(usize),
    Room(usize, usize),
    Puback(prop::sample::Index),
    Unsent(prop::sample::Index),
    /// By the worker that got the delivery, or by another.
    Answer(prop::sample::Index, bool, Verb),
    Advance(u64),
    Commit,
    Complete,
    RefuseMoves(bool),
    RefuseAll(bool),
    Crash,
}

fn event() -> impl Strategy<Value = Event> {
    let worker = || 0..WORKERS;
    let delivery = any::<prop::sample::Index>;
    let verb = prop_oneof![Just(Verb::Ack), Just(Verb::Return)];
    prop_oneof![
        6 => Just(Event::Publish),
        3 => worker().prop_map(Event::Subscribe),
        1 => worker().prop_map(Event::Unsubscribe),
        1 => worker().prop_map(Event::Disconnect),
        2 => (worker(), 0..3_usize).prop_map(|(w, n)| Event::Room(w, n)),
        6 => delivery().prop_map(Event::Puback),
        2 => delivery().prop_map(Event::Unsent),
        8 => (delivery(), any::<bool>(), verb).prop_map(|(d, own, v)| Event::Answer(d, own, v)),
        3 => (1..40_u64).prop_map(Event::Advance),
        4 => Just(Event::Commit),
        8 => Just(Event::Complete),
        1 => any::<bool>().prop_map(Event::RefuseMoves),
        1 => any::<bool>().prop_map(Event::RefuseAll),
        1 => Just(Event::Crash),
    ]
}

#[derive(Clone, Copy)]
struct Out {
    delivery: DeliveryId,
    worker: WorkerId,
    leased_at: Option<u64>,
}

impl Out {
    fn lease_over(&self, now: u64) -> bool {
        self.leased_at.is_some_and(|at| at + VISIBILITY <= now)
    }
}

struct World {
    scene: Scene,
    workers: Vec<Arc<TestWorker>>,
    next_worker: u64,
    next_epoch: u64,
    /// Every delivery ever made.
    made: Vec<(JobOffer, WorkerId)>,
    /// Deliveries whose end has not been seen, by job.
    out: BTreeMap<u64, Out>,
    /// The highest attempt ever offered, by job.
    attempts: BTreeMap<u64, u32>,
    /// Jobs whose publisher was told they are stored.
    told_stored: Arc<Mutex<BTreeSet<u64>>>,
    /// Jobs whose worker was told `ack` is stored.
    told_done: Arc<Mutex<BTreeSet<u64>>>,
    /// Jobs some worker answered `ack` for, while it held them.
    acked: BTreeSet<u64>,
}

impl World {
    fn new() -> Self {
        let scene = Scene::new(settings());
        World {
            scene,
            workers: (0..WORKERS as u64)
                .map(|id| TestWorker::new(id, 2))
                .collect(),
            next_worker: WORKERS as u64,
            next_epoch: 2,
            made: Vec::new(),
            out: BTreeMap::new(),
            attempts: BTreeMap::new(),
            told_stored: Arc::default(),
            told_done: Arc::default(),
            acked: BTreeSet::new(),
        }
    }

    fn now(&self) -> u64 {
        self.scene.seconds.load(Ordering::Relaxed)
    }

    fn apply(&mut self, event: &Event) {
        let queue = Arc::clone(&self.scene.queue);
        match event {
            Event::Publish => {
                let stored = Arc::clone(&self.told_stored);
                let done = Box::new(move |result: Result<u64, StoreError>| {
                    if let Ok(offset) = result {
                        assert!(stored.lock().unwrap().insert(offset), "an offset twice");
                    }
                });
                queue.publish(message("jobs/a", "work"), done);
            }
            Event::Subscribe(w) => queue.add_worker(Arc::clone(&self.workers[*w]) as _),
            Event::Unsubscribe(w) => queue.remove_worker(self.workers[*w].id),
            Event::Disconnect(w) => self.disconnect(*w),
            Event::Room(w, room) => {
                *self.workers[*w].room.lock().unwrap() = *room;
                queue.worker_ready(self.workers[*w].id);
            }
            Event::Puback(index) => {
                if let Some((offer, _)) = self.pick(index) {
                    let now = self.now();
                    if let Some(out) = self.out.get_mut(&offer.job.offset)
                        && out.delivery == offer.delivery
                    {
                        out.leased_at.get_or_insert(now);
                    }
                    queue.transport_acked(&offer.delivery);
                }
            }
            Event::Unsent(index) => {
                if let Some((offer, _)) = self.pick(index) {
                    let out = self.out.get(&offer.job.offset);
                    if out.is_some_and(|o| o.delivery == offer.delivery && o.leased_at.is_none()) {
                        self.out.remove(&offer.job.offset);
                    }
                    queue.unsent(&offer.delivery);
                }
            }
            Event::Answer(index, own, verb) => self.answer(index, *own, *verb),
            Event::Advance(seconds) => {
                self.scene.seconds.fetch_add(*seconds, Ordering::Relaxed);
                queue.on_deadline();
                let now = self.now();
                self.out.retain(|_, out| !out.lease_over(now));
            }
            Event::Commit => self.scene.store.commit(),
            Event::Complete => {
                self.scene.store.run_completions();
            }
            Event::RefuseMoves(true) => self.scene.store.refuse_when(|op| {
                matches!(op, Operation::DeadLetter { .. }).then_some(StoreError::ProviderFull)
            }),
            Event::RefuseAll(true) => {
                let why = StoreError::ProviderFull;
                self.scene.store.refuse_when(move |_| Some(why.clone()));
            }
            Event::RefuseMoves(false) | Event::RefuseAll(false) => {
                self.scene.store.refuse_nothing();
            }
            Event::Crash => self.crash(),
        }
        self.collect_offers();
        self.check_totals();
    }

    fn pick(&self, index: &prop::sample::Index) -> Option<(JobOffer, WorkerId)> {
        (!self.made.is_empty()).then(|| {
            // Mostly one of the latest, sometimes any.
            let recent = self.made.len().min(4);
            let from = if index.index(5) == 0 {
                0
            } else {
                self.made.len() - recent
            };
            let choices = &self.made[from..];
            choices[index.index(choices.len())].clone()
        })
    }

    fn answer(&mut self, index: &prop::sample::Index, own: bool, verb: Verb) {
        let Some((offer, holder)) = self.pick(index) else {
            return;
        };
        let worker = if own {
            holder
        } else {
            WorkerId(holder.0.wrapping_add(1))
        };
        let offset = offer.job.offset;
        let live = self
            .out
            .get(&offset)
            .is_some_and(|out| out.delivery == offer.delivery && out.worker == worker);
        let before = self.scene.store.pending();
        let done_jobs = Arc::clone(&self.told_done);
        let done = Box::new(move |result| match result {
            Ok(AnswerOutcome::Applied) if verb == Verb::Ack => {
                done_jobs.lock().unwrap().insert(offset);
            }
            Ok(AnswerOutcome::Ignored(_)) => assert!(!live, "a current answer was ignored"),
            _ => {}
        });
        let data = offer.delivery.as_bytes();
        self.scene.queue.answer(data, worker, verb, done);
        if live {
            self.out.remove(&offset);
            if verb == Verb::Ack {
                self.acked.insert(offset);
            }
        } else {
            let after = self.scene.store.pending();
            assert_eq!(before, after, "a superseded answer changed something");
        }
    }

    fn disconnect(&mut self, w: usize) {
        let id = self.workers[w].id;
        self.scene.queue.worker_gone(id);
        // What it was offered and had not looked at went with the connection.
        self.note_offers(w);
        self.out.retain(|_, out| out.worker != id);
        self.workers[w] = TestWorker::new(self.next_worker, 2);
        self.next_worker += 1;
    }

    fn crash(&mut self) {
        self.collect_offers();
        let store = self.scene.store.crash();
        let seconds = self.now();
        let epoch = Epoch(self.next_epoch);
        self.next_epoch += 1;
        self.scene = Scene::over(store, settings(), epoch);
        self.scene.seconds.store(seconds, Ordering::Relaxed);
        self.out.clear();
        for worker in &mut self.workers {
            *worker = TestWorker::new(self.next_worker, 2);
            self.next_worker += 1;
        }
    }

    fn collect_offers(&mut self) {
        for w in 0..self.workers.len() {
            self.note_offers(w);
        }
    }

    fn note_offers(&mut self, w: usize) {
        let worker = Arc::clone(&self.workers[w]);
        let offers = std::mem::take(&mut *worker.offers.lock().unwrap());
        for offer in offers {
            let offset = offer.job.offset;
            assert!(
                !self.out.contains_key(&offset),
                "two live deliveries of job {offset}"
            );
            assert!(
                self.out.values().all(|out| out.worker != worker.id),
                "a worker with two jobs"
            );
            assert!(
                !self.told_done.lock().unwrap().contains(&offset),
                "job {offset} came back after its ack was told"
            );
            let highest = self.attempts.entry(offset).or_default();
            assert!(offer.attempt >= *highest, "the attempts of {offset} fell");
            assert!(offer.attempt <= MAX_ATTEMPTS, "an attempt too many");
            *highest = offer.attempt;
            self.out.insert(
                offset,
                Out {
                    delivery: offer.delivery,
                    worker: worker.id,
                    leased_at: None,
                },
            );
            self.made.push((offer, worker.id));
        }
    }

    fn check_totals(&self) {
        let (counts, totals) = (self.scene.queue.counts(), self.scene.queue.totals());
        let ended =
            totals.acknowledged + totals.returned + totals.redelivered + totals.dead_lettered;
        assert_eq!(totals.delivered, ended + counts.inflight as u64);
    }

    /// Whatever happened, every stored job ends in one place and all of them can be finished.
    fn finish(mut self) {
        self.scene.store.refuse_nothing();
        self.scene.store.settle();
        for _ in 0..200 {
            if self.scene.queue.counts().unresolved == 0 {
                break;
            }
            self.apply(&Event::Advance(61));
            self.scene.store.settle();
            for w in 0..self.workers.len() {
                self.apply(&Event::Room(w, 2));
                self.apply(&Event::Subscribe(w));
            }
            let out: Vec<(u64, Out)> = self.out.iter().map(|(o, out)| (*o, *out)).collect();
            for (offset, out) in out {
                let data = out.delivery.as_bytes();
                self.scene
                    .queue
                    .answer(data, out.worker, Verb::Ack, Box::new(|_| {}));
                self.acked.insert(offset);
                self.out.remove(&offset);
            }
            self.scene.store.settle();
            self.collect_offers();
        }
        assert!(self.scene.store.unresolved(QUEUE).is_empty());
        assert_eq!(self.scene.queue.counts().unresolved, 0);
        let mut dead = BTreeSet::new();
        for letter in self.scene.dead_letters() {
            let text = String::from_utf8_lossy(&letter.message.properties).into_owned();
            let from = text.split("saguin-dlq-offset").nth(1).unwrap();
            let from: String = from.chars().filter(char::is_ascii_digit).collect();
            assert!(dead.insert(from), "a job dead-lettered twice");
        }
        let stored = self.told_stored.lock().unwrap();
        let lost = stored.iter().filter(|offset| !self.acked.contains(offset));
        assert!(lost.count() <= dead.len(), "a stored job is nowhere");
        let all = self.scene.store.counters(QUEUE).next - 1;
        assert!(stored.len() as u64 <= all);
    }
}

fn settings() -> QueueSettings {
    QueueSettings {
        visibility_timeout: Duration::from_secs(VISIBILITY),
        job_expires_after: None,
        retry: Retry {
            max_attempts: MAX_ATTEMPTS,
            backoff: Backoff::Linear {
                base: Duration::from_secs(5),
            },
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_events_breaks_a_lease_or_loses_a_job(
        events in prop::collection::vec(event(), 1..150),
    ) {
        let mut world = World::new();
        for event in &events {
            world.apply(event);
        }
        world.finish();
    }
}
