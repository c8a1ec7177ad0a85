//! Many connections on one thread: as few system calls, copies and looks at the clock as there can be,
//! because the broker shares the machine.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use saguin_mqtt_codec::{
    ConnAck, Connect, Disconnect, Packet, QoS, ReasonCode, Subscribe, Subscription, Text, Version,
    encode,
};

use crate::alarm::{ALARM, Alarm};
use crate::failure::Failure;
use crate::frame::{self, Frame};

/// Read at once from a socket.
const CHUNK: usize = 256 * 1024;

/// What waits to be written to one connection.
pub type Out = Vec<u8>;

/// The connections of one measurement. They close when this is dropped.
pub struct Connections {
    address: SocketAddr,
    /// How long nothing may come before that is an error.
    pub patience: Duration,
    epoll: OwnedFd,
    alarm: Alarm,
    connections: Vec<Connection>,
    chunk: Vec<u8>,
    /// Connections with packets that came right behind their CONNACK.
    primed: Vec<usize>,
}

struct Connection {
    stream: TcpStream,
    out: Out,
    /// The beginning of a packet whose rest has not come.
    begun: Vec<u8>,
    /// Whether the system is asked to say when there is room to write.
    blocked: bool,
    /// Nobody reads from it.
    deaf: bool,
}

/// An MQTT 5 CONNECT with a session that ends with it, or after an hour.
///
/// # Errors
/// A client id that is no text.
pub fn connect_packet(client_id: &str, durable: bool, fresh: bool) -> Result<Connect, Failure> {
    let mut connect = Connect::new(Version::V5, text(client_id)?);
    connect.clean_start = fresh || !durable;
    connect.session_expiry = if durable { 3600 } else { 0 };
    Ok(connect)
}

/// Text of MQTT.
///
/// # Errors
/// What MQTT does not allow.
pub fn text(text: &str) -> Result<Text, Failure> {
    Text::try_from(text)
        .map_err(|error| Failure::Options(format!("{text:?} is no text of MQTT: {error}")))
}

/// Appends a packet.
///
/// # Errors
/// A packet MQTT cannot say.
pub fn append(packet: &Packet, out: &mut Out) -> Result<(), Failure> {
    let mut bytes = BytesMut::new();
    encode(packet, Version::V5, &mut bytes)?;
    out.extend_from_slice(&bytes);
    Ok(())
}

/// Appends a PUBACK with Success.
pub fn append_puback(id: u16, out: &mut Out) {
    let [high, low] = id.to_be_bytes();
    out.extend_from_slice(&[0x40, 2, high, low]);
}

/// A SUBSCRIBE to one filter.
///
/// # Errors
/// A filter that is no text.
pub fn subscribe_packet(filter: &str, qos: QoS) -> Result<Packet, Failure> {
    Ok(Packet::Subscribe(Subscribe {
        packet_id: 1,
        filters: vec![Subscription {
            filter: text(filter)?,
            qos,
            ..Subscription::default()
        }],
        ..Subscribe::default()
    }))
}

/// Judges a SUBACK for one filter.
///
/// # Errors
/// A refusal, or a packet that is no SUBACK.
pub fn granted(packet: &Packet) -> Result<(), Failure> {
    match packet {
        Packet::SubAck(ack) => match ack.reasons.first() {
            Some(reason) if !reason.is_refusal() => Ok(()),
            reason => Err(Failure::Refused {
                what: "a subscription",
                code: reason.map_or(0x80, |reason| reason.code()),
                words: ack.reason_string.as_ref().map(ToString::to_string),
            }),
        },
        other => Err(unexpected(other)),
    }
}

/// A packet that nobody asked for.
pub fn unexpected(packet: &Packet) -> Failure {
    let name = packet.packet_type().name();
    Failure::Broken(format!("the broker sent a {name} that nothing asked for"))
}

