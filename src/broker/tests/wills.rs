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
