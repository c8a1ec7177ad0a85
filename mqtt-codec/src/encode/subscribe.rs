//! Writes SUBSCRIBE and UNSUBSCRIBE.

use super::EncodeError;
use super::sink::{Sink, properties};
use crate::packet::{Subscribe, Subscription, Unsubscribe, Version};

pub(super) fn write_subscribe(
    subscribe: &Subscribe,
    version: Version,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    out.packet_id(subscribe.packet_id)?;
    if version == Version::V5 {
        properties(out, |to| {
            if let Some(identifier) = subscribe.subscription_identifier {
                to.subscription_identifier(identifier)?;
            }
            to.wire(subscribe.user_properties.wire());
            Ok(())
        })?;
    }
    check_any(subscribe.filters.len())?;
    for subscription in &subscribe.filters {
        out.text(&subscription.filter);
        out.u8(options(subscription, version));
    }
    Ok(())
}

/// To MQTT 3.1.1 the QoS is all there is.
fn options(subscription: &Subscription, version: Version) -> u8 {
    let qos = subscription.qos.level();
    match version {
        Version::V311 => qos,
        Version::V5 => {
            qos | u8::from(subscription.no_local) << 2
                | u8::from(subscription.retain_as_published) << 3
                | (subscription.retain_handling as u8) << 4
        }
    }
}

pub(super) fn write_unsubscribe(
    unsubscribe: &Unsubscribe,
    version: Version,
    out: &mut dyn Sink,
) -> Result<(), EncodeError> {
    out.packet_id(unsubscribe.packet_id)?;
    if version == Version::V5 {
        properties(out, |to| {
            to.wire(unsubscribe.user_properties.wire());
            Ok(())
        })?;
    }
    check_any(unsubscribe.filters.len())?;
    for filter in &unsubscribe.filters {
        out.text(filter);
    }
    Ok(())
}

fn check_any(filters: usize) -> Result<(), EncodeError> {
    if filters == 0 {
        return Err(EncodeError::Missing { field: "a filter" });
    }
    Ok(())
}
