//! Frames cut short, with bits turned, and made of others' pieces: never a panic, and never a byte
//! beyond the declared end.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "common/samples.rs"]
mod samples;

use bytes::BytesMut;
use common::*;
use saguin_mqtt_codec::*;
use samples::{Sample, samples};

/// What follows a frame in the buffer, to be found untouched.
const BEHIND: [u8; 8] = [0xA5; 8];

/// How long the frame at the front says it is.
fn declared(bytes: &[u8]) -> Option<usize> {
    let (mut len, mut at) = (0, 1);
    loop {
        let byte = *bytes.get(at)?;
        len |= usize::from(byte & 0x7F) << (7 * (at - 1));
        at += 1;
        if byte & 0x80 == 0 {
            return Some(at + len);
        }
        if at == 5 {
            return None;
        }
    }
}

/// Decodes, and holds the decoder to its promises. Returns whether a packet was taken.
fn probe(sender: Role, version: Option<Version>, bytes: &[u8]) -> bool {
    let mut buf = BytesMut::from(bytes);
    let outcome = decode(&mut buf, version, sender, &limits());
    let consumed = bytes.len() - buf.len();
    match &outcome {
        Ok(None) => assert_eq!(consumed, 0),
        // On an error the frame may be gone, and nothing behind it.
        Err(error) => {
            assert!(
                consumed == 0 || Some(consumed) == declared(bytes),
                "{error}"
            );
            assert!(error.reason.is_refusal() && !error.to_string().is_empty());
            let _ = error.reply();
        }
        Ok(Some(_)) => assert_eq!(Some(consumed), declared(bytes)),
    }
    assert_eq!(
        &buf[..],
        &bytes[consumed..],
        "what is behind stays as it was"
    );
    let Ok(Some(packet)) = outcome else {
        return false;
    };
    is_stable(sender, version, packet);
    true
}

/// What was decoded encodes, and decodes to itself.
fn is_stable(sender: Role, version: Option<Version>, packet: Packet) {
    let spoken = match &packet {
        Packet::Connect(connect) => connect.version,
        _ => version.unwrap(),
    };
    let bytes = encoded(&packet, spoken);
    assert_eq!(taken_from(sender, version, &bytes), packet);
}

fn with_behind(bytes: &[u8]) -> Vec<u8> {
    [bytes, &BEHIND].concat()
}

#[test]
fn every_sample_is_taken_as_it_is() {
    for sample in samples() {
        let packet = taken_from(sample.sender, sample.spoken(), &sample.bytes);
        assert_eq!(packet, sample.packet);
        assert!(probe(
            sample.sender,
            sample.spoken(),
            &with_behind(&sample.bytes)
        ));
    }
}

#[test]
fn every_beginning_of_a_frame_is_waited_upon() {
    for sample in samples() {
        for len in 0..sample.bytes.len() {
            let outcome = decode_from(sample.sender, sample.spoken(), &sample.bytes[..len]);
            assert_eq!(outcome, Ok(None), "{len} bytes of {:?}", sample.packet);
        }
    }
}

/// The body cut short, with a length that says so.
#[test]
fn every_truncated_body_ends_where_it_says() {
    for Sample {
        sender,
        packet,
        bytes,
        version,
    } in samples()
    {
        let body = &bytes[bytes.len() - (declared(&bytes).unwrap() - header_len(&bytes))..];
        for len in 0..body.len() {
            let spoken = match packet {
                Packet::Connect(_) => None,
                _ => Some(version),
            };
            probe(sender, spoken, &with_behind(&frame(bytes[0], &body[..len])));
        }
    }
}

fn header_len(bytes: &[u8]) -> usize {
    1 + bytes[1..]
        .iter()
        .take_while(|byte| **byte & 0x80 != 0)
        .count()
        + 1
}

#[test]
fn every_single_bit_turned() {
    let mut refused = 0;
    for sample in samples() {
        for bit in 0..8 * sample.bytes.len() {
            let mut bytes = sample.bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            for version in [None, V311, V5] {
                for sender in [Role::Client, Role::Server] {
                    refused += usize::from(!probe(sender, version, &with_behind(&bytes)));
                }
            }
        }
    }
    assert!(refused > 10_000, "{refused}");
}

/// A small generator of its own, so that a seed says everything.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Bytes that mean something somewhere.
const TELLING: [u8; 16] = [
    0, 1, 2, 3, 0x0B, 0x23, 0x26, 0x7F, 0x80, 0xFF, b'#', b'+', b'/', b'$', 0xC0, 0xED,
];

fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(7) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = TELLING[random.below(TELLING.len())],
        2 => bytes[at] = random.next() as u8,
        3 => {
            bytes.remove(at);
        }
        4 => bytes.insert(at, TELLING[random.below(TELLING.len())]),
        5 => {
            let from = random.below(other.len());
            let until = (from + random.below(24)).min(other.len());
            bytes.splice(at..at, other[from..until].iter().copied());
        }
        _ => {
            let until = (at + random.below(24)).min(bytes.len());
            bytes.drain(at..until);
        }
    }
    if bytes.is_empty() {
        bytes.push(0x30);
    }
}

#[test]
fn a_hundred_thousand_mutated_frames() {
    // SAGUIN_SEED repeats a run.
    let seed = std::env::var("SAGUIN_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| {
            let since = std::time::UNIX_EPOCH.elapsed().unwrap();
            since.as_nanos() as u64
        });
    println!("SAGUIN_SEED={seed}");
    let mut random = Random(seed);
    let samples = samples();
    let mut taken = 0;
    for _ in 0..100_000 {
        let sample = &samples[random.below(samples.len())];
        let other = &samples[random.below(samples.len())];
        let mut bytes = sample.bytes.to_vec();
        for _ in 0..=random.below(4) {
            mutate(&mut bytes, &other.bytes, &mut random);
        }
        // As a rule the length fits the body, or nothing behind the header would be reached.
        if random.below(4) > 0 {
            let body_at = header_len(&bytes).min(bytes.len());
            bytes = frame(bytes[0], &bytes[body_at..]);
        }
        let spoken = match random.below(8) {
            0 => [None, V311, V5][random.below(3)],
            _ => sample.spoken(),
        };
        let sender = match random.below(8) {
            0 => Role::Server,
            _ => sample.sender,
        };
        taken += usize::from(probe(sender, spoken, &with_behind(&bytes)));
    }
    println!("{taken} of 100000 were taken");
    assert!((1_000..90_000).contains(&taken), "{taken}");
}
