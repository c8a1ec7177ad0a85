//! What damage costs: what is lost, what is safe, and what a repair would have to give up besides.

use std::cmp::Ordering;

use saguin_log_engine::format::Kind;
use saguin_recovery::keys::Position;
use saguin_recovery::salvage::{
    Finding, Frames, Kept, OFFSETS_OF_A_LOST_END, Offsets, Salvage, SalvagedChannel,
};
use saguin_recovery::{Damage, lost_name};
use serde::Serialize;

use crate::channels::type_name;
use crate::text::{counted, file_name};

/// Ranges of offsets that a sentence names; the others are counted.
const NAMED_RANGES: usize = 8;

#[derive(Serialize)]
pub(crate) struct Losses {
    /// Damaged places, in the order of the log.
    pub(crate) places: Vec<Place>,
    /// Channels that lost something, or may have.
    pub(crate) channels: Vec<ChannelLoss>,
    /// Readers that a repair leaves below a floor.
    pub(crate) positions_lost: Vec<PositionLost>,
    /// Records that are held back, in no channel yet.
    pub(crate) holds: Holds,
    /// Sessions, positions and the like: a newer value of one may be in the lost frames.
    pub(crate) keys_readable: usize,
    pub(crate) records_readable: u64,
    pub(crate) frames_readable: u64,
    /// Frames may be lost after the last one that is known.
    pub(crate) end_is_lost: bool,
}

#[derive(Serialize)]
pub(crate) struct Holds {
    /// As the log counts them.
    counted: u64,
    readable: u64,
    #[serde(skip)]
    used: bool,
}

#[derive(Serialize)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) segment: Option<u64>,
    pub(crate) position: u64,
    pub(crate) until: u64,
    pub(crate) what: String,
    /// First frame lost, if one is.
    pub(crate) first_lost_lsn: Option<u64>,
    /// Last frame lost; null where that is not known.
    pub(crate) last_lost_lsn: Option<u64>,
    #[serde(skip)]
    pub(crate) frames: Frames,
}

#[derive(Serialize)]
pub(crate) struct ChannelLoss {
    id: u32,
    channel: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Offsets of what is lost.
    lost: Vec<Offsets>,
    lost_offsets: u64,
    /// Offsets that can be read and that a repair would put below the floor.
    given_up: Option<Offsets>,
    given_up_records: u64,
    /// Later records may be lost too: at most so many.
    possibly_lost_after: u64,
    /// Live records as the log counts them.
    counted: u64,
    /// Those that can be read.
    readable: u64,
    next: u64,
    floor: u64,
    /// What a repair would make of them.
    next_after_repair: u64,
    floor_after_repair: u64,
    #[serde(skip)]
    work: Kind,
}

#[derive(Serialize)]
pub(crate) struct PositionLost {
    channel: String,
    reader: String,
    position: u64,
    floor_after_repair: u64,
    missed: u64,
    /// The channel is one of this log; else it only has the number of one.
    judged: bool,
}

impl Losses {
    pub(crate) fn new(salvage: &Salvage) -> Losses {
        let channels = &salvage.model.channels;
        let readable = |c: &SalvagedChannel| c.readable(c.floor);
        Losses {
            places: salvage.findings.iter().map(Place::new).collect(),
            channels: channels
                .iter()
                .map(|(&id, channel)| ChannelLoss::new(id, channel))
                .filter(ChannelLoss::is_one)
                .collect(),
            positions_lost: positions_lost(salvage),
            holds: Holds {
                counted: salvage.model.holds.counted,
                readable: salvage.model.holds.entries.len() as u64,
                used: salvage.model.holds.used,
            },
            keys_readable: salvage.model.keyspace.len(),
            records_readable: channels.values().map(readable).sum(),
            frames_readable: salvage.frames,
            end_is_lost: salvage.end_is_lost(),
        }
    }

    /// With the damage that stops an opening among its places, also where reading on made nothing of it.
    pub(crate) fn stopped_by(mut self, damage: &Damage) -> Losses {
        let file = damage.path.to_string_lossy().into_owned();
        if self.places.is_empty() {
            let place = Place {
                file,
                segment: None,
                position: damage.at,
                until: damage.at,
                what: damage.kind.to_string(),
                first_lost_lsn: None,
                last_lost_lsn: None,
                frames: Frames::None,
            };
            self.places.push(place);
        }
        self
    }

