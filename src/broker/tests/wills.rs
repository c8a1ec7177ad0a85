//! When a Will is published, and when not.

use super::*;

fn armed(client_id: &str, delay: u32, expiry: u32) -> Connect {
    Connect {
        session_expiry: expiry,
        will: will("events/will", client_id, delay),
        ..durable(client_id)
    }
}

fn watcher(world: &World) -> Client {
    let client = world.connect(connect("watcher"));
    client.subscribe("events/#");
    client
}

#[test]
fn a_lost_connection_publishes_its_will_and_a_farewell_withdraws_it() {
    let world = World::new();
    let watcher = watcher(&world);
    world.connect(armed("lost", 0, 0)).lose();
    assert_eq!(watcher.consume(), ["lost"]);
    world.connect(armed("left", 0, 0)).disconnect();
    assert!(watcher.consume().is_empty());
    let with_will = world.connect(armed("asked", 0, 0));
    let asked = Disconnect {
        reason_code: 4,
        session_expiry: None,
    };
    with_will.connection.disconnect(asked, world.now());
    world.settle();
    assert_eq!(watcher.consume(), ["asked"]);
}

#[test]
fn a_delay_is_waited_out_cut_by_the_session_and_cancelled_by_a_return() {
    let world = World::new();
    let watcher = watcher(&world);
    world.connect(armed("delayed", 10, 100)).lose();
    world.advance(Duration::from_secs(9));
    assert!(watcher.consume().is_empty());
    world.advance(Duration::from_secs(1));
    assert_eq!(watcher.consume(), ["delayed"]);

    world.connect(armed("short", 100, 10)).lose();
    world.advance(Duration::from_secs(10));
    assert_eq!(watcher.consume(), ["short"]);

    world.connect(armed("back", 10, 100)).lose();
    let _back = world.connect(durable("back"));
    world.advance(Duration::from_secs(60));
    assert!(watcher.consume().is_empty());

    // A session that ends with its connection ends its delay with it.
    world.connect(armed("none", 10, 0)).lose();
    assert_eq!(watcher.consume(), ["none"]);
}

#[test]
fn a_session_that_is_ended_publishes_its_waiting_will_first() {
    let world = World::new();
    let watcher = watcher(&world);
    world.connect(armed("a", 50, 100)).lose();
    let _clean = world.connect(connect("a"));
    assert_eq!(watcher.consume(), ["a"]);
}

#[test]
fn a_stop_of_the_broker_publishes_no_will() {
    let world = World::new();
    let watcher = watcher(&world);
    let clients = [
        world.connect(armed("a", 0, 0)),
        world.connect(armed("b", 0, 100)),
    ];
    world
        .broker
        .close_all(&Refusal::new(Reason::ServerShuttingDown, "stop"));
    for client in &clients {
        assert_eq!(client.closed(), Some(Reason::ServerShuttingDown));
        client.lose();
    }
    assert!(
        !watcher
            .take()
            .into_iter()
            .any(|packet| matches!(packet, Outgoing::Publish(_)))
    );
    assert!(world.store.counted(EVENTS).count == 0);
}

impl World {
    /// The process dies, and another starts after a while.
    fn crash_for(self, time: Duration) -> Self {
        self.pass(time);
        self.crash()
    }

