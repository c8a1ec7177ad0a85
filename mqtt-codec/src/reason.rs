//! Reason codes of MQTT 5 and CONNACK return codes of MQTT 3.1.1.

use std::fmt;

use crate::packet::{PacketType, Role};

macro_rules! reason_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// An MQTT 5 reason code. One number has one name, whatever packet it rides on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum ReasonCode {
            $($(#[$doc])* $name = $code,)*
        }

        impl ReasonCode {
            /// Every code there is, in ascending order.
            pub const ALL: &'static [ReasonCode] = &[$(ReasonCode::$name,)*];

            /// The code of a number, or `None` where MQTT 5 names none.
            #[must_use]
            pub fn from_u8(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(ReasonCode::$name),)*
                    _ => None,
                }
            }

            /// What the code says, in a few words.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(ReasonCode::$name => $text,)*
                }
            }
        }
    };
}

reason_codes! {
    /// Done; also a normal disconnection and a subscription granted at QoS 0.
    Success = 0x00, "success";
    /// A subscription granted at QoS 1.
    GrantedQos1 = 0x01, "granted at QoS 1";
    /// A subscription granted at QoS 2.
    GrantedQos2 = 0x02, "granted at QoS 2";
    /// A disconnection that asks for the Will.
    DisconnectWithWill = 0x04, "disconnected, the Will is to be published";
    /// Taken, and nobody subscribes.
    NoMatchingSubscribers = 0x10, "no matching subscribers";
    /// There was no such subscription.
    NoSubscriptionExisted = 0x11, "no subscription existed";
    /// Another step of an extended authentication.
    ContinueAuthentication = 0x18, "continue authentication";
    /// A client begins an authentication anew.
    ReAuthenticate = 0x19, "re-authenticate";
    /// None of the codes below fits.
    Unspecified = 0x80, "unspecified error";
    /// The packet could not be parsed.
    MalformedPacket = 0x81, "malformed packet";
    /// The packet parses and breaks a rule.
    ProtocolError = 0x82, "protocol error";
    /// It could not be done, though the request was a legal one.
    ImplementationSpecific = 0x83, "implementation specific error";
    /// A protocol version that is not served.
    UnsupportedVersion = 0x84, "unsupported protocol version";
    /// A client identifier that is not admitted.
    ClientIdNotValid = 0x85, "client identifier not valid";
    /// A wrong user name or password.
    BadUserNameOrPassword = 0x86, "bad user name or password";
    /// Not allowed.
    NotAuthorized = 0x87, "not authorized";
    /// The server is not available.
    ServerUnavailable = 0x88, "server unavailable";
    /// No more connections are taken.
    ServerBusy = 0x89, "server busy";
    /// The client is shut out by an operator.
    Banned = 0x8A, "banned";
    /// The server is stopping.
    ServerShuttingDown = 0x8B, "server shutting down";
    /// The authentication method is not served.
    BadAuthenticationMethod = 0x8C, "bad authentication method";
    /// Nothing was heard for one and a half times the Keep Alive.
    KeepAliveTimeout = 0x8D, "keep alive timeout";
    /// Another connection owns the client identifier now.
    SessionTakenOver = 0x8E, "session taken over";
    /// A filter that is not served.
    TopicFilterInvalid = 0x8F, "topic filter invalid";
    /// A topic that is not served.
    TopicNameInvalid = 0x90, "topic name invalid";
    /// The packet identifier is in use already.
    PacketIdentifierInUse = 0x91, "packet identifier in use";
    /// Nothing is held under the packet identifier.
    PacketIdentifierNotFound = 0x92, "packet identifier not found";
    /// More unfinished publishes than the Receive Maximum allows.
    ReceiveMaximumExceeded = 0x93, "receive maximum exceeded";
    /// A Topic Alias of 0, or above the maximum.
    TopicAliasInvalid = 0x94, "topic alias invalid";
    /// A packet over the bound.
    PacketTooLarge = 0x95, "packet too large";
    /// Messages come too fast.
    MessageRateTooHigh = 0x96, "message rate too high";
    /// A stated bound was reached.
    QuotaExceeded = 0x97, "quota exceeded";
    /// Hung up by an operator.
    AdministrativeAction = 0x98, "administrative action";
    /// The payload is not what its format indicator says.
    PayloadFormatInvalid = 0x99, "payload format invalid";
    /// RETAIN is not served.
    RetainNotSupported = 0x9A, "retain not supported";
    /// The QoS is not served.
    QosNotSupported = 0x9B, "QoS not supported";
    /// Another server serves the client for now.
    UseAnotherServer = 0x9C, "use another server";
    /// Another server serves the client from now on.
    ServerMoved = 0x9D, "server moved";
    /// Shared subscriptions are not served.
    SharedSubscriptionsNotSupported = 0x9E, "shared subscriptions not supported";
    /// Connections come too fast.
    ConnectionRateExceeded = 0x9F, "connection rate exceeded";
    /// The connection was open for as long as is allowed.
    MaximumConnectTime = 0xA0, "maximum connect time";
    /// Subscription Identifiers are not served.
    SubscriptionIdentifiersNotSupported = 0xA1, "subscription identifiers not supported";
    /// Wildcards in filters are not served.
    WildcardSubscriptionsNotSupported = 0xA2, "wildcard subscriptions not supported";
}

