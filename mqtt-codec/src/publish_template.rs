//! One message for many subscribers: encoded once, patched for each.

use bytes::{BufMut, Bytes, BytesMut};

use crate::encode::{
    EncodeError, Sink, check_dup, check_remaining, check_subscription_identifier, check_topic,
    integer_len, publish_flags,
};
use crate::packet::{PacketType, QoS, Version};
use crate::property::Property;
use crate::text::Text;

/// Payloads up to this many bytes are copied behind their head. Larger ones are handed back, to be
/// written from where they are.
const COPIED_PAYLOAD: usize = 4096;

/// Bytes a Message Expiry Interval takes.
const EXPIRY_LEN: usize = 5;

/// A message in the form of one version, ready for any number of subscribers.
///
/// What all of them are sent alike is made once: topic, properties and payload. Each delivery adds
/// its flags, packet identifier, remaining Message Expiry and Subscription Identifiers.
#[derive(Clone, Debug)]
pub struct PublishTemplate {
    version: Version,
    topic: Text,
    properties: Bytes,
    payload: Bytes,
    whole: Option<Whole>,
}

/// What one subscriber's PUBLISH has that another's has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery<'a> {
    /// The DUP flag; never at QoS 0.
    pub dup: bool,
    /// The QoS.
    pub qos: QoS,
    /// The RETAIN flag.
    pub retain: bool,
    /// Packet identifier, at least 1; not written at QoS 0.
    pub packet_id: u16,
    /// What is left of the Message Expiry Interval, seconds. Not written to MQTT 3.1.1.
    pub expiry_seconds: Option<u32>,
    /// Subscription Identifiers, each 1 to 268,435,455. Not written to MQTT 3.1.1.
    pub subscription_identifiers: &'a [u32],
}

/// The whole packet for deliveries without Subscription Identifiers, which differ in the same few
/// bytes only.
#[derive(Clone, Debug)]
struct Whole {
    frame: Bytes,
    qos_0: bool,
    expires: bool,
    /// Where the packet identifier is; unused at QoS 0.
    packet_id_at: usize,
    /// Where the seconds of the Message Expiry Interval are; unused where there is none.
    expiry_at: usize,
}

impl PublishTemplate {
    /// A template. `properties` is what every subscriber is sent alike, in wire form without a
    /// length in front: [`PublishProperties::write_forwarded`](crate::PublishProperties::write_forwarded)
    /// and [`UserProperties::wire`](crate::UserProperties::wire) make it, one after the other.
    /// MQTT 3.1.1 leaves it out.
    ///
    /// `usual` is what most deliveries will be like, and any delivery can be written. Those that
    /// agree with it on whether there is a packet identifier and whether there is a Message
    /// Expiry, and have no Subscription Identifiers, are copied and patched; others have their
    /// head written anew.
    ///
    /// # Errors
    /// A topic that is empty or has a wildcard, or a packet too large for MQTT.
    pub fn new(
        version: Version,
        topic: Text,
        properties: Bytes,
        payload: Bytes,
        usual: &Delivery<'_>,
    ) -> Result<Self, EncodeError> {
        check_topic(&topic, "the topic")?;
        if topic.is_empty() {
            return Err(EncodeError::Missing { field: "the topic" });
        }
        let mut template = PublishTemplate {
            version,
            topic,
            properties: match version {
                Version::V311 => Bytes::new(),
                Version::V5 => properties,
            },
            payload,
            whole: None,
        };
        let usual = Delivery {
            dup: false,
            packet_id: 1,
            subscription_identifiers: &[],
            ..*usual
        };
        let sizes = template.sizes(&usual)?;
        if template.payload.len() <= COPIED_PAYLOAD {
            let mut frame = BytesMut::with_capacity(sizes.whole());
            template.write_head(&usual, &sizes, &mut frame);
            frame.put_slice(&template.payload);
            let packet_id_at = 1 + integer_len(sizes.remaining) + 2 + template.topic.len();
            let id_len = if usual.qos == QoS::AtMostOnce { 0 } else { 2 };
            template.whole = Some(Whole {
                frame: frame.freeze(),
                qos_0: usual.qos == QoS::AtMostOnce,
                expires: template.expiry(&usual).is_some(),
                packet_id_at,
                expiry_at: packet_id_at + id_len + integer_len(sizes.properties) + 1,
            });
        }
        Ok(template)
    }

