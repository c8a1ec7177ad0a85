//! What the sweeps remove, and what they leave.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn age_raises_the_floor_of_an_append_channel() {
    let world = World::with(Options {
        retention_period: Some(HOUR),
        ..Options::default()
    });
    let client = world.connect(connect("a"));
    client.publish("events/1", "old");
    world.advance(HOUR / 2);
    client.publish("events/1", "new");
    world.advance(HOUR / 2 + Duration::from_secs(1));
    let events = world.store.counted(EVENTS);
    assert_eq!((events.floor, events.count), (2, 1));
}

#[test]
fn size_removes_the_oldest_until_the_rest_fits() {
    let world = World::with(Options {
        retention_bytes: Some(100),
        ..Options::default()
    });
    let client = world.connect(connect("a"));
    // Each counts 16 + 8 + 6 bytes.
    for _ in 0..5 {
        client.publish("events/1", "012345");
    }
    world.advance(Duration::from_secs(1));
    let events = world.store.counted(EVENTS);
    assert_eq!((events.floor, events.count, events.bytes), (3, 3, 90));
}

#[test]
fn quiet_values_and_old_deletions_are_forgotten_each_after_their_period() {
    let world = World::with(Options {
        retention_period: Some(4 * HOUR),
        deletion_retention_period: Some(HOUR),
        ..Options::default()
    });
    let client = world.connect(connect("a"));
    client.publish("state/quiet", "x");
    client.publish("state/gone", "x");
    client.publish("state/gone", "");
    world.advance(HOUR + Duration::from_secs(1));
    assert_eq!(world.store.counted(STATE).count, 1);
    client.publish("state/busy", "x");
    world.advance(3 * HOUR);
    assert_eq!(world.store.counted(STATE).count, 1);
    client.subscribe("state/#");
    assert_eq!(client.messages()[0].topic, "state/busy");
}

#[test]
fn nothing_is_removed_without_a_bound() {
    let world = World::new();
    let client = world.connect(connect("a"));
    client.publish("events/1", "x");
    client.publish("state/1", "x");
    world.advance(1000 * HOUR);
    assert_eq!(world.store.counted(EVENTS).count, 1);
    assert_eq!(world.store.counted(STATE).count, 1);
}
