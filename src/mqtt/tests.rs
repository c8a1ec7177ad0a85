//! The front end over a real socket on this machine, against a client that speaks packets.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use saguin_mqtt_codec::{
    Ack, Connect, Disconnect, Limits, Packet, Publish, PublishProperties, QoS, ReasonCode, Role,
    Subscribe, Subscription, Text, Version, decode, encode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{MonotonicClock, Server, ServerSettings, ServerWakes};
use crate::broker::settings::Settings;
use crate::broker::testing;

/// A guard against waiting for ever; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

fn settings() -> ServerSettings {
    ServerSettings {
        max_connections: 100,
        connect_timeout: Duration::from_secs(30),
        write_timeout: Some(Duration::from_secs(30)),
        max_connect_size: 1024,
        max_message_size: 1024 * 1024,
        max_topic_length: 100,
    }
}

async fn start(settings: ServerSettings) -> (Server, SocketAddr) {
    let clock = MonotonicClock::start();
    let wakes = ServerWakes::default();
    let broker = testing::open(
        Settings::default(),
        clock.handed_in(),
        wakes.outcomes.callback(),
        wakes.timer.callback(),
    );
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(broker, settings, clock, &[any_port], wakes)
        .await
        .unwrap();
    let address = server.addresses()[0];
    (server, address)
}

struct Client {
    socket: TcpStream,
    buffer: BytesMut,
    version: Version,
}

impl Client {
    async fn open(address: SocketAddr, version: Version) -> Self {
        Client {
            socket: TcpStream::connect(address).await.unwrap(),
            buffer: BytesMut::new(),
            version,
        }
    }

    /// Connects with a CONNECT as `change` makes it; the CONNACK is a success.
    async fn connect(
        address: SocketAddr,
        version: Version,
        client_id: &str,
        change: impl FnOnce(&mut Connect),
    ) -> Self {
        let mut client = Self::open(address, version).await;
        let mut connect = Connect::new(version, Text::lossy(client_id));
        change(&mut connect);
        client.send(Packet::Connect(Box::new(connect))).await;
        match client.read().await {
            Some(Packet::ConnAck(connack)) if connack.reason == ReasonCode::Success => client,
            other => panic!("{other:?}"),
        }
    }

    async fn send(&mut self, packet: Packet) {
        let mut bytes = BytesMut::new();
        encode(&packet, self.version, &mut bytes).unwrap();
        self.send_bytes(&bytes).await;
    }