    /// Bytes the whole packet takes for this delivery, fixed header included: what a Maximum
    /// Packet Size is compared with.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn encoded_len(&self, delivery: &Delivery<'_>) -> Result<usize, EncodeError> {
        Ok(self.sizes(delivery)?.whole())
    }

    /// Appends one subscriber's PUBLISH to `out`. A large payload is not copied but handed back:
    /// it is to be written right behind what `out` holds.
    ///
    /// # Errors
    /// DUP at QoS 0, packet identifier 0 at a higher one, a Subscription Identifier that is none,
    /// or a packet too large for MQTT. Then `out` is as it was.
    pub fn write(
        &self,
        delivery: &Delivery<'_>,
        out: &mut BytesMut,
    ) -> Result<Option<Bytes>, EncodeError> {
        check_dup(delivery.dup, delivery.qos)?;
        if delivery.qos != QoS::AtMostOnce && delivery.packet_id == 0 {
            return Err(EncodeError::PacketIdentifierZero);
        }
        if let Some(whole) = self.whole_for(delivery) {
            whole.write(delivery, self.expiry(delivery), out);
            return Ok(None);
        }
        let sizes = self.sizes(delivery)?;
        let copies = self.payload.len() <= COPIED_PAYLOAD;
        out.reserve(if copies {
            sizes.whole()
        } else {
            sizes.whole() - self.payload.len()
        });
        self.write_head(delivery, &sizes, out);
        if copies {
            out.put_slice(&self.payload);
            return Ok(None);
        }
        Ok(Some(self.payload.clone()))
    }

    fn expiry(&self, delivery: &Delivery<'_>) -> Option<u32> {
        match self.version {
            Version::V311 => None,
            Version::V5 => delivery.expiry_seconds,
        }
    }

    fn identifiers<'a>(&self, delivery: &Delivery<'a>) -> &'a [u32] {
        match self.version {
            Version::V311 => &[],
            Version::V5 => delivery.subscription_identifiers,
        }
    }

    fn whole_for(&self, delivery: &Delivery<'_>) -> Option<&Whole> {
        self.whole.as_ref().filter(|whole| {
            whole.qos_0 == (delivery.qos == QoS::AtMostOnce)
                && whole.expires == self.expiry(delivery).is_some()
                && self.identifiers(delivery).is_empty()
        })
    }

    fn sizes(&self, delivery: &Delivery<'_>) -> Result<Sizes, EncodeError> {
        let mut properties = self.properties.len();
        if self.expiry(delivery).is_some() {
            properties += EXPIRY_LEN;
        }
        for identifier in self.identifiers(delivery) {
            check_subscription_identifier(*identifier)?;
            properties += 1 + integer_len(*identifier as usize);
        }
        let mut remaining = 2 + self.topic.len() + self.payload.len();
        if delivery.qos != QoS::AtMostOnce {
            remaining += 2;
        }
        if self.version == Version::V5 {
            remaining += integer_len(properties) + properties;
        }
        Ok(Sizes {
            remaining: check_remaining(remaining)?,
            properties,
        })
    }

    /// Writes everything in front of the payload.
    fn write_head(&self, delivery: &Delivery<'_>, sizes: &Sizes, out: &mut BytesMut) {
        let flags = publish_flags(delivery.dup, delivery.qos, delivery.retain);
        out.put_u8((PacketType::Publish as u8) << 4 | flags);
        out.integer(sizes.remaining);
        out.text(&self.topic);
        if delivery.qos != QoS::AtMostOnce {
            out.put_u16(delivery.packet_id);
        }
        if self.version == Version::V5 {
            out.integer(sizes.properties);
            if let Some(seconds) = self.expiry(delivery) {
                out.put_u8(Property::MessageExpiry as u8);
                out.put_u32(seconds);
            }
            for identifier in self.identifiers(delivery) {
                out.put_u8(Property::SubscriptionIdentifier as u8);
                out.integer(*identifier as usize);
            }
            out.put_slice(&self.properties);
        }
    }
}

struct Sizes {
    /// The Remaining Length.
    remaining: usize,
    /// The property length.
    properties: usize,
}

impl Sizes {
    fn whole(&self) -> usize {
        1 + integer_len(self.remaining) + self.remaining
    }
}

impl Whole {
    fn write(&self, delivery: &Delivery<'_>, expiry: Option<u32>, out: &mut BytesMut) {
        let start = out.len();
        out.put_slice(&self.frame);
        let frame = out.get_mut(start..).unwrap_or_default();
        let flags = publish_flags(delivery.dup, delivery.qos, delivery.retain);
        patch(frame, 0, &[(PacketType::Publish as u8) << 4 | flags]);
        if !self.qos_0 {
            patch(frame, self.packet_id_at, &delivery.packet_id.to_be_bytes());
        }
        if let Some(seconds) = expiry {
            patch(frame, self.expiry_at, &seconds.to_be_bytes());
        }
    }
}

