//! Writes CONNACK, PUBACK and its kin, SUBACK, UNSUBACK, DISCONNECT and AUTH.

use super::EncodeError;
use super::sink::{PropertySink, Sink, nonzero, properties};
use crate::packet::{
    Ack, Auth, ConnAck, ConnAckProperties, Disconnect, PacketType, QoS, Role, SubAck, UnsubAck,
    Version,
};
use crate::property::Property;
use crate::reason::ReasonCode;
use crate::text::Text;
use crate::user_properties::UserProperties;

fn check_reason(packet: PacketType, found: ReasonCode) -> Result<u8, EncodeError> {
    if found.is_allowed_in(packet, Role::Server) || found.is_allowed_in(packet, Role::Client) {
        Ok(found.code())
    } else {
        Err(EncodeError::ReasonCode { packet, found })
    }
}

/// MQTT 3.1.1 has no place for a reason, and an answer without one says success.
fn check_success(packet: PacketType, found: ReasonCode) -> Result<(), EncodeError> {
    if found.is_refusal() || found == ReasonCode::DisconnectWithWill {
        return Err(EncodeError::ReasonCode { packet, found });
    }
    Ok(())
}

pub(super) fn write_connack(
    connack: &ConnAck,
    version: Version,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    let reason = check_reason(PacketType::ConnAck, connack.reason)?;
    // MQTT-3.2.2-6: a refusal says nothing of a session.
    if connack.session_present && connack.reason != ReasonCode::Success {
        return Err(EncodeError::Value {
            field: "Session Present of a refusal",
            found: 1,
        });
    }
    out.u8(u8::from(connack.session_present));
    match version {
        Version::V311 => {
            let code = connack
                .reason
                .return_code()
                .ok_or(EncodeError::ReasonCode {
                    packet: PacketType::ConnAck,
                    found: connack.reason,
                })?;
            out.u8(code.code());
            Ok(())
        }
        Version::V5 => {
            out.u8(reason);
            write_connack_properties(&connack.properties, out)
        }
    }
}

fn write_connack_properties(
    written: &ConnAckProperties,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    use Property as P;
    let receive_maximum = nonzero(P::ReceiveMaximum, written.receive_maximum)?;
    let maximum_packet_size = nonzero(P::MaximumPacketSize, written.maximum_packet_size)?;
    let maximum_qos = match written.maximum_qos {
        None => None,
        Some(QoS::AtMostOnce) => Some(false),
        Some(QoS::AtLeastOnce) => Some(true),
        Some(QoS::ExactlyOnce) => {
            return Err(EncodeError::Value {
                field: P::MaximumQos.name(),
                found: 2,
            });
        }
    };
    check_authentication(&written.authentication_method, &written.authentication_data)?;
    properties(out, |to| {
        to.u32(P::SessionExpiry, written.session_expiry);
        to.u16(P::ReceiveMaximum, receive_maximum);
        to.flag(P::MaximumQos, maximum_qos);
        to.flag(P::RetainAvailable, written.retain_available);
        to.u32(P::MaximumPacketSize, maximum_packet_size);
        to.text(P::AssignedClientId, written.assigned_client_id.as_ref());
        to.u16(P::TopicAliasMaximum, written.topic_alias_maximum);
        to.flag(
            P::WildcardSubscriptionAvailable,
            written.wildcard_subscription_available,
        );
        to.flag(
            P::SubscriptionIdentifiersAvailable,
            written.subscription_identifiers_available,
        );
        to.flag(
            P::SharedSubscriptionAvailable,
            written.shared_subscription_available,
        );
        to.u16(P::ServerKeepAlive, written.server_keep_alive);
        to.text(
            P::ResponseInformation,
            written.response_information.as_ref(),
        );
        to.text(P::ServerReference, written.server_reference.as_ref());
        to.text(
            P::AuthenticationMethod,
            written.authentication_method.as_ref(),
        );
        to.binary(P::AuthenticationData, written.authentication_data.as_ref())?;
        write_problem_information(&written.reason_string, &written.user_properties, to);
        Ok(())
    })
}

fn check_authentication(
    method: &Option<Text>,
    data: &Option<bytes::Bytes>,
) -> Result<(), EncodeError> {
    if data.is_some() && method.is_none() {
        return Err(EncodeError::Missing {
            field: Property::AuthenticationMethod.name(),
        });
    }
    Ok(())
}