impl ReasonCode {
    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Whether this is a refusal or a failure: 0x80 and above.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        self.code() >= 0x80
    }

    /// Whether a packet of this kind, sent by this side, may carry the code (MQTT-3.2.2-8,
    /// MQTT-3.4.2-1, MQTT-3.9.3-2, MQTT-3.14.2-1 and their kin).
    #[must_use]
    pub fn is_allowed_in(self, packet: PacketType, sender: Role) -> bool {
        let code = self.code();
        match packet {
            PacketType::ConnAck => {
                sender == Role::Server
                    && matches!(code, 0x00 | 0x80..=0x8A | 0x8C | 0x90 | 0x95 | 0x97
                        | 0x99..=0x9D | 0x9F)
            }
            PacketType::PubAck | PacketType::PubRec => {
                matches!(
                    code,
                    0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99
                )
            }
            PacketType::PubRel | PacketType::PubComp => matches!(code, 0x00 | 0x92),
            PacketType::SubAck => {
                sender == Role::Server
                    && matches!(
                        code,
                        0x00..=0x02 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91 | 0x97 | 0x9E | 0xA1 | 0xA2
                    )
            }
            PacketType::UnsubAck => {
                sender == Role::Server
                    && matches!(code, 0x00 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91)
            }
            PacketType::Disconnect => match code {
                0x00 | 0x80..=0x83 | 0x90 | 0x93..=0x99 => true,
                0x04 => sender == Role::Client,
                0x87 | 0x89 | 0x8B..=0x8F | 0x9A..=0xA2 => sender == Role::Server,
                _ => false,
            },
            PacketType::Auth => match sender {
                Role::Client => matches!(code, 0x18 | 0x19),
                Role::Server => matches!(code, 0x00 | 0x18),
            },
            _ => false,
        }
    }

    /// What an MQTT 3.1.1 CONNACK says in place of this reason, or `None` where the connection is
    /// closed with nothing written.
    #[must_use]
    pub fn return_code(self) -> Option<ConnectReturnCode> {
        match self {
            ReasonCode::Success => Some(ConnectReturnCode::Accepted),
            ReasonCode::UnsupportedVersion => Some(ConnectReturnCode::UnacceptableProtocolVersion),
            ReasonCode::ClientIdNotValid => Some(ConnectReturnCode::IdentifierRejected),
            ReasonCode::Unspecified
            | ReasonCode::ImplementationSpecific
            | ReasonCode::ServerUnavailable
            | ReasonCode::ServerBusy
            | ReasonCode::ServerShuttingDown
            | ReasonCode::UseAnotherServer
            | ReasonCode::ServerMoved
            | ReasonCode::ConnectionRateExceeded => Some(ConnectReturnCode::ServerUnavailable),
            ReasonCode::BadUserNameOrPassword => Some(ConnectReturnCode::BadUserNameOrPassword),
            ReasonCode::MalformedPacket
            | ReasonCode::ProtocolError
            | ReasonCode::NotAuthorized
            | ReasonCode::Banned
            | ReasonCode::TopicNameInvalid
            | ReasonCode::QuotaExceeded
            | ReasonCode::PayloadFormatInvalid
            | ReasonCode::RetainNotSupported
            | ReasonCode::QosNotSupported => Some(ConnectReturnCode::NotAuthorized),
            _ => None,
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X} ({})", self.code(), self.text())
    }
}

/// What an MQTT 3.1.1 CONNACK says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ConnectReturnCode {
    /// The connection is accepted.
    Accepted = 0,
    /// The protocol level is not served.
    UnacceptableProtocolVersion = 1,
    /// The client identifier is not admitted.
    IdentifierRejected = 2,
    /// The service is not available.
    ServerUnavailable = 3,
    /// A wrong user name or password.
    BadUserNameOrPassword = 4,
    /// Not allowed.
    NotAuthorized = 5,
}

impl ConnectReturnCode {
    /// The return code of a number; 6 and above are reserved.
    #[must_use]
    pub fn from_u8(code: u8) -> Option<Self> {
        Some(match code {
            0 => ConnectReturnCode::Accepted,
            1 => ConnectReturnCode::UnacceptableProtocolVersion,
            2 => ConnectReturnCode::IdentifierRejected,
            3 => ConnectReturnCode::ServerUnavailable,
            4 => ConnectReturnCode::BadUserNameOrPassword,
            5 => ConnectReturnCode::NotAuthorized,
            _ => return None,
        })
    }

    /// The number on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The reason code that says the same in MQTT 5.
    #[must_use]
    pub fn reason(self) -> ReasonCode {
        match self {
            ConnectReturnCode::Accepted => ReasonCode::Success,
            ConnectReturnCode::UnacceptableProtocolVersion => ReasonCode::UnsupportedVersion,
            ConnectReturnCode::IdentifierRejected => ReasonCode::ClientIdNotValid,
            ConnectReturnCode::ServerUnavailable => ReasonCode::ServerUnavailable,
            ConnectReturnCode::BadUserNameOrPassword => ReasonCode::BadUserNameOrPassword,
            ConnectReturnCode::NotAuthorized => ReasonCode::NotAuthorized,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_the_name_it_came_from() {
        for code in 0..=u8::MAX {
            if let Some(reason) = ReasonCode::from_u8(code) {
                assert_eq!(reason.code(), code);
            }
        }
        assert_eq!(ReasonCode::ALL.len(), 43);
        assert!(ReasonCode::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(ReasonCode::from_u8(0x03), None);
        assert_eq!(ReasonCode::from_u8(0xA3), None);
    }

    #[test]
    fn a_return_code_survives_the_way_through_mqtt_5() {
        for code in 0..=5 {
            let returned = ConnectReturnCode::from_u8(code).map(ConnectReturnCode::reason);
            assert_eq!(
                returned.and_then(ReasonCode::return_code).map(|r| r.code()),
                Some(code)
            );
        }
        assert_eq!(ConnectReturnCode::from_u8(6), None);
    }

    #[test]
    fn an_oversize_connect_has_no_return_code() {
        assert_eq!(ReasonCode::PacketTooLarge.return_code(), None);
        assert_eq!(ReasonCode::BadAuthenticationMethod.return_code(), None);
    }
}
