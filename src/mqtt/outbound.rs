//! From what the broker has to say to bytes.

use bytes::{BufMut, Bytes, BytesMut};
use saguin_mqtt_codec::{
    Ack, ConnAck, ConnAckProperties, Disconnect, Packet, ReasonCode, SubAck, Text, UnsubAck,
    UserPropertiesBuilder, Version, encode, encoded_len,
};

use crate::broker::packet::{Connack, Outgoing, OutgoingPublish, Protocol, SubackReason};
use crate::broker::reason::{Reason, Refusal};

use super::convert;

/// How one client is written to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialect {
    pub protocol: Protocol,
    /// Its Maximum Packet Size, bytes.
    pub maximum_packet_size: usize,
    /// Whether it wants Reason Strings.
    pub problem_information: bool,
}

/// A packet this client cannot be sent: larger than its Maximum Packet Size even without what may
/// be left out (MQTT-3.1.2-24).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

impl Dialect {
    fn version(&self) -> Version {
        convert::version(self.protocol)
    }

    /// Appends one packet.
    pub fn write(&self, outgoing: Outgoing, out: &mut BytesMut) -> Result<(), TooLarge> {
        match outgoing {
            Outgoing::Publish(publish) => {
                // The broker has compared it with the Maximum Packet Size.
                write_publish(&publish, self.protocol, out);
                Ok(())
            }
            Outgoing::Puback {
                packet_id,
                reason,
                text,
            } => {
                let mut ack = Ack::new(packet_id, convert::reason_code(reason));
                ack.reason_string = text.as_deref().map(Text::lossy);
                self.write_packet(Packet::PubAck(ack), out)
            }
            Outgoing::Pubrec {
                packet_id,
                reason,
                text,
            } => {
                let mut ack = Ack::new(packet_id, convert::reason_code(reason));
                ack.reason_string = text.as_deref().map(Text::lossy);
                self.write_packet(Packet::PubRec(ack), out)
            }
            Outgoing::Pubrel { packet_id, reason } => {
                let ack = Ack::new(packet_id, convert::reason_code(reason));
                self.write_packet(Packet::PubRel(ack), out)
            }
            Outgoing::Pubcomp { packet_id, reason } => {
                let ack = Ack::new(packet_id, convert::reason_code(reason));
                self.write_packet(Packet::PubComp(ack), out)
            }
            Outgoing::Suback {
                packet_id,
                reasons,
                text,
            } => {
                let reasons = reasons.into_iter().map(suback_code).collect();
                let mut ack = SubAck::new(packet_id, reasons);
                ack.reason_string = text.as_deref().map(Text::lossy);
                self.write_packet(Packet::SubAck(ack), out)
            }
            Outgoing::Unsuback {
                packet_id,
                reasons,
                unread,
            } => {
                let reasons = reasons.into_iter().map(convert::reason_code).collect();
                let mut ack = UnsubAck::new(packet_id, reasons);
                ack.user_properties = unread_properties(&unread);
                self.write_packet(Packet::UnsubAck(ack), out)
            }
            Outgoing::Pingresp => self.write_packet(Packet::PingResp, out),
            Outgoing::Disconnect(refusal) => self.write_disconnect(&refusal, out),
        }
    }

    /// MQTT 3.1.1 has no such packet from a server: it is told by the close.
    fn write_disconnect(&self, refusal: &Refusal, out: &mut BytesMut) -> Result<(), TooLarge> {
        if self.protocol == Protocol::V311 {
            return Ok(());
        }
        let mut disconnect = Disconnect::new(convert::reason_code(refusal.reason));
        if self.problem_information {
            disconnect.reason_string = Some(Text::lossy(&refusal.text));
        }
        self.write_packet(Packet::Disconnect(disconnect), out)
    }

    /// An accepted CONNECT.
    pub fn write_connack(&self, connack: &Connack, out: &mut BytesMut) -> Result<(), TooLarge> {
        let packet = ConnAck {
            session_present: connack.session_present,
            reason: ReasonCode::Success,
            properties: ConnAckProperties {
                session_expiry: connack.session_expiry,
                receive_maximum: Some(connack.receive_maximum),
                // Maximum QoS is absent: all of them are served (MQTT-3.2.2-9).
                retain_available: Some(true),
                maximum_packet_size: Some(connack.maximum_packet_size),
                assigned_client_id: connack.assigned_client_id.as_deref().map(Text::lossy),
                topic_alias_maximum: Some(connack.topic_alias_maximum),
                shared_subscription_available: Some(connack.shared_subscriptions),
                server_keep_alive: connack.server_keep_alive,
                ..ConnAckProperties::default()
            },
        };
        self.write_packet(Packet::ConnAck(Box::new(packet)), out)
    }

    /// A refused CONNECT. Nothing where MQTT 3.1.1 has no code for the reason.
    pub fn write_refusal(&self, refusal: &Refusal, out: &mut BytesMut) -> Result<(), TooLarge> {
        let reason = convert::reason_code(refusal.reason);
        if self.protocol == Protocol::V311 && reason.return_code().is_none() {
            return Ok(());
        }
        let packet = ConnAck {
            session_present: false,
            reason,
            properties: ConnAckProperties {
                reason_string: self.problem_information.then(|| Text::lossy(&refusal.text)),
                ..ConnAckProperties::default()
            },
        };
        self.write_packet(Packet::ConnAck(Box::new(packet)), out)
    }

