//! Reads the answers: CONNACK, PUBACK and its kin, SUBACK, UNSUBACK, DISCONNECT and AUTH.

use super::Context;
use super::properties::{Properties, not_allowed};
use super::reader::Reader;
use crate::error::Fault;
use crate::packet::{
    Ack, Auth, ConnAck, ConnAckProperties, Disconnect, PacketType, QoS, Role, SubAck, UnsubAck,
    Version,
};
use crate::property::Property;
use crate::reason::{ConnectReturnCode, ReasonCode};
use crate::text::Text;
use crate::user_properties::UserProperties;

fn read_reason(
    packet: PacketType,
    body: &mut Reader,
    context: &Context<'_>,
) -> Result<ReasonCode, Fault> {
    let found = body.u8("the reason code")?;
    ReasonCode::from_u8(found)
        .filter(|reason| reason.is_allowed_in(packet, context.sender))
        .ok_or(Fault::ReasonCode { found })
}

pub(super) fn read_connack(body: &mut Reader, context: &Context<'_>) -> Result<ConnAck, Fault> {
    let flags = body.u8("the acknowledge flags")?;
    if flags > 1 {
        return Err(Fault::ConnAckFlags { found: flags });
    }
    let mut connack = ConnAck {
        session_present: flags == 1,
        reason: ReasonCode::Success,
        properties: ConnAckProperties::default(),
    };
    match context.version {
        Version::V311 => {
            let found = body.u8("the return code")?;
            let code = ConnectReturnCode::from_u8(found).ok_or(Fault::ReturnCode { found })?;
            connack.reason = code.reason();
        }
        Version::V5 => {
            connack.reason = read_reason(PacketType::ConnAck, body, &as_server(context))?;
            connack.properties = read_connack_properties(body, context)?;
        }
    }
    if connack.session_present && connack.reason != ReasonCode::Success {
        return Err(Fault::SessionPresentWithRefusal);
    }
    Ok(connack)
}

fn read_connack_properties(
    body: &mut Reader,
    context: &Context<'_>,
) -> Result<ConnAckProperties, Fault> {
    use Property as P;
    let mut properties = Properties::open(body, context.limits)?;
    let mut read = ConnAckProperties::default();
    while let Some(p) = properties.next()? {
        match p {
            P::SessionExpiry => read.session_expiry = Some(properties.u32(p)?),
            P::ReceiveMaximum => read.receive_maximum = Some(properties.nonzero_u16(p)?),
            P::MaximumQos => {
                read.maximum_qos = Some(if properties.flag(p)? {
                    QoS::AtLeastOnce
                } else {
                    QoS::AtMostOnce
                });
            }
            P::RetainAvailable => read.retain_available = Some(properties.flag(p)?),
            P::MaximumPacketSize => read.maximum_packet_size = Some(properties.nonzero_u32(p)?),
            P::AssignedClientId => read.assigned_client_id = Some(properties.text(p)?),
            P::TopicAliasMaximum => read.topic_alias_maximum = Some(properties.u16(p)?),
            P::ReasonString => read.reason_string = Some(properties.text(p)?),
            P::WildcardSubscriptionAvailable => {
                read.wildcard_subscription_available = Some(properties.flag(p)?);
            }
            P::SubscriptionIdentifiersAvailable => {
                read.subscription_identifiers_available = Some(properties.flag(p)?);
            }
            P::SharedSubscriptionAvailable => {
                read.shared_subscription_available = Some(properties.flag(p)?);
            }
            P::ServerKeepAlive => read.server_keep_alive = Some(properties.u16(p)?),
            P::ResponseInformation => read.response_information = Some(properties.text(p)?),
            P::ServerReference => read.server_reference = Some(properties.text(p)?),
            P::AuthenticationMethod => read.authentication_method = Some(properties.text(p)?),
            P::AuthenticationData => read.authentication_data = Some(properties.binary(p)?),
            _ => return Err(not_allowed(p)),
        }
    }
    properties.check_authentication()?;
    read.user_properties = properties.user_properties();
    Ok(read)
}

/// A Reason String and User Properties, which is all that most answers have.
fn read_problem_information(
    body: &mut Reader,
    context: &Context<'_>,
) -> Result<(Option<Text>, UserProperties), Fault> {
    let mut properties = Properties::open(body, context.limits)?;
    let mut reason_string = None;
    while let Some(property) = properties.next()? {
        match property {
            Property::ReasonString => reason_string = Some(properties.text(property)?),
            _ => return Err(not_allowed(property)),
        }
    }
    Ok((reason_string, properties.user_properties()))
}

