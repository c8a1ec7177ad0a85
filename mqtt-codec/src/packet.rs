//! The packets, without their wire form.
//!
//! Both versions share them. What MQTT 3.1.1 has no place for is at its default when such a packet
//! was decoded.

use bytes::Bytes;

use crate::reason::ReasonCode;
use crate::text::Text;
use crate::user_properties::UserProperties;

/// The largest Remaining Length there is, bytes.
pub const MAX_REMAINING_LENGTH: usize = 268_435_455;

/// The largest Subscription Identifier there is.
pub const MAX_SUBSCRIPTION_IDENTIFIER: u32 = 268_435_455;

/// A protocol version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// MQTT 3.1.1, protocol level 4.
    V311,
    /// MQTT 5, protocol level 5.
    V5,
}

/// Which side of a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that connected.
    Client,
    /// The side that was connected to.
    Server,
}

/// How hard delivery is tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum QoS {
    /// At most once.
    #[default]
    AtMostOnce = 0,
    /// At least once.
    AtLeastOnce = 1,
    /// Exactly once.
    ExactlyOnce = 2,
}

impl QoS {
    /// The QoS of a number; 3 and above are none.
    #[must_use]
    pub fn from_u8(level: u8) -> Option<Self> {
        Some(match level {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            2 => QoS::ExactlyOnce,
            _ => return None,
        })
    }

    /// The number on the wire.
    #[must_use]
    pub fn level(self) -> u8 {
        self as u8
    }
}

/// What kind of packet; the number is the upper half of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum PacketType {
    Connect = 1,
    ConnAck = 2,
    Publish = 3,
    PubAck = 4,
    PubRec = 5,
    PubRel = 6,
    PubComp = 7,
    Subscribe = 8,
    SubAck = 9,
    Unsubscribe = 10,
    UnsubAck = 11,
    PingReq = 12,
    PingResp = 13,
    Disconnect = 14,
    Auth = 15,
}

impl PacketType {
    /// The kind of a number; 0 is reserved.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            1 => PacketType::Connect,
            2 => PacketType::ConnAck,
            3 => PacketType::Publish,
            4 => PacketType::PubAck,
            5 => PacketType::PubRec,
            6 => PacketType::PubRel,
            7 => PacketType::PubComp,
            8 => PacketType::Subscribe,
            9 => PacketType::SubAck,
            10 => PacketType::Unsubscribe,
            11 => PacketType::UnsubAck,
            12 => PacketType::PingReq,
            13 => PacketType::PingResp,
            14 => PacketType::Disconnect,
            15 => PacketType::Auth,
            _ => return None,
        })
    }

    /// The name the standard writes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PacketType::Connect => "CONNECT",
            PacketType::ConnAck => "CONNACK",
            PacketType::Publish => "PUBLISH",
            PacketType::PubAck => "PUBACK",
            PacketType::PubRec => "PUBREC",
            PacketType::PubRel => "PUBREL",
            PacketType::PubComp => "PUBCOMP",
            PacketType::Subscribe => "SUBSCRIBE",
            PacketType::SubAck => "SUBACK",
            PacketType::Unsubscribe => "UNSUBSCRIBE",
            PacketType::UnsubAck => "UNSUBACK",
            PacketType::PingReq => "PINGREQ",
            PacketType::PingResp => "PINGRESP",
            PacketType::Disconnect => "DISCONNECT",
            PacketType::Auth => "AUTH",
        }
    }

    /// Whether a side may send this kind at all, given the version.
    #[must_use]
    pub fn may_come_from(self, sender: Role, version: Version) -> bool {
        match self {
            PacketType::Connect
            | PacketType::Subscribe
            | PacketType::Unsubscribe
            | PacketType::PingReq => sender == Role::Client,
            PacketType::ConnAck
            | PacketType::SubAck
            | PacketType::UnsubAck
            | PacketType::PingResp => sender == Role::Server,
            PacketType::Publish
            | PacketType::PubAck
            | PacketType::PubRec
            | PacketType::PubRel
            | PacketType::PubComp => true,
            PacketType::Disconnect => sender == Role::Client || version == Version::V5,
            PacketType::Auth => version == Version::V5,
        }
    }
}

