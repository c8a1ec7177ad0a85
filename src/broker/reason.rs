//! Why something was answered as it was, in MQTT 5's numbers.
//!
//! MQTT 3.1.1 knows almost none of them; the front end translates or closes.

/// An MQTT 5 reason code. One number has one name here, whatever packet it rides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// Done. Also a normal disconnection and a subscription granted at QoS 0.
    Success = 0x00,
    /// A subscription granted at QoS 1.
    GrantedQos1 = 0x01,
    /// A subscription granted at QoS 2.
    GrantedQos2 = 0x02,
    /// A disconnection that asks for the Will.
    DisconnectWithWill = 0x04,
    /// There was no such subscription.
    NoSubscriptionExisted = 0x11,
    /// None of the codes below fits.
    Unspecified = 0x80,
    /// The packet could not be parsed.
    MalformedPacket = 0x81,
    /// The packet parses and breaks a rule.
    ProtocolError = 0x82,
    /// The broker could not do it, though the request was a legal one.
    ImplementationSpecific = 0x83,
    /// A protocol version that is not served.
    UnsupportedVersion = 0x84,
    /// A client identifier that is not admitted.
    ClientIdNotValid = 0x85,
    /// Not allowed.
    NotAuthorized = 0x87,
    /// No more connections are taken.
    ServerBusy = 0x89,
    /// The broker is stopping.
    ServerShuttingDown = 0x8B,
    /// The authentication method is not served.
    BadAuthenticationMethod = 0x8C,
    /// Nothing was heard for one and a half times the keepalive.
    KeepAliveTimeout = 0x8D,
    /// Another connection owns the client identifier now.
    SessionTakenOver = 0x8E,
    /// A filter that is not served.
    TopicFilterInvalid = 0x8F,
    /// A topic that is not served.
    TopicNameInvalid = 0x90,
    /// Nothing goes under that packet identifier.
    PacketIdentifierNotFound = 0x92,
    /// More unfinished QoS 1 and QoS 2 publishes than Receive Maximum allows.
    ReceiveMaximumExceeded = 0x93,
    /// A Topic Alias of 0, or above the maximum.
    TopicAliasInvalid = 0x94,
    /// A packet over the bound.
    PacketTooLarge = 0x95,
    /// A stated bound was reached.
    QuotaExceeded = 0x97,
    /// Hung up by an operator.
    AdministrativeAction = 0x98,
    /// The payload is not what its format indicator says.
    PayloadFormatInvalid = 0x99,
    /// RETAIN is not served.
    RetainNotSupported = 0x9A,
    /// The QoS is not served.
    QosNotSupported = 0x9B,
    /// Shared subscriptions are not served.
    SharedSubscriptionsNotSupported = 0x9E,
}

impl Reason {
    /// The reason with this number, if the broker knows it.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|reason| reason.code() == code)
    }

    /// All of them.
    pub const ALL: &'static [Reason] = &[
        Reason::Success,
        Reason::GrantedQos1,
        Reason::GrantedQos2,
        Reason::DisconnectWithWill,
        Reason::NoSubscriptionExisted,
        Reason::Unspecified,
        Reason::MalformedPacket,
        Reason::ProtocolError,
        Reason::ImplementationSpecific,
        Reason::UnsupportedVersion,
        Reason::ClientIdNotValid,
        Reason::NotAuthorized,
        Reason::ServerBusy,
        Reason::ServerShuttingDown,
        Reason::BadAuthenticationMethod,
        Reason::KeepAliveTimeout,
        Reason::SessionTakenOver,
        Reason::TopicFilterInvalid,
        Reason::TopicNameInvalid,
        Reason::PacketIdentifierNotFound,
        Reason::ReceiveMaximumExceeded,
        Reason::TopicAliasInvalid,
        Reason::PacketTooLarge,
        Reason::QuotaExceeded,
        Reason::AdministrativeAction,
        Reason::PayloadFormatInvalid,
        Reason::RetainNotSupported,
        Reason::QosNotSupported,
        Reason::SharedSubscriptionsNotSupported,
    ];

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
}

/// A refusal: the code, and a sentence for a person that says what to do about it.
///
/// The sentence is sent as a Reason String where the client allows one and always logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub reason: Reason,
    /// The sentence. It never carries another client's data.
    pub text: String,
}

impl Refusal {
    /// A refusal with its sentence.
    #[must_use]
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        Refusal {
            reason,
            text: text.into(),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0x{:02X}: {}", self.reason.code(), self.text)
    }
}
