//! Why bytes are not a packet, and what may still be written about it.

use std::fmt;

use crate::packet::{PacketType, Role, Version};
use crate::reason::{ConnectReturnCode, ReasonCode};

/// Bytes that are not a packet this side can take. The connection is to be closed: where the next
/// packet would begin is not known, or not to be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// What MQTT 5 calls it.
    pub reason: ReasonCode,
    /// What is wrong.
    pub fault: Fault,
    /// Which packet it was; `None` where the first byte names none.
    pub packet: Option<PacketType>,
    /// The version spoken, where it is known. A CONNECT whose protocol level is not served has
    /// none, and can still be answered; [`reply`](Self::reply) knows.
    pub version: Option<Version>,
    sender: Role,
}

/// What a server may write about a [`DecodeError`] before it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Nothing: the version is not known, or it is MQTT 3.1.1, which has no word for it
    /// (MQTT-3.1.4-1).
    Nothing,
    /// A CONNACK in the form of MQTT 3.1.1.
    ConnAckV311(ConnectReturnCode),
    /// A CONNACK in the form of MQTT 5, with the reason of the error.
    ConnAckV5,
    /// A DISCONNECT of MQTT 5, with the reason of the error.
    DisconnectV5,
}

impl DecodeError {
    pub(crate) fn new(
        fault: Fault,
        packet: Option<PacketType>,
        version: Option<Version>,
        sender: Role,
    ) -> Self {
        DecodeError {
            reason: fault.reason(),
            fault,
            packet,
            version,
            sender,
        }
    }

    /// What may be written before the connection is closed.
    #[must_use]
    pub fn reply(&self) -> Reply {
        match (self.sender, self.packet, self.version) {
            // A client says goodbye in its own words; a broken CONNACK gets none.
            (Role::Server, Some(PacketType::ConnAck), _) => Reply::Nothing,
            // An identified CONNECT inside a connection is answered like any other packet.
            (Role::Client, Some(PacketType::Connect), version)
                if self.fault != Fault::SecondConnect =>
            {
                self.reply_to_connect(version)
            }
            (_, _, Some(Version::V5)) => Reply::DisconnectV5,
            _ => Reply::Nothing,
        }
    }