/// Any packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Opens a connection. It says which version is spoken.
    Connect(Box<Connect>),
    /// The answer to a CONNECT.
    ConnAck(Box<ConnAck>),
    /// A message.
    Publish(Publish),
    /// The answer to a QoS 1 PUBLISH.
    PubAck(Ack),
    /// The first answer to a QoS 2 PUBLISH.
    PubRec(Ack),
    /// The answer to a PUBREC.
    PubRel(Ack),
    /// The answer to a PUBREL.
    PubComp(Ack),
    /// Asks for messages.
    Subscribe(Subscribe),
    /// The answer to a SUBSCRIBE.
    SubAck(SubAck),
    /// Asks for no more of them.
    Unsubscribe(Unsubscribe),
    /// The answer to an UNSUBSCRIBE.
    UnsubAck(UnsubAck),
    /// Asks whether the other side is there.
    PingReq,
    /// The answer to a PINGREQ.
    PingResp,
    /// The last packet of a side.
    Disconnect(Disconnect),
    /// A step of an extended authentication; MQTT 5 only.
    Auth(Auth),
}

impl Packet {
    /// What kind it is.
    #[must_use]
    pub fn packet_type(&self) -> PacketType {
        match self {
            Packet::Connect(_) => PacketType::Connect,
            Packet::ConnAck(_) => PacketType::ConnAck,
            Packet::Publish(_) => PacketType::Publish,
            Packet::PubAck(_) => PacketType::PubAck,
            Packet::PubRec(_) => PacketType::PubRec,
            Packet::PubRel(_) => PacketType::PubRel,
            Packet::PubComp(_) => PacketType::PubComp,
            Packet::Subscribe(_) => PacketType::Subscribe,
            Packet::SubAck(_) => PacketType::SubAck,
            Packet::Unsubscribe(_) => PacketType::Unsubscribe,
            Packet::UnsubAck(_) => PacketType::UnsubAck,
            Packet::PingReq => PacketType::PingReq,
            Packet::PingResp => PacketType::PingResp,
            Packet::Disconnect(_) => PacketType::Disconnect,
            Packet::Auth(_) => PacketType::Auth,
        }
    }

    /// Takes Reason String and User Properties out of an answer: for a client that set Request
    /// Problem Information to 0 (MQTT-3.1.2-29), or where they would take the packet over its
    /// Maximum Packet Size. CONNACK, DISCONNECT and PUBLISH may carry them whatever was requested;
    /// they lose them here too, except for a PUBLISH.
    pub fn remove_problem_information(&mut self) {
        let (reason_string, user_properties) = match self {
            Packet::ConnAck(connack) => (
                &mut connack.properties.reason_string,
                &mut connack.properties.user_properties,
            ),
            Packet::PubAck(ack)
            | Packet::PubRec(ack)
            | Packet::PubRel(ack)
            | Packet::PubComp(ack) => (&mut ack.reason_string, &mut ack.user_properties),
            Packet::SubAck(ack) => (&mut ack.reason_string, &mut ack.user_properties),
            Packet::UnsubAck(ack) => (&mut ack.reason_string, &mut ack.user_properties),
            Packet::Disconnect(last) => (&mut last.reason_string, &mut last.user_properties),
            Packet::Auth(auth) => (&mut auth.reason_string, &mut auth.user_properties),
            _ => return,
        };
        *reason_string = None;
        *user_properties = UserProperties::new();
    }
}

/// Opens a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The version the client speaks.
    pub version: Version,
    /// Client identifier; empty where the server is to assign one.
    pub client_id: Text,
    /// Clean Start, or 3.1.1's Clean Session.
    pub clean_start: bool,
    /// Keep Alive, seconds; 0 is none.
    pub keep_alive: u16,
    /// Session Expiry Interval, seconds; 0 where the client states none. `u32::MAX` is for ever.
    pub session_expiry: u32,
    /// Receive Maximum, at least 1; 65,535 where the client states none.
    pub receive_maximum: u16,
    /// Maximum Packet Size, bytes, at least 1; `None` where the client states none.
    pub maximum_packet_size: Option<u32>,
    /// Topic Alias Maximum; 0 where the client states none.
    pub topic_alias_maximum: u16,
    /// Request Response Information; false where the client states none.
    pub request_response_information: bool,
    /// Request Problem Information; true where the client states none.
    pub request_problem_information: bool,
    /// Authentication Method.
    pub authentication_method: Option<Text>,
    /// Authentication Data; only ever beside a method.
    pub authentication_data: Option<Bytes>,
    /// The CONNECT's own User Properties.
    pub user_properties: UserProperties,
    /// What is published when the connection ends without a farewell.
    pub will: Option<Will>,
    /// User Name.
    pub user_name: Option<Text>,
    /// Password, at most 65,535 bytes. MQTT 5 allows one without a User Name.
    pub password: Option<Bytes>,
}