fn write_problem_information(
    reason_string: &Option<Text>,
    user_properties: &UserProperties,
    to: &mut PropertySink<'_>,
) {
    to.text(Property::ReasonString, reason_string.as_ref());
    to.wire(user_properties.wire());
}

/// The shortest form that says it all: two bytes for success, three for a bare reason.
pub(super) fn write_ack(
    packet: PacketType,
    ack: &Ack,
    version: Version,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    let reason = check_reason(packet, ack.reason)?;
    out.packet_id(ack.packet_id)?;
    if version == Version::V311 {
        return check_success(packet, ack.reason);
    }
    let bare = ack.reason_string.is_none() && ack.user_properties.is_empty();
    if bare && ack.reason == ReasonCode::Success {
        return Ok(());
    }
    out.u8(reason);
    if bare {
        return Ok(());
    }
    properties(out, |to| {
        write_problem_information(&ack.reason_string, &ack.user_properties, to);
        Ok(())
    })
}

pub(super) fn write_suback(
    ack: &SubAck,
    version: Version,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    out.packet_id(ack.packet_id)?;
    if version == Version::V5 {
        properties(out, |to| {
            write_problem_information(&ack.reason_string, &ack.user_properties, to);
            Ok(())
        })?;
    }
    check_any(ack.reasons.len())?;
    for reason in &ack.reasons {
        let code = check_reason(PacketType::SubAck, *reason)?;
        // MQTT 3.1.1 knows one refusal (MQTT-3.9.3-2).
        out.u8(match version {
            Version::V311 => code.min(0x80),
            Version::V5 => code,
        });
    }
    Ok(())
}

pub(super) fn write_unsuback(
    ack: &UnsubAck,
    version: Version,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    out.packet_id(ack.packet_id)?;
    if version == Version::V311 {
        return Ok(());
    }
    properties(out, |to| {
        write_problem_information(&ack.reason_string, &ack.user_properties, to);
        Ok(())
    })?;
    check_any(ack.reasons.len())?;
    for reason in &ack.reasons {
        out.u8(check_reason(PacketType::UnsubAck, *reason)?);
    }
    Ok(())
}

fn check_any(reasons: usize) -> Result<(), EncodeError> {
    if reasons == 0 {
        return Err(EncodeError::Missing {
            field: "a reason code",
        });
    }
    Ok(())
}

/// The shortest form that says it all: nothing for success, one byte for a bare reason.
pub(super) fn write_disconnect(
    last: &Disconnect,
    version: Version,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    let reason = check_reason(PacketType::Disconnect, last.reason)?;
    if version == Version::V311 {
        return check_success(PacketType::Disconnect, last.reason);
    }
    let bare = last.session_expiry.is_none()
        && last.reason_string.is_none()
        && last.server_reference.is_none()
        && last.user_properties.is_empty();
    if bare && last.reason == ReasonCode::Success {
        return Ok(());
    }
    out.u8(reason);
    if bare {
        return Ok(());
    }
    properties(out, |to| {
        to.u32(Property::SessionExpiry, last.session_expiry);
        to.text(Property::ServerReference, last.server_reference.as_ref());
        write_problem_information(&last.reason_string, &last.user_properties, to);
        Ok(())
    })
}

pub(super) fn write_auth(
    auth: &Auth,
    version: Version,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    if version == Version::V311 {
        return Err(EncodeError::NotInThisVersion {
            packet: PacketType::Auth,
        });
    }
    let reason = check_reason(PacketType::Auth, auth.reason)?;
    check_authentication(&auth.authentication_method, &auth.authentication_data)?;
    if auth.authentication_method.is_none() {
        // Only the AUTH that says success and nothing else has no method.
        let bare = auth.reason_string.is_none() && auth.user_properties.is_empty();
        if bare && auth.reason == ReasonCode::Success {
            return Ok(());
        }
        return Err(EncodeError::Missing {
            field: Property::AuthenticationMethod.name(),
        });
    }
    out.u8(reason);
    properties(out, |to| {
        to.text(
            Property::AuthenticationMethod,
            auth.authentication_method.as_ref(),
        );
        to.binary(
            Property::AuthenticationData,
            auth.authentication_data.as_ref(),
        )?;
        write_problem_information(&auth.reason_string, &auth.user_properties, to);
        Ok(())
    })
}