    /// What is lost and what is safe; with `repair`, also what a repair would give up.
    pub(crate) fn sentences(&self, repair: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for place in &self.places {
            lines.extend(place.sentence());
        }
        for channel in &self.channels {
            lines.extend(channel.sentences(repair));
        }
        lines.extend(self.unsure());
        lines.extend(self.holds.sentence(self.any_frame()));
        if self.any_frame() {
            lines.push(
                "LOST perhaps: the newest state of sessions and positions; what can be read of them \
                 may be older, so readers may be given records again"
                    .to_owned(),
            );
        }
        if repair {
            lines.extend(self.positions_lost.iter().map(PositionLost::sentence));
        }
        lines.push(format!(
            "SAFE: {}, {} and {} can be read",
            counted(self.frames_readable, "frame"),
            counted(self.records_readable, "live record"),
            counted(self.keys_readable as u64, "small value"),
        ));
        lines
    }

    fn any_frame(&self) -> bool {
        self.places.iter().any(|p| p.frames != Frames::None)
    }

    fn unsure(&self) -> Option<String> {
        let unsure = self.channels.iter().filter(|c| c.possibly_lost_after > 0);
        let names: Vec<&str> = unsure.map(|c| c.channel.as_str()).collect();
        let named = names.iter().take(NAMED_RANGES).copied();
        let named = named.collect::<Vec<_>>().join(", ");
        match names.len() {
            0 => None,
            n if n > NAMED_RANGES => Some(format!(
                "LOST perhaps: records after the last readable one of {n} channels, the first of \
                 them {named}; what was in the lost frames is not known"
            )),
            _ => Some(format!(
                "LOST perhaps: records after the last readable one of {named}; what was in the lost \
                 frames is not known"
            )),
        }
    }
}

impl Place {
    fn new(finding: &Finding) -> Place {
        let (first, last) = match finding.frames {
            Frames::None => (None, None),
            Frames::Range(first, last) => (Some(first), Some(last)),
            Frames::From(first) | Frames::AtLeast(first, _) => (Some(first), None),
            Frames::Before(next) => (None, Some(next.saturating_sub(1))),
        };
        Place {
            file: finding.path.to_string_lossy().into_owned(),
            segment: finding.segment,
            position: finding.at,
            until: finding.until,
            what: finding.cause.to_string(),
            first_lost_lsn: first,
            last_lost_lsn: last,
            frames: finding.frames,
        }
    }

    fn sentence(&self) -> Option<String> {
        let frames = match self.frames {
            Frames::None => return None,
            Frames::Range(first, last) if first == last => format!("frame {first}"),
            Frames::Range(first, last) => format!("frames {first} to {last}"),
            Frames::From(first) => format!("frame {first} and all after it"),
            Frames::AtLeast(first, last) => {
                let frames = match first == last {
                    true => format!("frame {first}, which was"),
                    false => format!("frames {first} to {last}, which were"),
                };
                format!("{frames} acknowledged, and all after it, if there were more")
            }
            Frames::Before(next) => format!("frames before {next}"),
        };
        let file = file_name(std::path::Path::new(&self.file));
        Some(match self.until > self.position {
            true => format!(
                "LOST {frames}: in {file} from {} to {}",
                self.position, self.until
            ),
            false => format!("LOST {frames}: {}", self.what),
        })
    }
}

impl Holds {
    fn sentence(&self, any_frame: bool) -> Option<String> {
        let (counted_, readable) = (self.counted, self.readable);
        let records = |n| counted(n, "record");
        match counted_.cmp(&readable) {
            Ordering::Greater => Some(format!(
                "LOST held back: {} of {counted_} that had not come into a channel yet; their publishers \
                 were told that the broker has them, and do not send them again",
                records(counted_ - readable)
            )),
            Ordering::Less => Some(format!(
                "NOT KNOWN held back: {} that had come into a channel or been given up may be held \
                 again, because what says so is lost; one whose publisher completes it once more comes \
                 into its channel a second time",
                records(readable - counted_)
            )),
            Ordering::Equal if self.used && any_frame => Some(
                "LOST perhaps: records that were held back in the lost frames; some that can be read \
                 may have come into a channel since"
                    .to_owned(),
            ),
            Ordering::Equal => None,
        }
    }
}

impl ChannelLoss {
    fn new(id: u32, channel: &SalvagedChannel) -> ChannelLoss {
        let lost = match channel.kept {
            Kept::Sequence(_) => channel.holes(),
            Kept::Map(_) | Kept::Work(_) => channel.jumps.clone(),
        };
        let floor = channel.new_floor();
        let readable = channel.readable(channel.floor);
        let given_up_records = readable - channel.readable(floor).min(readable);
        let name = channel.name.as_deref();
        ChannelLoss {
            id,
            channel: name.map_or_else(
                || lost_name(id),
                |name| String::from_utf8_lossy(name).into_owned(),
            ),
            kind: type_name(channel.kind),
            lost_offsets: lost.iter().map(|(first, last)| last - first + 1).sum(),
            lost,
            given_up: (given_up_records > 0).then(|| (channel.floor, floor - 1)),
            given_up_records,
            possibly_lost_after: channel.unsure,
            counted: channel.counted,
            readable,
            next: channel.next,
            floor: channel.floor,
            next_after_repair: channel.new_next(),
            floor_after_repair: floor,
            work: channel.kind,
        }
    }