impl Connect {
    /// A CONNECT that states nothing but a client identifier and Clean Start.
    #[must_use]
    pub fn new(version: Version, client_id: Text) -> Self {
        Connect {
            version,
            client_id,
            clean_start: true,
            keep_alive: 0,
            session_expiry: 0,
            receive_maximum: u16::MAX,
            maximum_packet_size: None,
            topic_alias_maximum: 0,
            request_response_information: false,
            request_problem_information: true,
            authentication_method: None,
            authentication_data: None,
            user_properties: UserProperties::new(),
            will: None,
            user_name: None,
            password: None,
        }
    }
}

/// The Will of a CONNECT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Will {
    /// The topic: not empty, no wildcard.
    pub topic: Text,
    /// The payload, at most 65,535 bytes.
    pub payload: Bytes,
    /// The QoS it is published at.
    pub qos: QoS,
    /// Whether it is published with RETAIN.
    pub retain: bool,
    /// Will Delay Interval, seconds.
    pub delay_seconds: u32,
    /// What it is published with. A Topic Alias and Subscription Identifiers, which a
    /// Will has not, are never written.
    pub properties: PublishProperties,
}

/// The answer to a CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnAck {
    /// Whether the client's earlier session goes on; never beside a refusal.
    pub session_present: bool,
    /// Success or a refusal. To MQTT 3.1.1 it goes as [`ReasonCode::return_code`] says.
    pub reason: ReasonCode,
    /// What the server states; nothing to MQTT 3.1.1.
    pub properties: ConnAckProperties,
}

/// What a CONNACK of MQTT 5 states. `None` leaves the property out, which means what the standard
/// says it means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ConnAckProperties {
    /// Seconds, where it is not what was asked for.
    pub session_expiry: Option<u32>,
    /// At least 1.
    pub receive_maximum: Option<u16>,
    /// 0 or 1; QoS 2 is said by leaving it out.
    pub maximum_qos: Option<QoS>,
    pub retain_available: Option<bool>,
    /// Bytes of a whole packet, at least 1.
    pub maximum_packet_size: Option<u32>,
    pub assigned_client_id: Option<Text>,
    pub topic_alias_maximum: Option<u16>,
    pub reason_string: Option<Text>,
    pub wildcard_subscription_available: Option<bool>,
    pub subscription_identifiers_available: Option<bool>,
    pub shared_subscription_available: Option<bool>,
    /// Seconds, where it is not what was asked for.
    pub server_keep_alive: Option<u16>,
    pub response_information: Option<Text>,
    pub server_reference: Option<Text>,
    pub authentication_method: Option<Text>,
    /// Only ever beside a method.
    pub authentication_data: Option<Bytes>,
    pub user_properties: UserProperties,
}

/// A message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    /// The DUP flag; never at QoS 0.
    pub dup: bool,
    /// The QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// The topic, without a wildcard. Empty only in MQTT 5 and only beside a Topic Alias.
    pub topic: Text,
    /// Packet identifier; 0 at QoS 0 and never otherwise.
    pub packet_id: u16,
    /// Empty in MQTT 3.1.1.
    pub properties: PublishProperties,
    /// The payload.
    pub payload: Bytes,
}

/// What a PUBLISH or a Will carries besides topic and payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishProperties {
    /// Payload Format Indicator, where one was sent: whether the payload claims to be UTF-8. The
    /// claim is not checked here.
    pub payload_is_utf8: Option<bool>,
    /// Message Expiry Interval, seconds; 0 is legal.
    pub expiry_seconds: Option<u32>,
    /// Topic Alias, at least 1.
    pub topic_alias: Option<u16>,
    /// Response Topic: not empty, no wildcard.
    pub response_topic: Option<Text>,
    /// Correlation Data, at most 65,535 bytes.
    pub correlation_data: Option<Bytes>,
    /// Subscription Identifiers, each 1 to 268,435,455; only from a server.
    pub subscription_identifiers: Vec<u32>,
    /// Content Type.
    pub content_type: Option<Text>,
    /// User Properties.
    pub user_properties: UserProperties,
}

/// PUBACK, PUBREC, PUBREL and PUBCOMP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Packet identifier, at least 1.
    pub packet_id: u16,
    /// Always success in MQTT 3.1.1, which cannot say anything else.
    pub reason: ReasonCode,
    /// A sentence for a person.
    pub reason_string: Option<Text>,
    /// User Properties.
    pub user_properties: UserProperties,
}

