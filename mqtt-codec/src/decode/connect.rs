//! Reads a CONNECT: the version before anything else, so that whatever follows can be answered.

use super::Context;
use super::properties::{Properties, not_allowed};
use super::publish::read_publish_property;
use super::reader::Reader;
use crate::error::Fault;
use crate::packet::{Connect, PublishProperties, QoS, Version, Will};
use crate::property::Property;

/// The protocol name of MQTT 3.1.1 and MQTT 5, with its length.
const MQTT: &[u8] = b"\x00\x04MQTT";
/// The protocol name of MQTT 3.1, with its length.
const MQISDP: &[u8] = b"\x00\x06MQIsdp";

/// Which version a CONNECT speaks, from as much of its body as has arrived; `None` while that is
/// too little to tell. A body declared too short to tell is malformed at once.
pub(super) fn sniff(arrived: &[u8], declared: usize) -> Result<Option<Version>, Fault> {
    let body = arrived.get(..declared).unwrap_or(arrived);
    let complete = body.len() == declared;
    for name in [MQTT, MQISDP] {
        if let Some(&[level, ..]) = body.strip_prefix(name) {
            return match level {
                4 if name == MQTT => Ok(Some(Version::V311)),
                5 if name == MQTT => Ok(Some(Version::V5)),
                found if name == MQTT || found == 3 => Err(Fault::UnsupportedLevel { found }),
                _ => Err(Fault::ProtocolName),
            };
        }
        if name.starts_with(body) {
            return if complete {
                Err(Fault::Truncated {
                    field: "the protocol name and level",
                })
            } else {
                Ok(None)
            };
        }
    }
    Err(Fault::ProtocolName)
}

pub(super) fn read(body: &mut Reader, context: &Context<'_>) -> Result<Connect, Fault> {
    let version = context.version;
    body.take(MQTT.len() + 1, "the protocol name and level")?;
    let flags = Flags::read(body.u8("the connect flags")?, version)?;
    let keep_alive = body.u16("Keep Alive")?;
    let mut connect = Connect::new(version, Default::default());
    connect.clean_start = flags.clean_start;
    connect.keep_alive = keep_alive;
    if version == Version::V5 {
        read_properties(&mut connect, body, context)?;
    }
    connect.client_id = body.text("the client identifier")?;
    if let Some((qos, retain)) = flags.will {
        connect.will = Some(read_will(qos, retain, body, context)?);
    }
    if flags.user_name {
        connect.user_name = Some(body.text("the user name")?);
    }
    if flags.password {
        connect.password = Some(body.binary("the password")?);
    }
    Ok(connect)
}

struct Flags {
    clean_start: bool,
    will: Option<(QoS, bool)>,
    user_name: bool,
    password: bool,
}

impl Flags {
    fn read(byte: u8, version: Version) -> Result<Self, Fault> {
        let is_set = |bit: u8| byte & (1 << bit) != 0;
        if is_set(0) {
            return Err(Fault::ConnectReservedFlag);
        }
        let qos = QoS::from_u8((byte >> 3) & 3).ok_or(Fault::WillQos3)?;
        let will = is_set(2).then_some((qos, is_set(5)));
        if will.is_none() && qos != QoS::AtMostOnce {
            return Err(Fault::WillQosWithoutWill);
        }
        if will.is_none() && is_set(5) {
            return Err(Fault::WillRetainWithoutWill);
        }
        let (user_name, password) = (is_set(7), is_set(6));
        if version == Version::V311 && password && !user_name {
            return Err(Fault::PasswordWithoutUserName);
        }
        Ok(Flags {
            clean_start: is_set(1),
            will,
            user_name,
            password,
        })
    }
}

fn read_properties(
    connect: &mut Connect,
    body: &mut Reader,
    context: &Context<'_>,
) -> Result<(), Fault> {
    let mut properties = Properties::open(body, context.limits)?;
    while let Some(property) = properties.next()? {
        match property {
            Property::SessionExpiry => connect.session_expiry = properties.u32(property)?,
            Property::ReceiveMaximum => {
                connect.receive_maximum = properties.nonzero_u16(property)?;
            }
            Property::MaximumPacketSize => {
                connect.maximum_packet_size = Some(properties.nonzero_u32(property)?);
            }
            Property::TopicAliasMaximum => {
                connect.topic_alias_maximum = properties.u16(property)?
            }
            Property::RequestResponseInformation => {
                connect.request_response_information = properties.flag(property)?;
            }
            Property::RequestProblemInformation => {
                connect.request_problem_information = properties.flag(property)?;
            }
            Property::AuthenticationMethod => {
                connect.authentication_method = Some(properties.text(property)?);
            }
            Property::AuthenticationData => {
                connect.authentication_data = Some(properties.binary(property)?);
            }
            _ => return Err(not_allowed(property)),
        }
    }
    properties.check_authentication()?;
    connect.user_properties = properties.user_properties();
    Ok(())
}

fn read_will(
    qos: QoS,
    retain: bool,
    body: &mut Reader,
    context: &Context<'_>,
) -> Result<Will, Fault> {
    let mut will = Will {
        qos,
        retain,
        ..Will::default()
    };
    if context.version == Version::V5 {
        let mut properties = Properties::open(body, context.limits)?;
        let mut read = PublishProperties::default();
        while let Some(property) = properties.next()? {
            if property == Property::WillDelay {
                will.delay_seconds = properties.u32(property)?;
            } else {
                read_publish_property(&mut read, property, &mut properties)?;
            }
        }
        read.user_properties = properties.user_properties();
        will.properties = read;
    }
    will.topic = body.text("the Will topic")?;
    will.payload = body.binary("the Will payload")?;
    Ok(will)
}

/// Asked last: a CONNECT that is refused for its Will topic is answered even to MQTT 3.1.1, and so
/// has to be well made otherwise.
pub(super) fn check_will_topic(connect: &Connect) -> Result<(), Fault> {
    match &connect.will {
        Some(will) if will.topic.is_empty() || will.topic.has_wildcard() => Err(Fault::WillTopic),
        _ => Ok(()),
    }
}
