//! One owner of a client identifier (invariant 17), and nothing told before it is stored (18).

use super::*;

#[test]
fn a_second_connection_takes_over_once_its_connack_is_written() {
    let world = World::new();
    let first = world.connect(connect("a"));
    let mut claim = world.claim(connect("a")).unwrap();
    let Poll::Ready(Ok(connack)) = claim.poll(world.now()) else {
        panic!("not accepted");
    };
    assert_eq!(first.closed(), None);
    assert_eq!(first.publish("events/1", "still here"), Reason::Success);
    let second = world.establish(claim, connack);
    assert_eq!(first.closed(), Some(Reason::SessionTakenOver));
    assert!(second.connection.owns_session());
    // Its teardown, running late, changes nothing.
    first.lose();
    assert_eq!(second.publish("events/1", "mine"), Reason::Success);
}

#[test]
fn a_claim_given_back_leaves_a_live_session_as_it_was() {
    let world = World::new();
    let first = world.connect(durable("a"));
    first.subscribe("events/#");
    let before = world.store.crash().scan_all();
    let claim = world.claim(connect("a")).unwrap();
    world.settle();
    assert_ne!(world.store.crash().scan_all(), before);
    drop(claim);
    world.settle();
    assert_eq!(world.store.crash().scan_all(), before);
    first.publish("events/1", "x");
    assert_eq!(first.consume(), ["x"]);
}

#[test]
fn a_claim_given_back_leaves_an_away_session_as_it_was() {
    let world = World::new();
    let client = world.connect(durable("a"));
    client.subscribe("events/#");
    client.publish("events/1", "x");
    client.lose();
    drop(world.claim(connect("a")).unwrap());
    world.settle();
    let again = world.connect(durable("a"));
    assert!(again.connack.session_present);
    assert_eq!(again.payloads(), ["x"]);
}

#[test]
fn a_session_begun_by_a_claim_that_is_given_back_never_was() {
    let world = World::new();
    drop(world.claim(durable("a")).unwrap());
    world.settle();
    assert!(world.store.crash().scan_all().is_empty());
    assert!(!world.connect(durable("a")).connack.session_present);
}

#[test]
fn connects_of_one_client_take_turns() {
    let world = World::new();
    let mut first = world.claim(connect("a")).unwrap();
    let mut second = world.claim(connect("a")).unwrap();
    assert!(first.poll(world.now()).is_ready());
    assert!(second.poll(world.now()).is_pending());
    drop(first);
    assert!(second.poll(world.now()).is_ready());
}

#[test]
fn a_subscribe_during_a_claim_waits_for_how_it_comes_out() {
    let world = World::new();
    let client = world.connect(durable("a"));
    let claim = world.claim(connect("a")).unwrap();
    let subscribe = Subscribe {
        packet_id: 1,
        identifier: None,
        filters: vec![request("events/#")],
        user_properties: UserPairs::default(),
    };
    let flow = client.connection.subscribe(&subscribe);
    assert_eq!(flow, Flow::Retry);
    drop(claim);
    world.settle();
    let flow = client.connection.subscribe(&subscribe);
    assert_eq!(flow, Flow::Continue);
}

#[test]
fn a_session_whose_record_cannot_be_stored_is_refused_and_the_old_one_stays() {
    let world = World::new();
    let old = world.connect(durable("a"));
    world
        .store
        .refuse_when(|_| Some(crate::storage::StoreError::ProviderFull));
    let mut claim = world.claim(durable("a")).unwrap();
    world.settle();
    let Poll::Ready(Err(refusal)) = claim.poll(world.now()) else {
        panic!("accepted");
    };
    assert_eq!(refusal.reason, Reason::ImplementationSpecific);
    drop(claim);
    assert_eq!(old.closed(), None);
    assert!(old.connection.owns_session());
}

#[test]
fn a_connack_waits_for_the_store() {
    let world = World::new();
    let mut claim = world.claim(durable("a")).unwrap();
    assert!(claim.poll(world.now()).is_pending());
    world.settle();
    assert!(claim.poll(world.now()).is_ready());
}

#[test]
fn a_refused_connect_says_why_and_touches_nothing() {
    let world = World::new();
    let session = world.connect(durable("a"));
    for (refused, reason) in [
        (
            Connect {
                authentication_method: true,
                ..connect("a")
            },
            Reason::BadAuthenticationMethod,
        ),
        (connect(&"x".repeat(257)), Reason::ClientIdNotValid),
        (connect("a\u{7}"), Reason::ClientIdNotValid),
        (durable(""), Reason::ClientIdNotValid),
        (
            Connect {
                user_properties: pairs(&[("saguin-x", "")]),
                ..connect("a")
            },
            Reason::ImplementationSpecific,
        ),
        (
            Connect {
                will: will("$SYS/x", "", 0),
                ..connect("a")
            },
            Reason::TopicNameInvalid,
        ),
    ] {
        assert_eq!(world.refused(refused), reason);
    }
    assert!(session.connection.owns_session());
    assert_eq!(session.closed(), None);
}

#[test]
fn an_identifier_is_assigned_where_none_is_sent() {
    let world = World::new();
    let (a, b) = (world.connect(connect("")), world.connect(connect("")));
    let assigned = |client: &Client| client.connack.assigned_client_id.clone().unwrap();
    assert_ne!(assigned(&a), assigned(&b));
}

#[test]
fn mqtt_5_alone_is_told_of_a_shorter_keepalive() {
    let world = World::with(Options {
        settings: Settings {
            max_keepalive: Some(60),
            ..Settings::default()
        },
        ..Options::default()
    });
    let told = |connect| world.connect(connect).connack.server_keep_alive;
    assert_eq!(told(connect("a")), Some(60));
    let short = Connect {
        keep_alive: 30,
        ..connect("b")
    };
    assert_eq!(told(short), None);
    assert_eq!(told(v311("c")), None);
}