fn patch(frame: &mut [u8], at: usize, with: &[u8]) {
    // The places were counted when the frame was made, so they are always in it.
    if let Some(place) = frame.get_mut(at..at + with.len()) {
        place.copy_from_slice(with);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Packet, Publish, PublishProperties, UserPropertiesBuilder, encode};

    fn message(payload_len: usize) -> Publish {
        let mut users = UserPropertiesBuilder::new();
        assert!(users.push("k", "v").is_ok());
        Publish {
            topic: Text::lossy("a/b"),
            payload: vec![7; payload_len].into(),
            properties: PublishProperties {
                payload_is_utf8: Some(false),
                content_type: Some(Text::lossy("text/plain")),
                user_properties: users.build(),
                ..PublishProperties::default()
            },
            ..Publish::default()
        }
    }

    fn deliveries() -> Vec<Delivery<'static>> {
        let mut all = Vec::new();
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            for expiry_seconds in [None, Some(0), Some(70_000)] {
                for subscription_identifiers in [&[][..], &[1][..], &[200, 268_435_455][..]] {
                    all.push(Delivery {
                        dup: qos != QoS::AtMostOnce && expiry_seconds.is_some(),
                        qos,
                        retain: expiry_seconds.is_none(),
                        packet_id: if qos == QoS::AtMostOnce { 0 } else { 513 },
                        expiry_seconds,
                        subscription_identifiers,
                    });
                }
            }
        }
        all
    }

    /// What the encoder makes of the same packet, made the long way.
    fn encoded(message: &Publish, delivery: &Delivery<'_>, version: Version) -> BytesMut {
        let mut publish = message.clone();
        publish.dup = delivery.dup;
        publish.qos = delivery.qos;
        publish.retain = delivery.retain;
        publish.packet_id = delivery.packet_id;
        publish.properties.expiry_seconds = delivery.expiry_seconds;
        publish.properties.subscription_identifiers = delivery.subscription_identifiers.to_vec();
        let mut out = BytesMut::new();
        assert_eq!(encode(&Packet::Publish(publish), version, &mut out), Ok(()));
        out
    }

    #[test]
    fn a_template_writes_what_the_encoder_writes() {
        for version in [Version::V311, Version::V5] {
            // Around the bounds of the Remaining Length, and around what is copied.
            for payload_len in [0, 90, 100, 127, 128, 4096, 4097, 16_384] {
                let message = message(payload_len);
                let mut wire = BytesMut::new();
                assert_eq!(message.properties.write_forwarded(&mut wire), Ok(()));
                let wire = wire.freeze();
                for usual in deliveries() {
                    let template = PublishTemplate::new(
                        version,
                        message.topic.clone(),
                        wire.clone(),
                        message.payload.clone(),
                        &usual,
                    )
                    .unwrap_or_else(|error| panic!("{error}"));
                    for delivery in deliveries() {
                        let mut out = BytesMut::from(&b"before"[..]);
                        let large = template.write(&delivery, &mut out);
                        let large = large.unwrap_or_else(|error| panic!("{error}"));
                        assert_eq!(large.is_some(), payload_len > COPIED_PAYLOAD);
                        out.extend_from_slice(&large.unwrap_or_default());
                        let expected = encoded(&message, &delivery, version);
                        assert_eq!(&out[..6], b"before");
                        assert_eq!(&out[6..], &expected[..], "{delivery:?}");
                        assert_eq!(template.encoded_len(&delivery), Ok(expected.len()));
                    }
                }
            }
        }
    }

    #[test]
    fn a_large_payload_is_handed_back_and_not_copied() {
        let payload = Bytes::from(vec![1; COPIED_PAYLOAD + 1]);
        let usual = Delivery::default();
        let template = PublishTemplate::new(
            Version::V5,
            Text::lossy("t"),
            Bytes::new(),
            payload.clone(),
            &usual,
        );
        let mut out = BytesMut::new();
        let handed_back = template.and_then(|template| template.write(&usual, &mut out));
        assert!(matches!(handed_back, Ok(Some(back)) if back.as_ptr() == payload.as_ptr()));
        assert!(out.len() < 16);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let usual = Delivery {
            qos: QoS::AtLeastOnce,
            packet_id: 1,
            ..Delivery::default()
        };
        let template = |topic: &str| {
            PublishTemplate::new(
                Version::V5,
                Text::lossy(topic),
                Bytes::new(),
                Bytes::new(),
                &usual,
            )
        };
        assert!(template("").is_err() && template("a/#").is_err());
        let template = template("a").unwrap_or_else(|error| panic!("{error}"));
        let mut out = BytesMut::new();
        for wrong in [
            Delivery {
                packet_id: 0,
                ..usual
            },
            Delivery {
                qos: QoS::AtMostOnce,
                dup: true,
                ..usual
            },
            Delivery {
                subscription_identifiers: &[0],
                ..usual
            },
            Delivery {
                subscription_identifiers: &[1, 268_435_456],
                ..usual
            },
        ] {
            assert!(template.write(&wrong, &mut out).is_err(), "{wrong:?}");
        }
        assert!(out.is_empty());
    }
}
