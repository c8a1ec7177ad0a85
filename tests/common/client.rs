//! A client that speaks in packets, and in bytes where no packet will do.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use bytes::{Bytes, BytesMut};
use saguin_mqtt_codec::{
    Ack, ConnAck, Connect, Disconnect, Limits, Packet, Publish, PublishProperties, QoS, ReasonCode,
    Role, SubAck, Subscribe, Subscription, Text, UnsubAck, Unsubscribe, UserPropertiesBuilder,
    Version, decode, encode,
};

use super::{Broker, PATIENCE};

/// Text that is known to be good.
pub fn text(text: &str) -> Text {
    Text::try_from(text).expect("text")
}

/// A User Property of a delivery, which has to be there.
pub fn property<'a>(publish: &'a Publish, key: &str) -> &'a str {
    let found = publish.properties.user_properties.get(key);
    found.unwrap_or_else(|| panic!("no {key} on {publish:?}"))
}

/// The MQTT 3.1.1 return code a refused CONNECT came with.
pub fn return_code(reason: ReasonCode) -> u8 {
    reason.return_code().expect("a return code").code()
}

/// A CONNECT in the making.
pub struct Hello(pub Connect);

/// An MQTT 5 CONNECT with Clean Start and nothing more.
pub fn hello(client_id: &str) -> Hello {
    Hello(Connect::new(Version::V5, text(client_id)))
}

/// An MQTT 3.1.1 CONNECT with Clean Session.
pub fn hello_v311(client_id: &str) -> Hello {
    Hello(Connect::new(Version::V311, text(client_id)))
}

impl Hello {
    /// Goes on with its session, and keeps it for an hour.
    pub fn durable(mut self) -> Self {
        self.0.clean_start = false;
        if self.0.version == Version::V5 {
            self.0.session_expiry = 3600;
        }
        self
    }

    /// Anything else.
    pub fn set(mut self, change: impl FnOnce(&mut Connect)) -> Self {
        change(&mut self.0);
        self
    }

    /// Connects, and has to be let in.
    pub fn connect(self, broker: &Broker) -> Client {
        let (client, connack) = self.answer(broker);
        assert_eq!(connack.reason, ReasonCode::Success, "{connack:?}");
        client
    }

    /// Connects, and returns what the broker said.
    pub fn answer(self, broker: &Broker) -> (Client, ConnAck) {
        let mut client = Client::open(broker, self.0.version);
        client.send(&Packet::Connect(Box::new(self.0)));
        match client.read() {
            Answer::Packet(Packet::ConnAck(connack)) => {
                client.session_present = connack.session_present;
                (client, *connack)
            }
            other => panic!("no CONNACK but {other:?}"),
        }
    }

    /// Connects and has to be refused: the code, after which the connection is closed.
    pub fn refused(self, broker: &Broker) -> ReasonCode {
        let (mut client, connack) = self.answer(broker);
        assert_ne!(connack.reason, ReasonCode::Success);
        client.expect_closed();
        connack.reason
    }
}

/// What came from the broker.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and never kept")]
pub enum Answer {
    /// A packet.
    Packet(Packet),
    /// The end of the connection.
    Closed,
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    version: Version,
    arrived: BytesMut,
    /// What came while something else was waited for.
    waiting: VecDeque<Packet>,
    last_packet_id: u16,
    /// Session Present of its CONNACK.
    pub session_present: bool,
}

impl Client {
    /// A connection on which nothing has been said.
    pub fn open(broker: &Broker, version: Version) -> Self {
        let stream = TcpStream::connect(broker.address()).expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        Client {
            stream,
            version,
            arrived: BytesMut::new(),
            waiting: VecDeque::new(),
            last_packet_id: 0,
            session_present: false,
        }
    }

