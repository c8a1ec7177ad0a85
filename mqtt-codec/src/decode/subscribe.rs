//! Reads SUBSCRIBE and UNSUBSCRIBE.
//!
//! Whether a filter is one is not asked here: MQTT 5 answers that for each filter on its own.

use super::Context;
use super::properties::{Properties, duplicate, not_allowed};
use super::reader::Reader;
use crate::error::Fault;
use crate::packet::{QoS, RetainHandling, Subscribe, Subscription, Unsubscribe, Version};
use crate::property::Property;

/// What every filter of a shared subscription begins with.
const SHARE: &[u8] = b"$share/";

pub(super) fn read_subscribe(body: &mut Reader, context: &Context<'_>) -> Result<Subscribe, Fault> {
    let mut subscribe = Subscribe {
        packet_id: body.packet_id()?,
        ..Subscribe::default()
    };
    if context.version == Version::V5 {
        let mut properties = Properties::open(body, context.limits)?;
        while let Some(property) = properties.next()? {
            if property != Property::SubscriptionIdentifier {
                return Err(not_allowed(property));
            }
            if subscribe.subscription_identifier.is_some() {
                return Err(duplicate(property));
            }
            subscribe.subscription_identifier = Some(properties.nonzero_integer(property)?);
        }
        subscribe.user_properties = properties.user_properties();
    }
    while !body.is_empty() {
        check_room(subscribe.filters.len(), context)?;
        subscribe
            .filters
            .push(read_subscription(body, context.version)?);
    }
    // MQTT-3.8.3-2.
    if subscribe.filters.is_empty() {
        return Err(Fault::Empty { field: "filter" });
    }
    Ok(subscribe)
}

fn read_subscription(body: &mut Reader, version: Version) -> Result<Subscription, Fault> {
    let filter = body.text("a filter")?;
    let options = body.u8("the options of a filter")?;
    let reserved = match version {
        Version::V311 => 0b1111_1100,
        Version::V5 => 0b1100_0000,
    };
    if options & reserved != 0 {
        return Err(Fault::SubscriptionReservedBits { found: options });
    }
    let subscription = Subscription {
        qos: QoS::from_u8(options & 3).ok_or(Fault::SubscriptionQos3)?,
        no_local: options & 0b100 != 0,
        retain_as_published: options & 0b1000 != 0,
        retain_handling: match options >> 4 {
            0 => RetainHandling::Always,
            1 => RetainHandling::NewSubscription,
            2 => RetainHandling::Never,
            _ => return Err(Fault::RetainHandling3),
        },
        filter,
    };
    if subscription.no_local && subscription.filter.as_bytes().starts_with(SHARE) {
        return Err(Fault::NoLocalOnSharedSubscription);
    }
    Ok(subscription)
}

pub(super) fn read_unsubscribe(
    body: &mut Reader,
    context: &Context<'_>,
) -> Result<Unsubscribe, Fault> {
    let mut unsubscribe = Unsubscribe {
        packet_id: body.packet_id()?,
        ..Unsubscribe::default()
    };
    if context.version == Version::V5 {
        let mut properties = Properties::open(body, context.limits)?;
        if let Some(property) = properties.next()? {
            return Err(not_allowed(property));
        }
        unsubscribe.user_properties = properties.user_properties();
    }
    while !body.is_empty() {
        check_room(unsubscribe.filters.len(), context)?;
        unsubscribe.filters.push(body.text("a filter")?);
    }
    // MQTT-3.10.3-2.
    if unsubscribe.filters.is_empty() {
        return Err(Fault::Empty { field: "filter" });
    }
    Ok(unsubscribe)
}

fn check_room(filters: usize, context: &Context<'_>) -> Result<(), Fault> {
    let limit = context.limits.max_filters;
    if filters == limit {
        return Err(Fault::TooManyFilters { limit });
    }
    Ok(())
}