/// Two bytes say success, three a reason, and only from the fourth on are there properties.
pub(super) fn read_ack(
    packet: PacketType,
    body: &mut Reader,
    context: &Context<'_>,
) -> Result<Ack, Fault> {
    let mut ack = Ack::new(body.packet_id()?, ReasonCode::Success);
    if context.version == Version::V311 || body.is_empty() {
        return Ok(ack);
    }
    ack.reason = read_reason(packet, body, context)?;
    if !body.is_empty() {
        (ack.reason_string, ack.user_properties) = read_problem_information(body, context)?;
    }
    Ok(ack)
}

pub(super) fn read_suback(body: &mut Reader, context: &Context<'_>) -> Result<SubAck, Fault> {
    let mut ack = SubAck::new(body.packet_id()?, Vec::new());
    if context.version == Version::V5 {
        (ack.reason_string, ack.user_properties) = read_problem_information(body, context)?;
    }
    while !body.is_empty() {
        let reason = read_reason(PacketType::SubAck, body, &as_server(context))?;
        if context.version == Version::V311
            && reason.is_refusal()
            && reason != ReasonCode::Unspecified
        {
            return Err(Fault::ReturnCode {
                found: reason.code(),
            });
        }
        ack.reasons.push(reason);
    }
    if ack.reasons.is_empty() {
        return Err(Fault::Empty {
            field: "reason code",
        });
    }
    Ok(ack)
}

pub(super) fn read_unsuback(body: &mut Reader, context: &Context<'_>) -> Result<UnsubAck, Fault> {
    let mut ack = UnsubAck::new(body.packet_id()?, Vec::new());
    if context.version == Version::V311 {
        return Ok(ack);
    }
    (ack.reason_string, ack.user_properties) = read_problem_information(body, context)?;
    while !body.is_empty() {
        ack.reasons.push(read_reason(
            PacketType::UnsubAck,
            body,
            &as_server(context),
        )?);
    }
    if ack.reasons.is_empty() {
        return Err(Fault::Empty {
            field: "reason code",
        });
    }
    Ok(ack)
}

/// Whether a packet only a server sends parses is asked as if a server had sent it.
fn as_server<'a>(context: &Context<'a>) -> Context<'a> {
    Context {
        sender: Role::Server,
        ..*context
    }
}

/// Without a byte it says success, with one a reason, and only from the second on are there
/// properties.
pub(super) fn read_disconnect(
    body: &mut Reader,
    context: &Context<'_>,
) -> Result<Disconnect, Fault> {
    let mut last = Disconnect::new(ReasonCode::Success);
    if context.version == Version::V311 || body.is_empty() {
        return Ok(last);
    }
    last.reason = read_reason(PacketType::Disconnect, body, context)?;
    if body.is_empty() {
        return Ok(last);
    }
    let mut properties = Properties::open(body, context.limits)?;
    while let Some(property) = properties.next()? {
        match property {
            Property::SessionExpiry => last.session_expiry = Some(properties.u32(property)?),
            Property::ReasonString => last.reason_string = Some(properties.text(property)?),
            Property::ServerReference => last.server_reference = Some(properties.text(property)?),
            _ => return Err(not_allowed(property)),
        }
    }
    let wrong_side = match context.sender {
        Role::Client => Property::ServerReference,
        // MQTT-3.14.2-2.
        Role::Server => Property::SessionExpiry,
    };
    if properties.had(wrong_side) {
        return Err(Fault::PropertyFromWrongSide {
            name: wrong_side.name(),
        });
    }
    last.user_properties = properties.user_properties();
    Ok(last)
}

/// Without a byte it says success and nothing else.
pub(super) fn read_auth(body: &mut Reader, context: &Context<'_>) -> Result<Auth, Fault> {
    let mut auth = Auth {
        reason: ReasonCode::Success,
        authentication_method: None,
        authentication_data: None,
        reason_string: None,
        user_properties: UserProperties::new(),
    };
    if body.is_empty() {
        return match context.sender {
            Role::Server => Ok(auth),
            Role::Client => Err(Fault::ReasonCode { found: 0 }),
        };
    }
    auth.reason = read_reason(PacketType::Auth, body, context)?;
    let mut properties = Properties::open(body, context.limits)?;
    while let Some(property) = properties.next()? {
        match property {
            Property::AuthenticationMethod => {
                auth.authentication_method = Some(properties.text(property)?);
            }
            Property::AuthenticationData => {
                auth.authentication_data = Some(properties.binary(property)?);
            }
            Property::ReasonString => auth.reason_string = Some(properties.text(property)?),
            _ => return Err(not_allowed(property)),
        }
    }
    properties.check_authentication()?;
    if auth.authentication_method.is_none() {
        return Err(Fault::AuthenticationMethodMissing);
    }
    auth.user_properties = properties.user_properties();
    Ok(auth)
}