    /// Sends bytes as they are. A broker that has closed already is seen by whoever reads.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
                ) => {}
            other => other.expect("bytes sent"),
        }
    }

    /// Sends a packet.
    pub fn send(&mut self, packet: &Packet) {
        let mut bytes = BytesMut::new();
        encode(packet, self.version, &mut bytes).expect("a packet of this version");
        self.send_bytes(&bytes);
    }

    /// The next thing from the socket, whatever is waiting.
    pub fn read(&mut self) -> Answer {
        let limits = Limits::new(usize::MAX);
        loop {
            let decoded = decode(&mut self.arrived, Some(self.version), Role::Server, &limits);
            if let Some(packet) = decoded.expect("a packet of the standard") {
                return Answer::Packet(packet);
            }
            let mut chunk = [0; 16 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => {
                    assert!(self.arrived.is_empty(), "closed inside a packet");
                    return Answer::Closed;
                }
                Ok(read) => self.arrived.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Answer::Closed,
                Err(error) => panic!("nothing came: {error}"),
            }
        }
    }

    /// Waits for the packet `choose` takes; others wait for later.
    pub fn wait_for<T>(&mut self, what: &str, mut choose: impl FnMut(&Packet) -> Option<T>) -> T {
        if let Some(at) = self.waiting.iter().position(|p| choose(p).is_some()) {
            let packet = self.waiting.remove(at).expect("it is there");
            return choose(&packet).expect("chosen before");
        }
        loop {
            match self.read() {
                Answer::Packet(packet) => match choose(&packet) {
                    Some(chosen) => return chosen,
                    None => self.waiting.push_back(packet),
                },
                Answer::Closed => panic!("closed instead of {what}; waiting: {:?}", self.waiting),
            }
        }
    }

    fn packet_id(&mut self) -> u16 {
        self.last_packet_id = self.last_packet_id % u16::MAX + 1;
        self.last_packet_id
    }

    /// Publishes at QoS 1 and waits for the PUBACK.
    pub fn publish(&mut self, topic: &str, payload: impl Into<Bytes>) -> ReasonCode {
        self.publish_with(topic, payload, PublishProperties::default())
    }

    /// Publishes at QoS 1 with properties and waits for the PUBACK.
    pub fn publish_with(
        &mut self,
        topic: &str,
        payload: impl Into<Bytes>,
        properties: PublishProperties,
    ) -> ReasonCode {
        let id = self.send_publish(Publish {
            qos: QoS::AtLeastOnce,
            topic: text(topic),
            payload: payload.into(),
            properties,
            ..Publish::default()
        });
        self.puback(id).reason
    }

    /// Publishes with RETAIN at QoS 1 and waits for the PUBACK.
    pub fn publish_retained(&mut self, topic: &str, payload: &str) -> ReasonCode {
        let id = self.send_publish(Publish {
            qos: QoS::AtLeastOnce,
            retain: true,
            topic: text(topic),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            ..Publish::default()
        });
        self.puback(id).reason
    }

    /// Sends a PUBLISH under a fresh packet identifier, which is returned; none at QoS 0.
    pub fn send_publish(&mut self, mut publish: Publish) -> u16 {
        if publish.qos != QoS::AtMostOnce {
            publish.packet_id = self.packet_id();
        }
        let id = publish.packet_id;
        self.send(&Packet::Publish(publish));
        id
    }

    /// Sends a QoS 0 PUBLISH.
    pub fn tell(&mut self, topic: &str, payload: &str) {
        self.send_publish(Publish {
            topic: text(topic),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            ..Publish::default()
        });
    }

    /// Waits for the PUBACK of a packet identifier.
    pub fn puback(&mut self, id: u16) -> Ack {
        self.wait_for("a PUBACK", |packet| match packet {
            Packet::PubAck(ack) if ack.packet_id == id => Some(ack.clone()),
            _ => None,
        })
    }

    /// Sends a QoS 2 PUBLISH and waits for its PUBREC.
    pub fn hold(&mut self, topic: &str, payload: &str) -> Ack {
        let id = self.send_publish(Publish {
            qos: QoS::ExactlyOnce,
            topic: text(topic),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            ..Publish::default()
        });
        self.pubrec(id)
    }

    /// Sends a QoS 2 PUBLISH again, under an identifier of before, and waits for its PUBREC.
    pub fn hold_again(&mut self, id: u16, topic: &str, payload: &str) -> Ack {
        self.send(&Packet::Publish(Publish {
            qos: QoS::ExactlyOnce,
            dup: true,
            packet_id: id,
            topic: text(topic),
            payload: Bytes::copy_from_slice(payload.as_bytes()),
            ..Publish::default()
        }));
        self.pubrec(id)
    }

    /// Waits for the PUBREC of a packet identifier.
    pub fn pubrec(&mut self, id: u16) -> Ack {
        self.wait_for("a PUBREC", |packet| match packet {
            Packet::PubRec(ack) if ack.packet_id == id => Some(ack.clone()),
            _ => None,
        })
    }

    /// Sends a PUBREL and waits for its PUBCOMP.
    pub fn release(&mut self, id: u16) -> ReasonCode {
        self.send(&Packet::PubRel(Ack::new(id, ReasonCode::Success)));
        self.wait_for("a PUBCOMP", |packet| match packet {
            Packet::PubComp(ack) if ack.packet_id == id => Some(ack.reason),
            _ => None,
        })
    }

    /// Publishes at QoS 2, from PUBLISH to PUBCOMP.
    pub fn publish_once(&mut self, topic: &str, payload: &str) {
        let received = self.hold(topic, payload);
        assert_eq!(received.reason, ReasonCode::Success);
        assert_eq!(self.release(received.packet_id), ReasonCode::Success);
    }

    /// Sends the PUBREC of a delivery.
    pub fn receive(&mut self, id: u16) {
        self.send(&Packet::PubRec(Ack::new(id, ReasonCode::Success)));
    }

    /// Waits for a PUBREL and returns its identifier.
    pub fn pubrel(&mut self) -> u16 {
        self.wait_for("a PUBREL", |packet| match packet {
            Packet::PubRel(ack) => Some(ack.packet_id),
            _ => None,
        })
    }

    /// Sends the PUBCOMP of a delivery.
    pub fn complete(&mut self, id: u16) {
        self.send(&Packet::PubComp(Ack::new(id, ReasonCode::Success)));
    }

    /// Subscribes to one filter and waits for the answer.
    pub fn subscribe(&mut self, filter: &str, qos: QoS) -> ReasonCode {
        let subscription = Subscription {
            filter: text(filter),
            qos,
            ..Subscription::default()
        };
        self.subscribe_all(vec![subscription]).reasons[0]
    }

    /// Subscribes to one filter at QoS 1, which has to be granted so.
    pub fn follow(&mut self, filter: &str) {
        let granted = self.subscribe(filter, QoS::AtLeastOnce);
        assert_eq!(granted, ReasonCode::GrantedQos1, "{filter}");
    }

    /// Subscribes to filters and waits for the answer.
    pub fn subscribe_all(&mut self, filters: Vec<Subscription>) -> SubAck {
        self.send_subscribe(Subscribe {
            filters,
            ..Subscribe::default()
        })
    }

    /// Sends a SUBSCRIBE and waits for the answer.
    pub fn send_subscribe(&mut self, mut subscribe: Subscribe) -> SubAck {
        let id = self.packet_id();
        subscribe.packet_id = id;
        self.send(&Packet::Subscribe(subscribe));
        self.wait_for("a SUBACK", |packet| match packet {
            Packet::SubAck(ack) if ack.packet_id == id => Some(ack.clone()),
            _ => None,
        })
    }

    /// Unsubscribes from one filter, with one User Property where given.
    pub fn unsubscribe(&mut self, filter: &str, pair: Option<(&str, &str)>) -> UnsubAck {
        let id = self.packet_id();
        let mut properties = UserPropertiesBuilder::new();
        if let Some((key, value)) = pair {
            properties.push(key, value).expect("a pair");
        }
        self.send(&Packet::Unsubscribe(Unsubscribe {
            packet_id: id,
            user_properties: properties.build(),
            filters: vec![text(filter)],
        }));
        self.wait_for("an UNSUBACK", |packet| match packet {
            Packet::UnsubAck(ack) if ack.packet_id == id => Some(ack.clone()),
            _ => None,
        })
    }

    /// The next delivery.
    pub fn delivery(&mut self) -> Publish {
        self.wait_for("a delivery", |packet| match packet {
            Packet::Publish(publish) => Some(publish.clone()),
            _ => None,
        })
    }

    /// The next delivery, acknowledged.
    pub fn take(&mut self) -> Publish {
        let publish = self.delivery();
        self.acknowledge(&publish);
        publish
    }

    /// Acknowledges a delivery, if it is one to be acknowledged.
    pub fn acknowledge(&mut self, publish: &Publish) {
        let id = publish.packet_id;
        match publish.qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => self.send(&Packet::PubAck(Ack::new(id, ReasonCode::Success))),
            QoS::ExactlyOnce => {
                self.receive(id);
                assert_eq!(self.pubrel(), id);
                self.complete(id);
            }
        }
    }

    /// Answers a job on its Response Topic with its Correlation Data.
    pub fn answer(&mut self, job: &Publish, word: &'static str) -> ReasonCode {
        let response_topic = job.properties.response_topic.clone();
        let properties = PublishProperties {
            correlation_data: job.properties.correlation_data.clone(),
            ..PublishProperties::default()
        };
        let topic = response_topic.expect("a Response Topic");
        self.publish_with(topic.as_str(), word, properties)
    }

    /// A PINGREQ and its PINGRESP: the broker has read everything sent before.
    pub fn ping(&mut self) {
        self.send(&Packet::PingReq);
        self.wait_for("a PINGRESP", |packet| {
            matches!(packet, Packet::PingResp).then_some(())
        });
    }

    /// Pings, and no delivery may have come by then.
    pub fn expect_nothing(&mut self) {
        self.ping();
        assert!(self.waiting.is_empty(), "came: {:?}", self.waiting);
    }

    /// The connection has to end with nothing more said.
    pub fn expect_closed(&mut self) {
        assert!(self.waiting.is_empty(), "came: {:?}", self.waiting);
        match self.read() {
            Answer::Closed => {}
            Answer::Packet(packet) => panic!("{packet:?} instead of the end"),
        }
    }

    /// The connection has to end with this DISCONNECT in MQTT 5, and with nothing said in 3.1.1.
    /// Deliveries before it do not count.
    pub fn expect_disconnect(&mut self, reason: ReasonCode) {
        loop {
            match self.read() {
                Answer::Packet(Packet::Disconnect(last)) => {
                    assert_eq!(last.reason, reason, "{:?}", last.reason_string);
                    assert!(last.reason_string.is_some(), "a refusal says why");
                    break;
                }
                Answer::Packet(Packet::Publish(_)) => {}
                Answer::Closed if self.version == Version::V311 => return,
                other => panic!("{other:?} instead of {reason:?}"),
            }
        }
        match self.read() {
            Answer::Closed => {}
            Answer::Packet(packet) => panic!("{packet:?} after the DISCONNECT"),
        }
    }

    /// Says goodbye and waits for the end.
    pub fn disconnect(mut self) {
        self.send(&Packet::Disconnect(Disconnect::new(ReasonCode::Success)));
        while let Answer::Packet(_) = self.read() {}
    }

    /// Says goodbye with a session expiry, seconds.
    pub fn disconnect_for(mut self, session_expiry: u32) {
        self.send(&Packet::Disconnect(Disconnect {
            session_expiry: Some(session_expiry),
            ..Disconnect::new(ReasonCode::Success)
        }));
        while let Answer::Packet(_) = self.read() {}
    }

    /// Leaves without a word, and waits until the broker has let go.
    pub fn drop_connection(mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        while let Answer::Packet(_) = self.read() {}
    }
}
