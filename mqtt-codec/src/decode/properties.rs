//! Reads the properties of one packet.

use bytes::{Bytes, BytesMut};

use super::Limits;
use super::reader::Reader;
use crate::error::Fault;
use crate::property::Property;
use crate::text::Text;
use crate::user_properties::UserProperties;

/// The properties of one packet, read one after the other. User Properties are gathered on the
/// way; every other property is handed out, at most once unless it may be there more often.
pub(super) struct Properties {
    reader: Reader,
    /// A bit for each identifier that was there.
    seen: u64,
    users: Users,
}

impl Properties {
    /// Reads the length and takes as many bytes off `reader`.
    pub fn open(reader: &mut Reader, limits: &Limits) -> Result<Self, Fault> {
        let field = "the properties";
        let len = reader.integer("the property length")? as usize;
        Ok(Self::of(reader.take(len, field)?, limits))
    }

    /// Properties without the length in front.
    pub fn of(wire: Bytes, limits: &Limits) -> Self {
        Properties {
            users: Users {
                limit: limits.max_user_properties,
                ..Users::default()
            },
            reader: Reader::new(wire),
            seen: 0,
        }
    }

    /// The next property that is not a User Property. Its value is to be read before the next.
    pub fn next(&mut self) -> Result<Option<Property>, Fault> {
        while !self.reader.is_empty() {
            if self.reader.peek().first() == Some(&(Property::User as u8)) {
                self.users.read(&mut self.reader)?;
                continue;
            }
            let found = self.reader.integer("a property identifier")?;
            let property = Property::from_u32(found).ok_or(Fault::UnknownProperty { found })?;
            match property {
                // The one property that may be repeated, and only in a PUBLISH.
                Property::SubscriptionIdentifier => return Ok(Some(property)),
                _ => {
                    let bit = 1 << found;
                    if self.seen & bit != 0 {
                        return Err(duplicate(property));
                    }
                    self.seen |= bit;
                    return Ok(Some(property));
                }
            }
        }
        Ok(None)
    }

    /// Whether a property was there.
    pub fn had(&self, property: Property) -> bool {
        self.seen & (1 << property as u8) != 0
    }

    /// The User Properties, once everything was read.
    pub fn user_properties(self) -> UserProperties {
        self.users.gathered()
    }

    pub fn u16(&mut self, of: Property) -> Result<u16, Fault> {
        self.reader.u16(of.name())
    }

    pub fn u32(&mut self, of: Property) -> Result<u32, Fault> {
        self.reader.u32(of.name())
    }

    /// A byte that is 0 or 1.
    pub fn flag(&mut self, of: Property) -> Result<bool, Fault> {
        match self.reader.u8(of.name())? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(value(of, u32::from(found))),
        }
    }

    /// Two bytes that are not 0.
    pub fn nonzero_u16(&mut self, of: Property) -> Result<u16, Fault> {
        match self.u16(of)? {
            0 => Err(value(of, 0)),
            found => Ok(found),
        }
    }

    /// Four bytes that are not 0.
    pub fn nonzero_u32(&mut self, of: Property) -> Result<u32, Fault> {
        match self.u32(of)? {
            0 => Err(value(of, 0)),
            found => Ok(found),
        }
    }

    /// A Variable Byte Integer that is not 0.
    pub fn nonzero_integer(&mut self, of: Property) -> Result<u32, Fault> {
        match self.reader.integer(of.name())? {
            0 => Err(value(of, 0)),
            found => Ok(found),
        }
    }

    pub fn text(&mut self, of: Property) -> Result<Text, Fault> {
        self.reader.text(of.name())
    }

    pub fn topic(&mut self, of: Property) -> Result<Text, Fault> {
        let topic = self.reader.topic(of.name())?;
        if topic.is_empty() {
            return Err(Fault::TopicEmpty { field: of.name() });
        }
        Ok(topic)
    }

    pub fn binary(&mut self, of: Property) -> Result<Bytes, Fault> {
        self.reader.binary(of.name())
    }

    /// Authentication Data says nothing without a method to read it by.
    pub fn check_authentication(&self) -> Result<(), Fault> {
        if self.had(Property::AuthenticationData) && !self.had(Property::AuthenticationMethod) {
            return Err(Fault::AuthenticationDataWithoutMethod);
        }
        Ok(())
    }
}

/// The fault of a property a packet does not have.
pub(super) fn not_allowed(property: Property) -> Fault {
    Fault::PropertyNotAllowed {
        name: property.name(),
    }
}

/// The fault of a property that is there again.
pub(super) fn duplicate(property: Property) -> Fault {
    Fault::DuplicateProperty {
        name: property.name(),
    }
}

fn value(property: Property, found: u32) -> Fault {
    Fault::PropertyValue {
        name: property.name(),
        found,
    }
}

/// User Properties on the way into one piece. As a rule they follow one another, and then the
/// piece is a slice of the packet; others in between cost a copy.
#[derive(Default)]
struct Users {
    limit: usize,
    count: usize,
    run: Run,
    before: BytesMut,
}

/// Pairs that follow one another: the packet from the first of them on, and how many bytes they
/// take.
#[derive(Default)]
struct Run {
    from: Bytes,
    len: usize,
}

impl Users {
    /// Reads the pair at the front of `reader`, identifier included.
    fn read(&mut self, reader: &mut Reader) -> Result<(), Fault> {
        if self.count == self.limit {
            return Err(Fault::TooManyUserProperties { limit: self.limit });
        }
        let entry = reader.peek().clone();
        reader.u8("a property identifier")?;
        reader.text("the key of a User Property")?;
        reader.text("the value of a User Property")?;
        self.count += 1;
        let len = entry.len() - reader.len();
        let follows = self.run.from.len() == self.run.len + entry.len();
        if self.run.len > 0 && follows {
            self.run.len += len;
        } else {
            self.close_run();
            self.run = Run { from: entry, len };
        }
        Ok(())
    }

    fn close_run(&mut self) {
        self.before
            .extend_from_slice(self.run.from.get(..self.run.len).unwrap_or_default());
    }

    fn gathered(mut self) -> UserProperties {
        let wire = if self.before.is_empty() {
            self.run.from.split_to(self.run.len)
        } else {
            self.close_run();
            self.before.freeze()
        };
        UserProperties::from_checked(wire, self.count)
    }
}