    fn write_packet(&self, mut packet: Packet, out: &mut BytesMut) -> Result<(), TooLarge> {
        let version = self.version();
        let fits = |packet: &Packet| {
            encoded_len(packet, version).is_ok_and(|len| len <= self.maximum_packet_size)
        };
        if !fits(&packet) {
            packet.remove_problem_information();
            if !fits(&packet) {
                return Err(TooLarge);
            }
        }
        encode(&packet, version, out).map_err(|error| {
            tracing::error!(%error, "a packet could not be written");
            TooLarge
        })
    }
}

fn suback_code(reason: SubackReason) -> ReasonCode {
    match reason {
        SubackReason::Granted(0) => ReasonCode::Success,
        SubackReason::Granted(1) => convert::reason_code(Reason::GrantedQos1),
        SubackReason::Granted(_) => convert::reason_code(Reason::GrantedQos2),
        SubackReason::Refused(reason) => convert::reason_code(reason),
    }
}

/// Names each key that was not understood.
fn unread_properties(unread: &[Bytes]) -> saguin_mqtt_codec::UserProperties {
    let mut pairs = UserPropertiesBuilder::default();
    for key in unread {
        // A key came in as text of at most 65,535 bytes, so it goes out as one.
        let _ = pairs.push("saguin-unread", &String::from_utf8_lossy(key));
    }
    pairs.build()
}

/// A PUBLISH, its properties already in wire form.
fn write_publish(publish: &OutgoingPublish, protocol: Protocol, out: &mut BytesMut) {
    let size = usize::try_from(publish.encoded_size(protocol)).unwrap_or(usize::MAX);
    out.reserve(size.min(64 * 1024 * 1024));
    let flags = u8::from(publish.dup) << 3 | (publish.qos & 0b11) << 1 | u8::from(publish.retain);
    out.put_u8(0x30 | flags);
    let identifier = if publish.qos > 0 { 2 } else { 0 };
    let properties = match protocol {
        Protocol::V311 => 0,
        Protocol::V5 => publish.properties.len() + integer_len(publish.properties.len()),
    };
    put_integer(
        out,
        2 + publish.topic.len() + identifier + properties + publish.payload.len(),
    );
    // Topics came in behind two bytes of length, and a dead letter's is bounded with its job's.
    out.put_u16(u16::try_from(publish.topic.len()).unwrap_or(u16::MAX));
    out.put_slice(&publish.topic);
    if publish.qos > 0 {
        out.put_u16(publish.packet_id);
    }
    if protocol == Protocol::V5 {
        put_integer(out, publish.properties.len());
        out.put_slice(&publish.properties);
    }
    out.put_slice(&publish.payload);
}

fn integer_len(value: usize) -> usize {
    match value {
        0..=127 => 1,
        128..=16_383 => 2,
        16_384..=2_097_151 => 3,
        _ => 4,
    }
}

fn put_integer(out: &mut BytesMut, mut value: usize) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            out.put_u8(byte);
            return;
        }
        out.put_u8(byte | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use saguin_mqtt_codec::{Limits, Role, decode};

    fn v5(maximum_packet_size: usize) -> Dialect {
        Dialect {
            protocol: Protocol::V5,
            maximum_packet_size,
            problem_information: true,
        }
    }

    #[test]
    fn a_publish_reads_back_and_is_as_long_as_it_said() {
        for (qos, payload) in [(0, 0), (1, 5), (1, 300), (0, 20_000)] {
            let publish = OutgoingPublish {
                packet_id: if qos > 0 { 9 } else { 0 },
                qos,
                dup: qos > 0,
                retain: true,
                topic: Bytes::from_static(b"a/b"),
                payload: Bytes::from(vec![7; payload]),
                properties: Bytes::from_static(&[0x0B, 5, 0x01, 1]),
            };
            let mut out = BytesMut::new();
            write_publish(&publish, Protocol::V5, &mut out);
            assert_eq!(out.len() as u64, publish.encoded_size(Protocol::V5));
            let limits = Limits::new(1_000_000);
            let packet = decode(&mut out, Some(Version::V5), Role::Server, &limits);
            let Ok(Some(Packet::Publish(read))) = packet else {
                panic!("{packet:?}");
            };
            assert_eq!(read.payload, publish.payload);
            assert_eq!(read.properties.subscription_identifiers, [5]);
            assert_eq!(read.packet_id, publish.packet_id);
        }
    }

    #[test]
    fn a_reason_string_is_left_out_before_the_packet_is() {
        let puback = || Outgoing::Puback {
            packet_id: 1,
            reason: Reason::QuotaExceeded,
            text: Some("a sentence".into()),
        };
        let mut whole = BytesMut::new();
        v5(1000).write(puback(), &mut whole).unwrap();
        let mut cut = BytesMut::new();
        v5(whole.len() - 1).write(puback(), &mut cut).unwrap();
        assert!(cut.len() < whole.len());
        assert_eq!(v5(3).write(puback(), &mut cut), Err(TooLarge));
    }

    #[test]
    fn mqtt_311_is_told_nothing_by_a_disconnect() {
        let mut out = BytesMut::new();
        let dialect = Dialect {
            protocol: Protocol::V311,
            ..v5(usize::MAX)
        };
        let refusal = Refusal::new(Reason::SessionTakenOver, "elsewhere");
        dialect
            .write(Outgoing::Disconnect(refusal), &mut out)
            .unwrap();
        assert!(out.is_empty());
    }
}
