//! Writes a CONNECT.

use super::EncodeError;
use super::publish::write_forwarded_properties;
use super::sink::{Sink, nonzero, properties};
use crate::packet::{Connect, PacketType, Version, Will};
use crate::property::Property;

pub(super) fn write(
    connect: &Connect,
    version: Version,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    if connect.version != version {
        return Err(EncodeError::NotInThisVersion {
            packet: PacketType::Connect,
        });
    }
    if version == Version::V311 && connect.password.is_some() && connect.user_name.is_none() {
        return Err(EncodeError::Missing {
            field: "the user name",
        });
    }
    out.slice(b"\x00\x04MQTT");
    out.u8(match version {
        Version::V311 => 4,
        Version::V5 => 5,
    });
    out.u8(flags(connect));
    out.u16(connect.keep_alive);
    if version == Version::V5 {
        write_properties(connect, out)?;
    }
    out.text(&connect.client_id);
    if let Some(will) = &connect.will {
        write_will(will, version, out)?;
    }
    if let Some(user_name) = &connect.user_name {
        out.text(user_name);
    }
    if let Some(password) = &connect.password {
        out.binary("the password", password)?;
    }
    Ok(())
}

fn flags(connect: &Connect) -> u8 {
    let will = connect.will.as_ref().map_or(0, |will| {
        0b100 | will.qos.level() << 3 | u8::from(will.retain) << 5
    });
    u8::from(connect.clean_start) << 1
        | will
        | u8::from(connect.password.is_some()) << 6
        | u8::from(connect.user_name.is_some()) << 7
}

/// What is at its default is left out.
fn write_properties(connect: &Connect, out: &mut dyn Sink) -> Result<(), EncodeError> {
    let session_expiry = Some(connect.session_expiry).filter(|seconds| *seconds != 0);
    let receive_maximum = nonzero(
        Property::ReceiveMaximum,
        Some(connect.receive_maximum).filter(|most| *most != u16::MAX),
    )?;
    let maximum_packet_size = nonzero(Property::MaximumPacketSize, connect.maximum_packet_size)?;
    let topic_alias_maximum = Some(connect.topic_alias_maximum).filter(|most| *most != 0);
    if connect.authentication_data.is_some() && connect.authentication_method.is_none() {
        return Err(EncodeError::Missing {
            field: Property::AuthenticationMethod.name(),
        });
    }
    properties(out, |to| {
        to.u32(Property::SessionExpiry, session_expiry);
        to.u16(Property::ReceiveMaximum, receive_maximum);
        to.u32(Property::MaximumPacketSize, maximum_packet_size);
        to.u16(Property::TopicAliasMaximum, topic_alias_maximum);
        to.flag(
            Property::RequestResponseInformation,
            connect.request_response_information.then_some(true),
        );
        to.flag(
            Property::RequestProblemInformation,
            (!connect.request_problem_information).then_some(false),
        );
        to.text(
            Property::AuthenticationMethod,
            connect.authentication_method.as_ref(),
        );
        to.binary(
            Property::AuthenticationData,
            connect.authentication_data.as_ref(),
        )?;
        to.wire(connect.user_properties.wire());
        Ok(())
    })
}

fn write_will(will: &Will, version: Version, out: &mut dyn Sink) -> Result<(), EncodeError> {
    super::check_topic(&will.topic, "the Will topic")?;
    if will.topic.is_empty() {
        return Err(EncodeError::Missing {
            field: "the Will topic",
        });
    }
    if version == Version::V5 {
        let delay = Some(will.delay_seconds).filter(|seconds| *seconds != 0);
        properties(out, |to| {
            to.u32(Property::WillDelay, delay);
            to.u32(Property::MessageExpiry, will.properties.expiry_seconds);
            write_forwarded_properties(&will.properties, to)
        })?;
    }
    out.text(&will.topic);
    out.binary("the Will payload", &will.payload)
}