    fn is_one(&self) -> bool {
        !self.lost.is_empty() || self.possibly_lost_after > 0 || self.counted != self.readable
    }

    fn sentences(&self, repair: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let ChannelLoss {
            channel,
            kind,
            counted: live,
            readable,
            ..
        } = self;
        if !self.lost.is_empty() {
            let (what, because) = match self.work {
                Kind::Sequence => ("record", String::new()),
                Kind::Work => ("job", ", but for those that were done".to_owned()),
                Kind::Map => (
                    "value",
                    ": of which topics is not known; these may show an older one".to_owned(),
                ),
            };
            let ranges = ranges(&self.lost);
            lines.push(format!(
                "LOST channel {channel} ({kind}): {what}s {ranges}{because}"
            ));
        }
        match self.work {
            Kind::Work | Kind::Map if readable > live => {
                let surplus = readable - live;
                let again = match self.work {
                    Kind::Work => "that were done may be offered again",
                    _ => "that were replaced or deleted may be shown again",
                };
                let what = if self.work == Kind::Work {
                    "job"
                } else {
                    "value"
                };
                lines.push(format!(
                    "NOT KNOWN channel {channel} ({kind}): {} {again}, because what says so is lost",
                    counted(surplus, what)
                ));
            }
            Kind::Work | Kind::Map if live > readable => lines.push(format!(
                "LOST channel {channel} ({kind}): {} of {live}",
                live - readable
            )),
            _ => {}
        }
        if repair {
            if let Some((first, _)) = self.given_up {
                lines.push(format!(
                    "GIVEN UP channel {channel}: {} from {first} on can be read, but lie before \
                     lost ones; no reader may pass those unknowingly, so the floor rises to {}. `export` \
                     them first, or from the copy",
                    counted(self.given_up_records, "record"),
                    self.floor_after_repair
                ));
            } else if self.floor_after_repair > self.floor {
                let (was, floor) = (self.floor, self.floor_after_repair);
                lines.push(format!(
                    "channel {channel}: the floor rises from {was} to {floor}"
                ));
            }
            if self.next_after_repair > self.next {
                let next = self.next_after_repair;
                let why = match self.possibly_lost_after {
                    0 => "those that may have been handed out before they were on the disk",
                    OFFSETS_OF_A_LOST_END.. => "more offsets than the lost end can have held",
                    _ => "more offsets than the lost bytes can have held",
                };
                lines.push(format!(
                    "channel {channel}: the next record takes offset {next}, past {why}, so that none is \
                     used twice"
                ));
            }
        }
        lines
    }
}

impl PositionLost {
    fn sentence(&self) -> String {
        let PositionLost {
            channel,
            reader,
            position,
            floor_after_repair: floor,
            missed,
            judged,
        } = self;
        let perhaps = match judged {
            true => "",
            false => {
                " perhaps, if the channel of this number is meant and not one in another provider:"
            }
        };
        format!(
            "POSITION LOST{perhaps} reader {reader} of channel {channel}: it is at {position}, the floor will be \
             {floor}, {} it was still owed are not served",
            counted(*missed, "offset")
        )
    }
}

fn ranges(ranges: &[Offsets]) -> String {
    let show = |&(first, last): &Offsets| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    let shown: Vec<_> = ranges.iter().take(NAMED_RANGES).map(show).collect();
    let shown = shown.join(", ");
    match ranges.len().saturating_sub(NAMED_RANGES) {
        0 => shown,
        more => format!("{shown} and {more} more stretches"),
    }
}

fn positions_lost(salvage: &Salvage) -> Vec<PositionLost> {
    let mut lost = Vec::new();
    for ((space, key), value) in &salvage.model.keyspace {
        let Some(found) = Position::read(*space, key, value) else {
            continue;
        };
        let (id, position) = (found.channel, found.offset);
        let Some(channel) = salvage.model.channels.get(&id) else {
            continue;
        };
        let floor = channel.new_floor();
        if channel.kind != Kind::Sequence || position >= floor || floor == channel.floor {
            continue;
        }
        let name = channel.name.as_deref();
        lost.push(PositionLost {
            channel: name.map_or_else(
                || lost_name(id),
                |name| String::from_utf8_lossy(name).into_owned(),
            ),
            reader: String::from_utf8_lossy(found.reader).into_owned(),
            position,
            floor_after_repair: floor,
            missed: floor - position,
            judged: found.judged,
        });
    }
    lost
}
