//! The properties MQTT 5 has.

macro_rules! properties {
    ($($name:ident = $identifier:literal, $text:literal;)*) => {
        /// A property, by its identifier on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Property {
            $($name = $identifier,)*
        }

        impl Property {
            pub fn from_u32(identifier: u32) -> Option<Self> {
                match identifier {
                    $($identifier => Some(Property::$name),)*
                    _ => None,
                }
            }

            /// The name the standard writes.
            pub fn name(self) -> &'static str {
                match self {
                    $(Property::$name => $text,)*
                }
            }
        }
    };
}

properties! {
    PayloadFormat = 0x01, "Payload Format Indicator";
    MessageExpiry = 0x02, "Message Expiry Interval";
    ContentType = 0x03, "Content Type";
    ResponseTopic = 0x08, "Response Topic";
    CorrelationData = 0x09, "Correlation Data";
    SubscriptionIdentifier = 0x0B, "Subscription Identifier";
    SessionExpiry = 0x11, "Session Expiry Interval";
    AssignedClientId = 0x12, "Assigned Client Identifier";
    ServerKeepAlive = 0x13, "Server Keep Alive";
    AuthenticationMethod = 0x15, "Authentication Method";
    AuthenticationData = 0x16, "Authentication Data";
    RequestProblemInformation = 0x17, "Request Problem Information";
    WillDelay = 0x18, "Will Delay Interval";
    RequestResponseInformation = 0x19, "Request Response Information";
    ResponseInformation = 0x1A, "Response Information";
    ServerReference = 0x1C, "Server Reference";
    ReasonString = 0x1F, "Reason String";
    ReceiveMaximum = 0x21, "Receive Maximum";
    TopicAliasMaximum = 0x22, "Topic Alias Maximum";
    TopicAlias = 0x23, "Topic Alias";
    MaximumQos = 0x24, "Maximum QoS";
    RetainAvailable = 0x25, "Retain Available";
    User = 0x26, "User Property";
    MaximumPacketSize = 0x27, "Maximum Packet Size";
    WildcardSubscriptionAvailable = 0x28, "Wildcard Subscription Available";
    SubscriptionIdentifiersAvailable = 0x29, "Subscription Identifiers Available";
    SharedSubscriptionAvailable = 0x2A, "Shared Subscription Available";
}