    async fn send_bytes(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// The next packet; `None` where the broker closed.
    async fn read(&mut self) -> Option<Packet> {
        let limits = Limits::new(4 * 1024 * 1024);
        let version = Some(self.version);
        loop {
            match decode(&mut self.buffer, version, Role::Server, &limits).unwrap() {
                Some(packet) => return Some(packet),
                None => {
                    let read = self.socket.read_buf(&mut self.buffer);
                    let read = tokio::time::timeout(PATIENCE, read)
                        .await
                        .expect("an answer");
                    if matches!(read, Ok(0) | Err(_)) {
                        return None;
                    }
                }
            }
        }
    }

    async fn subscribe(&mut self, filter: &str) -> ReasonCode {
        self.subscribe_at(filter, QoS::AtLeastOnce).await
    }

    async fn subscribe_at(&mut self, filter: &str, qos: QoS) -> ReasonCode {
        let subscribe = Subscribe {
            packet_id: 7,
            filters: vec![Subscription {
                filter: Text::lossy(filter),
                qos,
                ..Subscription::default()
            }],
            ..Subscribe::default()
        };
        self.send(Packet::Subscribe(subscribe)).await;
        match self.read().await {
            Some(Packet::SubAck(suback)) => suback.reasons[0],
            other => panic!("{other:?}"),
        }
    }

    async fn publish(&mut self, topic: &str, payload: &[u8]) {
        self.send(publish(topic, payload)).await;
    }

    async fn puback(&mut self) -> ReasonCode {
        match self.read().await {
            Some(Packet::PubAck(ack)) => ack.reason,
            other => panic!("{other:?}"),
        }
    }

    async fn message(&mut self) -> Publish {
        match self.read().await {
            Some(Packet::Publish(publish)) => {
                if publish.qos == QoS::AtLeastOnce {
                    let ack = Ack::new(publish.packet_id, ReasonCode::Success);
                    self.send(Packet::PubAck(ack)).await;
                }
                publish
            }
            other => panic!("{other:?}"),
        }
    }

    /// Reads until the DISCONNECT, which is the last packet.
    async fn disconnected(&mut self) -> ReasonCode {
        let reason = loop {
            match self.read().await {
                Some(Packet::Disconnect(disconnect)) => break disconnect.reason,
                Some(_) => {}
                None => panic!("closed without a word"),
            }
        };
        assert_eq!(self.read().await, None);
        reason
    }
}

fn publish(topic: &str, payload: &[u8]) -> Packet {
    Packet::Publish(Publish {
        qos: QoS::AtLeastOnce,
        topic: Text::lossy(topic),
        packet_id: 3,
        payload: Bytes::copy_from_slice(payload),
        ..Publish::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_publish_to_each_other_over_every_kind_of_topic() {
    let (server, address) = start(settings()).await;
    let mut old = Client::connect(address, Version::V311, "old", |_| {}).await;
    let mut new = Client::connect(address, Version::V5, "new", |_| {}).await;
    for (topic, client) in [("live/1", "a"), ("events/1", "b"), ("state/1", "c")] {
        assert_eq!(old.subscribe(topic).await, ReasonCode::GrantedQos1);
        assert_eq!(new.subscribe(topic).await, ReasonCode::GrantedQos1);
        new.publish(topic, client.as_bytes()).await;
        assert_eq!(old.message().await.payload, client.as_bytes());
        let (mut acked, mut delivered) = (false, false);
        while !(acked && delivered) {
            match new.read().await {
                Some(Packet::PubAck(ack)) => acked = ack.reason == ReasonCode::Success,
                Some(Packet::Publish(publish)) => delivered = publish.topic.as_str() == topic,
                other => panic!("{other:?}"),
            }
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connack_says_what_is_served() {
    let (server, address) = start(settings()).await;
    let mut client = Client::open(address, Version::V5).await;
    let connect = Connect::new(Version::V5, Text::default());
    client.send(Packet::Connect(Box::new(connect))).await;
    let Some(Packet::ConnAck(connack)) = client.read().await else {
        panic!("no CONNACK");
    };
    let said = connack.properties;
    assert_eq!(said.receive_maximum, Some(1024));
    assert_eq!(said.maximum_qos, None);
    assert_eq!(said.retain_available, Some(true));
    assert_eq!(said.shared_subscription_available, Some(true));
    assert_eq!(said.topic_alias_maximum, Some(16));
    assert_eq!(said.maximum_packet_size, Some(1024 * 1024));
    assert!(said.assigned_client_id.is_some());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_alias_stands_for_its_topic_and_for_nothing_else() {
    let (server, address) = start(settings()).await;
    let mut reader = Client::connect(address, Version::V5, "r", |_| {}).await;
    reader.subscribe("live/+").await;
    let mut client = Client::connect(address, Version::V5, "a", |_| {}).await;
    let aliased = |topic: &str, alias| {
        Packet::Publish(Publish {
            topic: Text::lossy(topic),
            properties: PublishProperties {
                topic_alias: Some(alias),
                ..PublishProperties::default()
            },
            ..Publish::default()
        })
    };
    client.send(aliased("live/1", 2)).await;
    client.send(aliased("", 2)).await;
    for _ in 0..2 {
        let message = reader.message().await;
        assert_eq!(message.topic.as_str(), "live/1");
        assert_eq!(message.properties.topic_alias, None);
    }
    client.send(aliased("", 3)).await;
    assert_eq!(client.disconnected().await, ReasonCode::ProtocolError);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_connection_is_served_and_the_first_is_told() {
    let (server, address) = start(settings()).await;
    let mut first = Client::connect(address, Version::V5, "a", |_| {}).await;
    let mut second = Client::connect(address, Version::V5, "a", |_| {}).await;
    assert_eq!(first.disconnected().await, ReasonCode::SessionTakenOver);
    second.publish("events/1", b"x").await;
    assert_eq!(second.puback().await, ReasonCode::Success);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_resumed_over_another_socket() {
    let (server, address) = start(settings()).await;
    let durable = |connect: &mut Connect| {
        connect.clean_start = false;
        connect.session_expiry = 60;
    };
    let mut client = Client::connect(address, Version::V5, "a", durable).await;
    client.subscribe("events/#").await;
    let farewell = Disconnect::new(ReasonCode::Success);
    client.send(Packet::Disconnect(farewell)).await;
    assert_eq!(client.read().await, None);
    let mut other = Client::connect(address, Version::V311, "b", |_| {}).await;
    other.publish("events/1", b"meanwhile").await;
    assert_eq!(other.puback().await, ReasonCode::Success);
    let mut client = Client::connect(address, Version::V5, "a", durable).await;
    assert_eq!(client.message().await.payload, "meanwhile");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_client_is_told_0x8d() {
    let (server, address) = start(settings()).await;
    let mut client = Client::connect(address, Version::V5, "a", |connect| {
        connect.keep_alive = 1;
    })
    .await;
    client.send(Packet::PingReq).await;
    assert_eq!(client.read().await, Some(Packet::PingResp));
    assert_eq!(client.disconnected().await, ReasonCode::KeepAliveTimeout);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_ends_the_connection_with_its_reason() {
    let (server, address) = start(settings()).await;
    let oversize = [0x30, 0x80, 0x80, 0x80, 0x01];
    let subscribe_flags = [0x80, 0x00];
    for (bytes, reason) in [
        (&oversize[..], ReasonCode::PacketTooLarge),
        (&subscribe_flags[..], ReasonCode::MalformedPacket),
    ] {
        let mut client = Client::connect(address, Version::V5, "a", |_| {}).await;
        client.send_bytes(bytes).await;
        assert_eq!(client.disconnected().await, reason);
        let mut old = Client::connect(address, Version::V311, "a", |_| {}).await;
        old.send_bytes(bytes).await;
        assert_eq!(old.read().await, None);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connect_that_is_not_admitted_is_answered_in_its_own_version() {
    let (server, address) = start(settings()).await;
    // MQTT 3.1: CONNACK in the form of 3.1.1, unacceptable protocol version.
    let mut client = Client::open(address, Version::V311).await;
    client
        .send_bytes(b"\x10\x0f\x00\x06MQIsdp\x03\x02\x00\x00\x00\x01a")
        .await;
    let Some(Packet::ConnAck(connack)) = client.read().await else {
        panic!("no CONNACK");
    };
    assert_eq!(connack.reason, ReasonCode::UnsupportedVersion);
    assert_eq!(client.read().await, None);

    // A CONNECT over its own bound is refused by what it declares.
    let mut client = Client::open(address, Version::V5).await;
    client
        .send_bytes(b"\x10\xff\xff\x03\x00\x04MQTT\x05\x02\x00\x00\x00")
        .await;
    let Some(Packet::ConnAck(connack)) = client.read().await else {
        panic!("no CONNACK");
    };
    assert_eq!(connack.reason, ReasonCode::PacketTooLarge);

    // Anything else first: closed, nothing written.
    let mut client = Client::open(address, Version::V5).await;
    client.send_bytes(&[0xC0, 0x00]).await;
    assert_eq!(client.read().await, None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn past_max_connections_a_connect_is_told_that_the_broker_is_busy() {
    let (server, address) = start(ServerSettings {
        max_connections: 1,
        ..settings()
    })
    .await;
    let held = Client::connect(address, Version::V5, "a", |_| {}).await;
    let mut client = Client::open(address, Version::V5).await;
    let connect = Connect::new(Version::V5, Text::lossy("b"));
    client.send(Packet::Connect(Box::new(connect))).await;
    let Some(Packet::ConnAck(connack)) = client.read().await else {
        panic!("no CONNACK");
    };
    assert_eq!(connack.reason, ReasonCode::ServerBusy);
    assert_eq!(client.read().await, None);
    drop(held);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deaf_client_is_cut_off_and_delays_nobody() {
    let (server, address) = start(ServerSettings {
        write_timeout: Some(Duration::from_millis(200)),
        ..settings()
    })
    .await;
    let mut deaf = Client::connect(address, Version::V5, "deaf", |_| {}).await;
    // At QoS 0 nothing but the socket holds deliveries back.
    deaf.subscribe_at("live", QoS::AtMostOnce).await;
    let mut publisher = Client::connect(address, Version::V5, "p", |_| {}).await;
    let payload = vec![0; 500_000];
    // More than the sockets between hold, none of it read.
    for _ in 0..40 {
        publisher.publish("live", &payload).await;
        assert_eq!(publisher.puback().await, ReasonCode::Success);
    }
    let counters = server.counters();
    // Publishing goes on while the deaf client's one write runs into its timeout.
    while counters
        .write_timeouts
        .load(std::sync::atomic::Ordering::Relaxed)
        == 0
    {
        publisher.publish("live", &payload).await;
        assert_eq!(publisher.puback().await, ReasonCode::Success);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_tells_every_client_and_ends() {
    let (server, address) = start(settings()).await;
    let mut clients = Vec::new();
    for id in ["a", "b", "c"] {
        clients.push(Client::connect(address, Version::V5, id, |_| {}).await);
    }
    server.stop().await;
    for mut client in clients {
        assert_eq!(client.disconnected().await, ReasonCode::ServerShuttingDown);
    }
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_does_a_job_over_the_wire() {
    let (server, address) = start(settings()).await;
    let mut worker = Client::connect(address, Version::V5, "w", |_| {}).await;
    assert_eq!(
        worker.subscribe("$saguin/queue/jobs").await,
        ReasonCode::GrantedQos1
    );
    let mut publisher = Client::connect(address, Version::V311, "p", |_| {}).await;
    publisher.publish("jobs/1", b"one").await;
    assert_eq!(publisher.puback().await, ReasonCode::Success);
    let job = worker.message().await;
    assert_eq!(job.payload, "one");
    let answer = Packet::Publish(Publish {
        qos: QoS::AtLeastOnce,
        packet_id: 1,
        topic: job.properties.response_topic.unwrap(),
        payload: Bytes::from_static(b"ack"),
        properties: PublishProperties {
            correlation_data: job.properties.correlation_data,
            ..PublishProperties::default()
        },
        ..Publish::default()
    });
    worker.send(answer).await;
    assert_eq!(worker.puback().await, ReasonCode::Success);
    publisher.publish("jobs/2", b"two").await;
    assert_eq!(worker.message().await.payload, "two");
    server.stop().await;
}