    fn wills_stored(&self) -> usize {
        self.store.scan(Space::Wills, &[]).len()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_waiting_will_goes_on_waiting_across_a_crash_or_is_published_at_the_start() {
    let world = World::new();
    world.connect(armed("waits", 10, 100)).lose();
    world.connect(armed("passed", 2, 100)).lose();
    // Its session ends while the broker is stopped.
    world.connect(armed("expired", 3, 4)).lose();
    let world = world.crash_for(5 * SECOND);
    let watcher = watcher(&world);
    let mut came = watcher.consume();
    came.sort();
    assert_eq!(came, ["expired", "passed"]);
    world.advance(4 * SECOND);
    assert!(watcher.consume().is_empty());
    world.advance(SECOND);
    assert_eq!(watcher.consume(), ["waits"]);
    assert_eq!(world.wills_stored(), 0);
    let counted = world
        .broker
        .counters()
        .wills_start
        .load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(counted, 2);
    // Once told, it is told no more.
    let world = world.crash();
    world.advance(200 * SECOND);
    assert_eq!(world.store.counted(EVENTS).count, 3);
}

#[test]
fn a_will_whose_connection_had_not_ended_is_replaced_by_a_return_or_ends_with_its_session() {
    for stops in [false, true] {
        let world = World::new();
        let clients = [
            world.connect(armed("returns", 0, 100)),
            world.connect(armed("starts clean", 5, 100)),
            world.connect(armed("stays away", 5, 100)),
            world.connect(armed("expired", 0, 3)),
            world.connect(armed("ended", 0, 0)),
        ];
        if stops {
            world
                .broker
                .close_all(&Refusal::new(Reason::ServerShuttingDown, "stop"));
            for client in &clients {
                client.lose();
            }
        }
        let world = world.crash_for(4 * SECOND);
        let watcher = watcher(&world);
        let returned = world.connect(armed("returns", 50, 100));
        assert!(returned.connack.session_present);
        world.connect(connect("starts clean"));
        world.advance(20 * SECOND);
        // A crash wrote no moment of leaving, so its session is kept from the start on and ends at
        // the running broker; after a stop it had expired before.
        let expected: &[&str] = if stops { &[] } else { &["expired"] };
        assert_eq!(watcher.consume(), expected);
        returned.disconnect();
        world.advance(200 * SECOND);
        assert_eq!(watcher.consume(), ["stays away"]);
        assert_eq!(world.wills_stored(), 0);
    }
}

#[test]
fn a_withdrawn_will_stays_withdrawn_across_a_crash() {
    let world = World::new();
    world.connect(armed("left", 5, 100)).disconnect();
    world.connect(armed("back", 5, 100)).lose();
    let back = world.connect(durable("back"));
    assert_eq!(world.wills_stored(), 0);
    drop(back);
    let world = world.crash_for(10 * SECOND);
    world.advance(200 * SECOND);
    assert_eq!(world.store.counted(EVENTS).count, 0);
}

#[test]
fn a_connect_that_comes_to_nothing_leaves_the_waiting_will_as_it_was() {
    let world = World::new();
    world.connect(armed("a", 5, 100)).lose();
    drop(world.claim(armed("a", 50, 100)));
    world.settle();
    assert_eq!(world.wills_stored(), 1);
    let world = world.crash_for(SECOND);
    let watcher = watcher(&world);
    world.advance(3 * SECOND);
    assert!(watcher.consume().is_empty());
    world.advance(SECOND);
    assert_eq!(watcher.consume(), ["a"]);
}

#[test]
fn a_crash_before_the_publish_makes_a_will_late_and_never_lost() {
    let world = World::new();
    let client = world.connect(armed("a", 0, 100));
    world.store.refuse_when(|operation| {
        matches!(operation, crate::storage::Operation::Append { .. })
            .then(|| crate::storage::StoreError::Failed("stopped".into()))
    });
    // Its moment is stored; the publish comes to nothing and the process dies with it.
    client.connection.end(world.now());
    world.store.commit();
    let world = world.crash();
    let watcher = watcher(&world);
    assert_eq!(watcher.consume(), ["a"]);
}

#[test]
fn a_will_there_is_no_room_for_is_refused_with_its_connect() {
    let world = World::new();
    world
        .store
        .refuse_when(|_| Some(crate::storage::StoreError::ProviderFull));
    assert_eq!(
        world.refused_late(armed("a", 5, 100)),
        Reason::QuotaExceeded
    );
    assert_eq!(
        world.refused_late(durable("b")),
        Reason::ImplementationSpecific
    );
    world.store.refuse_nothing();
    assert!(!world.connect(durable("a")).connack.session_present);
}

impl World {
    /// A CONNECT the store has to be asked about, and its refusal.
    fn refused_late(&self, connect: Connect) -> Reason {
        let mut claim = self.claim(connect).unwrap();
        self.settle();
        match claim.poll(self.now()) {
            Poll::Ready(Err(refusal)) => refusal.reason,
            _ => panic!("not refused"),
        }
    }
}
