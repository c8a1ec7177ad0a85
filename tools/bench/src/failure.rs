//! Why there is no figure. Each reads as a sentence.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use saguin_mqtt_codec::{DecodeError, EncodeError, ReasonCode};

/// Why there is no figure.
#[derive(Debug)]
pub enum Failure {
    /// The options make no sense together, or not on this machine; a sentence.
    Options(String),
    /// The broker could not be started; a sentence with the end of what it logged.
    Start(String),
    /// There is no connection to be had.
    Connect {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The broker said no.
    Refused {
        /// To what.
        what: &'static str,
        /// With which code.
        code: u8,
        /// Its own words, where it had some.
        words: Option<String>,
    },
    /// The broker ended a connection.
    Closed {
        /// What was waited for.
        during: &'static str,
        /// The code and the words of its DISCONNECT, where it sent one.
        said: Option<(ReasonCode, String)>,
    },
    /// The broker sent what MQTT has not.
    Decode(DecodeError),
    /// The broker sent what nobody asked for, lost what it acknowledged, or confused an order; a sentence.
    Broken(String),
    /// Nothing came.
    Silence {
        /// What was waited for.
        what: &'static str,
        /// How long.
        waited: Duration,
    },
    /// A packet of ours is none of MQTT's.
    Encode(EncodeError),
    /// The system refused something.
    System {
        /// What was tried.
        what: &'static str,
        /// What it says.
        error: io::Error,
    },
}

impl Failure {
    /// For `map_err` of a call to the system.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Failure {
        move |error| Failure::System {
            what,
            error: error.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Options(sentence) | Failure::Start(sentence) | Failure::Broken(sentence) => {
                f.write_str(sentence)
            }
            Failure::Connect { address, error } => write!(
                f,
                "there is no connection to {address} ({error}): start a broker there, or name another with --broker"
            ),
            Failure::Refused { what, code, words } => {
                let reason = ReasonCode::from_u8(*code).map_or("an unknown code", ReasonCode::text);
                write!(f, "the broker refused {what} with 0x{code:02X}, {reason}")?;
                match words {
                    Some(words) => write!(f, ": {words}"),
                    None => Ok(()),
                }
            }
            Failure::Closed { during, said: None } => write!(
                f,
                "the broker closed a connection without a word while {during} was waited for: its log says why"
            ),
            Failure::Closed {
                during,
                said: Some((reason, words)),
            } => {
                let (code, reason) = (reason.code(), reason.text());
                write!(
                    f,
                    "the broker closed a connection while {during} was waited for, with 0x{code:02X}, {reason}"
                )?;
                if words.is_empty() {
                    return Ok(());
                }
                write!(f, ": {words}")
            }
            Failure::Decode(error) => {
                write!(f, "the broker sent something MQTT has not: {}", error.fault)
            }
            Failure::Silence { what, waited } => write!(
                f,
                "the broker sent nothing for {} s while {what} was waited for: it has lost it, or needs more than --patience allows",
                waited.as_secs_f64()
            ),
            Failure::Encode(error) => {
                write!(f, "the options ask for what MQTT cannot say: {error}")
            }
            Failure::System { what, error } => write!(f, "could not {what}: {error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Failure::Decode(error)
    }
}

impl From<EncodeError> for Failure {
    fn from(error: EncodeError) -> Self {
        Failure::Encode(error)
    }
}