impl Connections {
    /// None yet.
    ///
    /// # Errors
    /// The system's.
    pub fn new(address: SocketAddr, patience: Duration) -> Result<Self, Failure> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(Failure::system("wait"))?;
        let alarm = Alarm::new(&epoll)?;
        Ok(Connections {
            address,
            patience,
            epoll,
            alarm,
            connections: Vec::new(),
            chunk: vec![0; CHUNK],
            primed: Vec::new(),
        })
    }

    /// Opens one; where it stands, and what the broker said.
    ///
    /// # Errors
    /// No connection, no CONNACK in time, or a refusal.
    pub fn open(&mut self, connect: Connect) -> Result<(usize, ConnAck), Failure> {
        let failed = |error| Failure::Connect {
            address: self.address,
            error,
        };
        let stream = TcpStream::connect_timeout(&self.address, self.patience).map_err(failed)?;
        let at = self.adopt(stream)?;
        append(&Packet::Connect(Box::new(connect)), self.out(at))?;
        let connack = self.handshake(at)?;
        let nonblocking = |c: &Connection| c.stream.set_nonblocking(true);
        self.with(at, "prepare a socket", nonblocking)?;
        if let Some(connection) = self.connections.get(at) {
            let (data, read) = (EventData::new_u64(at as u64), EventFlags::IN);
            epoll::add(&self.epoll, &connection.stream, data, read)
                .map_err(Failure::system("wait for a socket"))?;
            if !connection.begun.is_empty() {
                self.primed.push(at);
            }
        }
        Ok((at, connack))
    }

    /// Begins to open one and waits for nothing: its CONNACK comes to [`turn`](Self::turn) as any packet.
    ///
    /// # Errors
    /// No connection.
    pub fn start(&mut self, connect: Connect) -> Result<(), Failure> {
        let family = match self.address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)
            .map_err(Failure::system("make a socket"))?;
        match rustix::net::connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => {
                return Err(Failure::Connect {
                    address: self.address,
                    error: error.into(),
                });
            }
        }
        let at = self.adopt(TcpStream::from(socket))?;
        append(&Packet::Connect(Box::new(connect)), self.out(at))?;
        let connection = self.connections.get_mut(at).ok_or_else(gone)?;
        connection.blocked = true;
        let data = EventData::new_u64(at as u64);
        let both = EventFlags::IN | EventFlags::OUT;
        epoll::add(&self.epoll, &connection.stream, data, both)
            .map_err(Failure::system("wait for a socket"))
    }

    fn adopt(&mut self, stream: TcpStream) -> Result<usize, Failure> {
        let set = stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(self.patience)))
            .and_then(|()| stream.set_write_timeout(Some(self.patience)));
        set.map_err(Failure::system("prepare a socket"))?;
        self.connections.push(Connection {
            stream,
            out: Vec::new(),
            begun: Vec::new(),
            blocked: false,
            deaf: false,
        });
        Ok(self.connections.len() - 1)
    }

    /// Writes the CONNECT and waits for its answer; what comes behind it stays for the first turn.
    fn handshake(&mut self, at: usize) -> Result<ConnAck, Failure> {
        let (patience, address) = (self.patience, self.address);
        let Some(connection) = self.connections.get_mut(at) else {
            return Err(gone());
        };
        let failed = |error: std::io::Error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::Silence {
                what: "a CONNACK",
                waited: patience,
            },
            _ => Failure::Connect { address, error },
        };
        connection
            .stream
            .write_all(&connection.out)
            .map_err(failed)?;
        connection.out.clear();
        loop {
            if let Some((frame, len)) = frame::next(&connection.begun)? {
                let Frame::Other(packet) = frame else {
                    let early = "the broker sent something before its CONNACK";
                    return Err(Failure::Broken(early.into()));
                };
                let connack = admitted(*packet)?;
                connection.begun.drain(..len);
                return Ok(connack);
            }
            let mut some = [0; 4096];
            match connection.stream.read(&mut some).map_err(failed)? {
                0 => {
                    return Err(Failure::Closed {
                        during: "a CONNACK",
                        said: None,
                    });
                }
                read => connection
                    .begun
                    .extend_from_slice(some.get(..read).unwrap_or_default()),
            }
        }
    }

    /// What waits to be written to this connection. [`flush`](Self::flush) writes it.
    ///
    /// # Panics
    /// For a number [`open`](Self::open) never gave.
    pub fn out(&mut self, at: usize) -> &mut Out {
        #[expect(clippy::indexing_slicing, reason = "numbers come from `open`")]
        &mut self.connections[at].out
    }

    /// Writes what waits, as far as the socket has room; the rest goes when it has.
    ///
    /// # Errors
    /// A connection that is gone.
    pub fn flush(&mut self, at: usize) -> Result<(), Failure> {
        let epoll = &self.epoll;
        let connection = self.connections.get_mut(at).ok_or_else(gone)?;
        let mut written = 0;
        while let Some(rest) = connection
            .out
            .get(written..)
            .filter(|rest| !rest.is_empty())
        {
            match connection.stream.write(rest) {
                Ok(wrote) => written += wrote,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What the broker said before it closed is still there to be read.
                Err(error) if is_closed(error.kind()) => {
                    connection.out.clear();
                    return Ok(());
                }
                Err(error) => return Err(Failure::system("write to the broker")(error)),
            }
        }
        connection.out.drain(..written);
        let blocked = !connection.out.is_empty();
        if blocked != connection.blocked {
            connection.blocked = blocked;
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, !connection.deaf);
            flags.set(EventFlags::OUT, blocked);
            epoll::modify(
                epoll,
                &connection.stream,
                EventData::new_u64(at as u64),
                flags,
            )
            .map_err(Failure::system("wait for a socket"))?;
        }
        Ok(())
    }

    /// From now on nothing is read from this connection.
    ///
    /// # Errors
    /// The system's.
    pub fn deafen(&mut self, at: usize) -> Result<(), Failure> {
        let connection = self.connections.get_mut(at).ok_or_else(gone)?;
        connection.deaf = true;
        let data = EventData::new_u64(at as u64);
        epoll::modify(&self.epoll, &connection.stream, data, EventFlags::empty())
            .map_err(Failure::system("wait for a socket"))
    }

    /// Waits until something came or, where given, until `until`; hands each packet to `take`, with
    /// when it was read and what is to be written to its connection; writes what that became. Whether
    /// anything came.
    ///
    /// # Errors
    /// Nothing for as long as patience lasts, the end of a connection, or what `take` says.
    pub fn turn<T>(
        &mut self,
        what: &'static str,
        until: Option<Instant>,
        take: &mut T,
    ) -> Result<bool, Failure>
    where
        T: FnMut(usize, Frame<'_>, Instant, &mut Out) -> Result<(), Failure>,
    {
        if !self.primed.is_empty() {
            for at in std::mem::take(&mut self.primed) {
                self.read_begun(at, what, take)?;
            }
            return Ok(true);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let wait = left.unwrap_or(self.patience).min(self.patience);
        // A moment that has passed needs no alarm, and one that was set goes with the next.
        let ring = until.zip(left).filter(|(_, left)| !left.is_zero());
        self.alarm.set(ring)?;
        let (ready, rang) = self.ready(if ring.is_some() { self.patience } else { wait })?;
        if ready.is_empty() && !rang && left.is_none_or(|left| left > self.patience) {
            return Err(Failure::Silence {
                what,
                waited: self.patience,
            });
        }
        let mut came = false;
        for (at, flags) in ready {
            if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                came = true;
                self.read(at, what, take)?;
            }
            self.flush(at)?;
        }
        Ok(came)
    }

    /// Turns until `done` says so.
    ///
    /// # Errors
    /// Those of [`turn`](Self::turn).
    pub fn turn_until<T>(&mut self, what: &'static str, mut take: T) -> Result<(), Failure>
    where
        T: FnMut(usize, Frame<'_>, Instant, &mut Out) -> Result<bool, Failure>,
    {
        let mut done = false;
        while !done {
            self.turn(what, None, &mut |at, frame, now, out: &mut Out| {
                done |= take(at, frame, now, out)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Subscribes to one filter before anything is published that it matches.
    ///
    /// # Errors
    /// Those of [`turn`](Self::turn), and a refusal.
    pub fn subscribe(&mut self, at: usize, filter: &str, qos: QoS) -> Result<(), Failure> {
        append(&subscribe_packet(filter, qos)?, self.out(at))?;
        self.flush(at)?;
        self.turn_until("a SUBACK", |from, frame, _, _| match frame {
            Frame::Other(packet) if from == at => granted(&packet).map(|()| true),
            Frame::Publish(delivery) => Err(stranger(delivery.topic)),
            _ => Ok(false),
        })
    }

    /// Says goodbye on a connection, with which its session ends where `forget`, and waits until the
    /// broker has closed it. What still comes is not looked at.
    ///
    /// # Errors
    /// A broker that does not close it.
    pub fn goodbye(&mut self, at: usize, forget: bool) -> Result<(), Failure> {
        let farewell = Packet::Disconnect(Disconnect {
            session_expiry: forget.then_some(0),
            ..Disconnect::new(ReasonCode::Success)
        });
        append(&farewell, self.out(at))?;
        let patience = self.patience;
        let connection = self.connections.get_mut(at).ok_or_else(gone)?;
        let out = std::mem::take(&mut connection.out);
        let ended = connection
            .stream
            .set_nonblocking(false)
            .and_then(|()| connection.stream.write_all(&out))
            .and_then(|()| {
                while connection.stream.read(&mut self.chunk)? > 0 {}
                Ok(())
            });
        let _ = epoll::delete(&self.epoll, &connection.stream);
        match ended {
            Err(error) if is_closed(error.kind()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Failure::Silence {
                what: "the end of a connection",
                waited: patience,
            }),
            other => other.map_err(Failure::system("read from the broker")),
        }
    }

    fn with(
        &self,
        at: usize,
        what: &'static str,
        work: impl FnOnce(&Connection) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        let connection = self.connections.get(at).ok_or_else(gone)?;
        work(connection).map_err(Failure::system(what))
    }

    /// Which connections have something to be done, and whether the alarm rang.
    fn ready(&self, wait: Duration) -> Result<(Vec<(usize, EventFlags)>, bool), Failure> {
        let wait = rustix::time::Timespec::try_from(wait).ok();
        let mut events = Vec::with_capacity(self.connections.len().clamp(1, 256));
        loop {
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, wait.as_ref()) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Failure::system("wait for the broker")(error)),
            }
        }
        let all = events.len();
        events.retain(|event: &epoll::Event| event.data.u64() != ALARM);
        let rang = events.len() < all;
        let place = |event: &epoll::Event| usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
        let ready = events.iter().map(|event| (place(event), event.flags));
        Ok((ready.collect(), rang))
    }

    fn read_begun<T>(&mut self, at: usize, what: &'static str, take: &mut T) -> Result<(), Failure>
    where
        T: FnMut(usize, Frame<'_>, Instant, &mut Out) -> Result<(), Failure>,
    {
        let connection = self.connections.get_mut(at).ok_or_else(gone)?;
        let begun = std::mem::take(&mut connection.begun);
        let used = hand_on(at, what, &begun, &mut connection.out, take)?;
        connection.begun = begun.get(used..).unwrap_or_default().to_vec();
        self.flush(at)
    }

    fn read<T>(&mut self, at: usize, what: &'static str, take: &mut T) -> Result<(), Failure>
    where
        T: FnMut(usize, Frame<'_>, Instant, &mut Out) -> Result<(), Failure>,
    {
        let connection = self.connections.get_mut(at).ok_or_else(gone)?;
        // The beginning of a packet goes in front of its rest.
        let begun = connection.begun.len();
        if self.chunk.len() < begun + CHUNK {
            self.chunk.resize(begun + CHUNK, 0);
        }
        let (front, room) = self.chunk.split_at_mut(begun);
        front.copy_from_slice(&connection.begun);
        let read = match connection.stream.read(room) {
            Ok(0) => {
                return Err(Failure::Closed {
                    during: what,
                    said: None,
                });
            }
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) if is_closed(error.kind()) => {
                return Err(Failure::Closed {
                    during: what,
                    said: None,
                });
            }
            Err(error) => return Err(Failure::system("read from the broker")(error)),
        };
        let bytes = self.chunk.get(..begun + read).unwrap_or_default();
        let used = hand_on(at, what, bytes, &mut connection.out, take)?;
        connection.begun.clear();
        connection
            .begun
            .extend_from_slice(bytes.get(used..).unwrap_or_default());
        Ok(())
    }
}

/// Hands every whole packet on, and says how many bytes they were.
fn hand_on<T>(
    at: usize,
    what: &'static str,
    bytes: &[u8],
    out: &mut Out,
    take: &mut T,
) -> Result<usize, Failure>
where
    T: FnMut(usize, Frame<'_>, Instant, &mut Out) -> Result<(), Failure>,
{
    let now = Instant::now();
    let mut used = 0;
    while let Some((frame, len)) = frame::next(bytes.get(used..).unwrap_or_default())? {
        used += len;
        match frame {
            Frame::Other(packet) if matches!(*packet, Packet::Disconnect(_)) => {
                return Err(ended(what, *packet));
            }
            Frame::PubAck { code, whole, .. } if code >= 0x80 => {
                return Err(refused_publish(code, whole));
            }
            frame => take(at, frame, now, out)?,
        }
    }
    Ok(used)
}

fn ended(during: &'static str, packet: Packet) -> Failure {
    let said = match packet {
        Packet::Disconnect(last) => {
            let words = last
                .reason_string
                .map_or_else(String::new, |words| words.to_string());
            Some((last.reason, words))
        }
        _ => None,
    };
    Failure::Closed { during, said }
}

fn refused_publish(code: u8, whole: &[u8]) -> Failure {
    let words = match frame::packet(whole) {
        Ok(Packet::PubAck(ack)) => ack.reason_string.map(|words| words.to_string()),
        _ => None,
    };
    Failure::Refused {
        what: "a publish",
        code,
        words,
    }
}

/// Judges a CONNACK.
///
/// # Errors
/// A refusal, or a packet that is no CONNACK.
pub fn admitted(packet: Packet) -> Result<ConnAck, Failure> {
    match packet {
        Packet::ConnAck(connack) if connack.reason.is_refusal() => Err(Failure::Refused {
            what: "a connection",
            code: connack.reason.code(),
            words: connack
                .properties
                .reason_string
                .map(|words| words.to_string()),
        }),
        Packet::ConnAck(connack) => Ok(*connack),
        other => Err(unexpected(&other)),
    }
}

/// A delivery of something this run did not publish.
pub fn stranger(topic: &[u8]) -> Failure {
    let topic = String::from_utf8_lossy(topic);
    Failure::Broken(format!(
        "the broker delivered {topic:?}, which this run did not publish: give it topics of its own with --topic"
    ))
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}

fn gone() -> Failure {
    Failure::Broken("a connection was asked for that was never opened".into())
}