impl Ack {
    /// A bare answer.
    #[must_use]
    pub fn new(packet_id: u16, reason: ReasonCode) -> Self {
        Ack {
            packet_id,
            reason,
            reason_string: None,
            user_properties: UserProperties::new(),
        }
    }
}

/// Asks for messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscribe {
    /// Packet identifier, at least 1.
    pub packet_id: u16,
    /// Subscription Identifier, 1 to 268,435,455.
    pub subscription_identifier: Option<u32>,
    /// User Properties.
    pub user_properties: UserProperties,
    /// The filters in order, at least one.
    pub filters: Vec<Subscription>,
}

/// One filter of a SUBSCRIBE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// The filter as sent. It is text, and may yet be no topic filter: MQTT 5 answers that filter
    /// by filter in the SUBACK.
    pub filter: Text,
    /// The highest QoS wanted.
    pub qos: QoS,
    /// No Local; never on a shared subscription (MQTT-3.8.3-4).
    pub no_local: bool,
    /// Retain As Published.
    pub retain_as_published: bool,
    /// Retain Handling.
    pub retain_handling: RetainHandling,
}

/// When a subscription is sent retained messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RetainHandling {
    /// With every SUBSCRIBE.
    #[default]
    Always = 0,
    /// Only where the subscription is a new one.
    NewSubscription = 1,
    /// Never.
    Never = 2,
}

/// The answer to a SUBSCRIBE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubAck {
    /// Packet identifier, at least 1.
    pub packet_id: u16,
    /// A sentence for a person.
    pub reason_string: Option<Text>,
    /// User Properties.
    pub user_properties: UserProperties,
    /// One per filter. To MQTT 3.1.1 every refusal goes as 0x80 and comes back as
    /// [`ReasonCode::Unspecified`].
    pub reasons: Vec<ReasonCode>,
}

impl SubAck {
    /// A bare answer.
    #[must_use]
    pub fn new(packet_id: u16, reasons: Vec<ReasonCode>) -> Self {
        SubAck {
            packet_id,
            reason_string: None,
            user_properties: UserProperties::new(),
            reasons,
        }
    }
}

/// Asks for no more messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsubscribe {
    /// Packet identifier, at least 1.
    pub packet_id: u16,
    /// User Properties.
    pub user_properties: UserProperties,
    /// The filters in order, at least one, as sent.
    pub filters: Vec<Text>,
}

/// The answer to an UNSUBSCRIBE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsubAck {
    /// Packet identifier, at least 1.
    pub packet_id: u16,
    /// A sentence for a person.
    pub reason_string: Option<Text>,
    /// User Properties.
    pub user_properties: UserProperties,
    /// One per filter. MQTT 3.1.1 has none: they are not written, and none come back.
    pub reasons: Vec<ReasonCode>,
}

impl UnsubAck {
    /// A bare answer.
    #[must_use]
    pub fn new(packet_id: u16, reasons: Vec<ReasonCode>) -> Self {
        UnsubAck {
            packet_id,
            reason_string: None,
            user_properties: UserProperties::new(),
            reasons,
        }
    }
}

/// The last packet of a side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// Always success in MQTT 3.1.1, which cannot say anything else.
    pub reason: ReasonCode,
    /// Session Expiry Interval, seconds, where it is changed; only from a client.
    pub session_expiry: Option<u32>,
    /// A sentence for a person.
    pub reason_string: Option<Text>,
    /// Another server to go to; only from a server.
    pub server_reference: Option<Text>,
    /// User Properties.
    pub user_properties: UserProperties,
}

impl Disconnect {
    /// A bare farewell.
    #[must_use]
    pub fn new(reason: ReasonCode) -> Self {
        Disconnect {
            reason,
            session_expiry: None,
            reason_string: None,
            server_reference: None,
            user_properties: UserProperties::new(),
        }
    }
}

/// A step of an extended authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Success, continue or re-authenticate.
    pub reason: ReasonCode,
    /// Authentication Method. Only the two-byte AUTH has none.
    pub authentication_method: Option<Text>,
    /// Authentication Data; only ever beside a method.
    pub authentication_data: Option<Bytes>,
    /// A sentence for a person.
    pub reason_string: Option<Text>,
    /// User Properties.
    pub user_properties: UserProperties,
}