    fn reply_to_connect(&self, version: Option<Version>) -> Reply {
        match (&self.fault, version) {
            (Fault::UnsupportedLevel { found }, _) if *found < 4 => {
                Reply::ConnAckV311(ConnectReturnCode::UnacceptableProtocolVersion)
            }
            (Fault::UnsupportedLevel { .. }, _) | (_, Some(Version::V5)) => Reply::ConnAckV5,
            // The one CONNECT of MQTT 3.1.1 that is refused for what its Will asks, not for how it
            // is made.
            (Fault::WillTopic, Some(Version::V311)) => {
                Reply::ConnAckV311(ConnectReturnCode::NotAuthorized)
            }
            _ => Reply::Nothing,
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.packet.map_or("packet", PacketType::name);
        write!(f, "{name}: {}", self.fault)
    }
}

impl std::error::Error for DecodeError {}

/// One way of not being a packet. A `field` is named as in the standard.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Fault {
    // What cannot be parsed: 0x81.
    /// The first byte names no packet this version has.
    ReservedPacketType { found: u8 },
    /// The lower half of the first byte is not what it has to be (MQTT-2.1.3-1).
    FixedHeaderFlags { expected: u8, found: u8 },
    /// A PUBLISH with both QoS bits set (MQTT-3.3.1-4).
    PublishQos3,
    /// A Variable Byte Integer that goes on after its fourth byte.
    IntegerTooLong { field: &'static str },
    /// A Variable Byte Integer in more bytes than it needs (MQTT-1.5.5-1).
    IntegerNotMinimal { field: &'static str },
    /// The packet, or its properties, end inside this field.
    Truncated { field: &'static str },
    /// Bytes after the last field.
    TrailingBytes { count: usize },
    /// Text that is not UTF-8 (MQTT-1.5.4-1).
    NotUtf8 { field: &'static str, at: usize },
    /// Text with a U+0000 in it (MQTT-1.5.4-2).
    NulInText { field: &'static str, at: usize },
    /// A protocol name that is not MQTT's.
    ProtocolName,
    /// The reserved flag of a CONNECT (MQTT-3.1.2-3).
    ConnectReservedFlag,
    /// Will QoS 3 (MQTT-3.1.2-12).
    WillQos3,
    /// A Will QoS without a Will (MQTT-3.1.2-11).
    WillQosWithoutWill,
    /// Reserved flags of a CONNACK (MQTT-3.2.2-1).
    ConnAckFlags { found: u8 },
    /// A return code MQTT 3.1.1 reserves.
    ReturnCode { found: u8 },
    /// Reserved bits of the options of a filter (MQTT-3.8.3-5).
    SubscriptionReservedBits { found: u8 },
    /// A property identifier the standard does not have.
    UnknownProperty { found: u32 },
    /// A property this packet does not have.
    PropertyNotAllowed { name: &'static str },

    // What parses and breaks a rule: 0x82.
    /// A client's first packet was another one (MQTT-3.1.0-1).
    ConnectExpected,
    /// A client sent CONNECT again (MQTT-3.1.0-2).
    SecondConnect,
    /// A packet only the other side sends.
    WrongDirection,
    /// Packet identifier 0 (MQTT-2.2.1-3).
    PacketIdentifierZero,
    /// DUP at QoS 0 (MQTT-3.3.1-2).
    DupAtQos0,
    /// A property twice that may be there once.
    DuplicateProperty { name: &'static str },
    /// A property with a value it cannot have.
    PropertyValue { name: &'static str, found: u32 },
    /// A property only the other side sends in this packet.
    PropertyFromWrongSide { name: &'static str },
    /// A reason code this packet cannot carry from this side.
    ReasonCode { found: u8 },
    /// No filter, or no reason code, in a packet that has at least one.
    Empty { field: &'static str },
    /// A wildcard in a topic name (MQTT-3.3.2-2).
    TopicWildcard { field: &'static str },
    /// An empty topic name, without a Topic Alias to stand for it (MQTT-4.7.3-1).
    TopicEmpty { field: &'static str },
    /// A filter with QoS 3.
    SubscriptionQos3,
    /// A filter with Retain Handling 3.
    RetainHandling3,
    /// No Local on a shared subscription (MQTT-3.8.3-4).
    NoLocalOnSharedSubscription,
    /// Will Retain without a Will (MQTT-3.1.2-13).
    WillRetainWithoutWill,
    /// A password without a user name, which only MQTT 5 allows (MQTT-3.1.2-22).
    PasswordWithoutUserName,
    /// Authentication Data without an Authentication Method.
    AuthenticationDataWithoutMethod,
    /// An AUTH without an Authentication Method.
    AuthenticationMethodMissing,
    /// A refusal with Session Present (MQTT-3.2.2-6).
    SessionPresentWithRefusal,

    // What has a code of its own.
    /// 0x84: a protocol level that is not served.
    UnsupportedLevel { found: u8 },
    /// 0x90: a Will topic that is empty or has a wildcard, so that it could never be delivered.
    WillTopic,
    /// 0x94: Topic Alias 0 (MQTT-3.3.2-8).
    TopicAliasZero,
    /// 0x95: the declared size, fixed header included, is over the limit.
    PacketTooLarge { declared: usize, limit: usize },
    /// 0x97: more User Properties than the limit.
    TooManyUserProperties { limit: usize },
    /// 0x97: more filters than the limit.
    TooManyFilters { limit: usize },
}

impl Fault {
    /// What MQTT 5 calls it.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Fault::ReservedPacketType { .. }
            | Fault::FixedHeaderFlags { .. }
            | Fault::PublishQos3
            | Fault::IntegerTooLong { .. }
            | Fault::IntegerNotMinimal { .. }
            | Fault::Truncated { .. }
            | Fault::TrailingBytes { .. }
            | Fault::NotUtf8 { .. }
            | Fault::NulInText { .. }
            | Fault::ProtocolName
            | Fault::ConnectReservedFlag
            | Fault::WillQos3
            | Fault::WillQosWithoutWill
            | Fault::ConnAckFlags { .. }
            | Fault::ReturnCode { .. }
            | Fault::SubscriptionReservedBits { .. }
            | Fault::UnknownProperty { .. }
            | Fault::PropertyNotAllowed { .. } => ReasonCode::MalformedPacket,
            Fault::ConnectExpected
            | Fault::SecondConnect
            | Fault::WrongDirection
            | Fault::PacketIdentifierZero
            | Fault::DupAtQos0
            | Fault::DuplicateProperty { .. }
            | Fault::PropertyValue { .. }
            | Fault::PropertyFromWrongSide { .. }
            | Fault::ReasonCode { .. }
            | Fault::Empty { .. }
            | Fault::TopicWildcard { .. }
            | Fault::TopicEmpty { .. }
            | Fault::SubscriptionQos3
            | Fault::RetainHandling3
            | Fault::NoLocalOnSharedSubscription
            | Fault::WillRetainWithoutWill
            | Fault::PasswordWithoutUserName
            | Fault::AuthenticationDataWithoutMethod
            | Fault::AuthenticationMethodMissing
            | Fault::SessionPresentWithRefusal => ReasonCode::ProtocolError,
            Fault::UnsupportedLevel { .. } => ReasonCode::UnsupportedVersion,
            Fault::WillTopic => ReasonCode::TopicNameInvalid,
            Fault::TopicAliasZero => ReasonCode::TopicAliasInvalid,
            Fault::PacketTooLarge { .. } => ReasonCode::PacketTooLarge,
            Fault::TooManyUserProperties { .. } | Fault::TooManyFilters { .. } => {
                ReasonCode::QuotaExceeded
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::ReservedPacketType { found } => {
                write!(f, "packet type {found} is reserved in this version")
            }
            Fault::FixedHeaderFlags { expected, found } => write!(
                f,
                "the flags of the first byte have to be {expected:#06b} and are {found:#06b}"
            ),
            Fault::PublishQos3 => f.write_str("both QoS bits are set; QoS is 0, 1 or 2"),
            Fault::IntegerTooLong { field } => {
                write!(f, "{field} goes on after four bytes; it has at most four")
            }
            Fault::IntegerNotMinimal { field } => {
                write!(f, "{field} takes more bytes than it needs; send it in the fewest")
            }
            Fault::Truncated { field } => write!(f, "it ends inside {field}; send all of it"),
            Fault::TrailingBytes { count } => write!(
                f,
                "{count} bytes follow the last field; the length has to end with it"
            ),
            Fault::NotUtf8 { field, at } => {
                write!(f, "{field} is not UTF-8 from byte {at} on; send UTF-8")
            }
            Fault::NulInText { field, at } => {
                write!(f, "{field} has U+0000 at byte {at}; leave it out")
            }
            Fault::ProtocolName => f.write_str("the protocol name is not MQTT"),
            Fault::ConnectReservedFlag => f.write_str("the reserved flag is set; it has to be 0"),
            Fault::WillQos3 => f.write_str("Will QoS is 3; it is 0, 1 or 2"),
            Fault::WillQosWithoutWill => {
                f.write_str("Will QoS is set and there is no Will; it has to be 0")
            }
            Fault::ConnAckFlags { found } => write!(
                f,
                "the acknowledge flags are {found:#010b}; all but the last bit have to be 0"
            ),
            Fault::ReturnCode { found } => write!(f, "return code {found} is reserved"),
            Fault::SubscriptionReservedBits { found } => write!(
                f,
                "the options of a filter are {found:#010b}; the reserved bits have to be 0"
            ),
            Fault::UnknownProperty { found } => write!(f, "there is no property {found:#04x}"),
            Fault::PropertyNotAllowed { name } => {
                write!(f, "this packet has no property {name}; leave it out")
            }
            Fault::ConnectExpected => f.write_str("the first packet has to be CONNECT"),
            Fault::SecondConnect => f.write_str("a connection has one CONNECT, and had it"),
            Fault::WrongDirection => f.write_str("only the other side sends this packet"),
            Fault::PacketIdentifierZero => {
                f.write_str("the packet identifier is 0; it has to be 1 to 65535")
            }
            Fault::DupAtQos0 => f.write_str("DUP is set at QoS 0; it has to be 0"),
            Fault::DuplicateProperty { name } => {
                write!(f, "{name} is there more than once; send it once")
            }
            Fault::PropertyValue { name, found } => write!(f, "{name} cannot be {found}"),
            Fault::PropertyFromWrongSide { name } => {
                write!(f, "only the other side sends {name} in this packet")
            }
            Fault::ReasonCode { found } => {
                write!(f, "this packet cannot carry reason code {found:#04x}")
            }
            Fault::Empty { field } => write!(f, "it has no {field}; it needs at least one"),
            Fault::TopicWildcard { field } => {
                write!(f, "{field} has a wildcard; a topic name has none")
            }
            Fault::TopicEmpty { field } => {
                write!(f, "{field} is empty; a topic name has at least one character")
            }
            Fault::SubscriptionQos3 => {
                f.write_str("the QoS of a filter is 3; it is 0, 1 or 2")
            }
            Fault::RetainHandling3 => f.write_str("Retain Handling is 3; it is 0, 1 or 2"),
            Fault::NoLocalOnSharedSubscription => {
                f.write_str("No Local is set on a shared subscription; it has to be 0")
            }
            Fault::WillRetainWithoutWill => {
                f.write_str("Will Retain is set and there is no Will; it has to be 0")
            }
            Fault::PasswordWithoutUserName => {
                f.write_str("there is a password and no user name; send both or neither")
            }
            Fault::AuthenticationDataWithoutMethod => {
                f.write_str("there is Authentication Data and no Authentication Method")
            }
            Fault::AuthenticationMethodMissing => {
                f.write_str("there is no Authentication Method; it needs one")
            }
            Fault::SessionPresentWithRefusal => {
                f.write_str("a refusal has Session Present set; it has to be 0")
            }
            Fault::UnsupportedLevel { found } => write!(
                f,
                "protocol level {found} is not served; use 4 (MQTT 3.1.1) or 5 (MQTT 5)"
            ),
            Fault::WillTopic => f.write_str(
                "the Will topic is empty or has a wildcard; a topic name has characters and no wildcard",
            ),
            Fault::TopicAliasZero => {
                f.write_str("the Topic Alias is 0; it is at least 1")
            }
            Fault::PacketTooLarge { declared, limit } => write!(
                f,
                "it declares {declared} bytes in all and the bound is {limit}; send less"
            ),
            Fault::TooManyUserProperties { limit } => {
                write!(f, "it has more than {limit} User Properties; send fewer")
            }
            Fault::TooManyFilters { limit } => {
                write!(f, "it has more than {limit} filters; send them in several packets")
            }
        }
    }
}
