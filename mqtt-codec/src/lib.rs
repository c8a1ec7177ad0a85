//! MQTT 3.1.1 and MQTT 5 packets, strict and without I/O.
//!
//! [`decode`] takes one packet off the front of a read buffer, [`encode`] appends one to a write
//! buffer, and [`PublishTemplate`] writes one message to many subscribers. Nothing here keeps
//! state between packets: which version a connection speaks, which packet identifiers are in use
//! and which topic aliases stand are the caller's to know.
//!
//! Whatever the bytes, decoding never panics, never reads past the declared end of the packet, and
//! takes no memory for a declared length: sizes are compared with [`Limits`] before anything else.
//! Text and payloads are slices of the read buffer, so they pin it; copy what outlives the turn.

mod decode;
mod encode;
mod error;
mod packet;
mod property;
mod publish_template;
mod reason;
mod text;
mod user_properties;

pub use decode::{Limits, decode};
pub use encode::{EncodeError, encode, encoded_len};
pub use error::{DecodeError, Fault, Reply};
pub use packet::{
    Ack, Auth, ConnAck, ConnAckProperties, Connect, Disconnect, MAX_REMAINING_LENGTH,
    MAX_SUBSCRIPTION_IDENTIFIER, Packet, PacketType, Publish, PublishProperties, QoS,
    RetainHandling, Role, SubAck, Subscribe, Subscription, UnsubAck, Unsubscribe, Version, Will,
};
pub use publish_template::{Delivery, PublishTemplate};
pub use reason::{ConnectReturnCode, ReasonCode};
pub use text::{Text, TextError};
pub use user_properties::{Pairs, UserProperties, UserPropertiesBuilder};
