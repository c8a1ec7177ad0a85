//! One connection from its first byte to its last.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use saguin_mqtt_codec::{ConnectReturnCode, DecodeError, Packet, Reply, Version};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::broker::packet::{Connack, Connect, Protocol};
use crate::broker::reason::{Reason, Refusal};
use crate::broker::{Burst, Claim, Connection, Wakes};

use super::convert::{self, Aliases};
use super::inbound::{Filled, Inbound};
use super::outbound::Dialect;
use super::reader::{ReadEnd, Reader};
use super::server::Shared;
use super::writer::{LAST_WRITE, Writer};

/// How a connection's two tasks are woken.
#[derive(Default)]
pub(super) struct Signals {
    pub reader: Notify,
    pub writer: Notify,
}

impl Signals {
    fn wakes(self: &Arc<Self>) -> Wakes {
        let (reader, writer) = (self.clone(), self.clone());
        Wakes {
            reader: Arc::new(move || reader.reader.notify_one()),
            writer: Arc::new(move || writer.writer.notify_one()),
        }
    }
}

/// A connection that was established.
struct Established {
    inbound: Inbound,
    socket: OwnedWriteHalf,
    connection: Connection,
    signals: Arc<Signals>,
    dialect: Dialect,
    silence: Option<Duration>,
}

/// Serves one accepted socket until it is closed.
///
/// What is needed until the client is in has an allocation of its own, which goes then. Ten thousand
/// idle connections are as many of these futures, so what they hold is kept small.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an async function holds its arguments twice"
)]
pub(super) fn serve(shared: Arc<Shared>, socket: TcpStream) -> impl Future<Output = ()> + Send {
    async move {
        let established = Box::pin(established(&shared, socket)).await;
        if let Some(connected) = established.map(|established| begin(&shared, established)) {
            run(connected).await;
        }
    }
}

async fn established(shared: &Arc<Shared>, socket: TcpStream) -> Option<Established> {
    // Answers are small and waited for.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let limit = shared.settings.connect_timeout;
    let cut = async {
        shared.stop_begun().await;
        tokio::time::sleep(LAST_WRITE).await;
    };
    tokio::select! {
        established = timeout(limit, establish(shared, socket)) => established.ok().flatten(),
        () = cut => None,
    }
}

/// A connection whose writer runs.
struct Connected {
    reader: Reader,
    writer: JoinHandle<()>,
}

fn begin(shared: &Shared, established: Established) -> Box<Connected> {
    let Established {
        inbound,
        socket,
        connection,
        signals,
        dialect,
        silence,
    } = established;
    let writer = Writer {
        socket,
        connection: connection.clone(),
        signals: signals.clone(),
        clock: shared.clock,
        dialect,
        write_timeout: shared.settings.write_timeout.or(silence),
        cut_at: None,
    };
    Box::new(Connected {
        writer: tokio::spawn(writer.run()),
        reader: Reader {
            inbound,
            connection,
            signals,
            clock: shared.clock,
            aliases: Aliases::new(shared.settings.max_topic_length),
            silence,
            burst: Burst::default(),
            now: shared.clock.now(),
        },
    })
}

#[expect(
    clippy::manual_async_fn,
    reason = "the future of an async function holds its arguments twice"
)]
fn run(mut connected: Box<Connected>) -> impl Future<Output = ()> + Send {
    async move {
        let Connected { reader, writer } = &mut *connected;
        let clock = reader.clock;
        if reader.run().await == ReadEnd::Gone {
            // Jobs go back at once; whatever the writer still holds has nobody to go to.
            reader.connection.end(clock.now());
            writer.abort();
        }
        // Bounded, as every write is.
        let _ = writer.await;
        reader.connection.end(clock.now());
    }
}

/// Reads a CONNECT and answers it; `None` where the connection comes to nothing.
async fn establish(shared: &Arc<Shared>, socket: TcpStream) -> Option<Established> {
    let (read, mut write) = socket.into_split();
    let mut inbound = Inbound::new(read, shared.settings.max_connect_size);
    let first = tokio::select! {
        first = first_packet(&mut inbound) => first?,
        // Whoever has not said a word is owed none.
        () = shared.stop_begun() => return None,
    };
    let connect = match first {
        Ok(connect) => connect,
        Err(error) => {
            refuse_unreadable(&error, &mut write).await;
            return None;
        }
    };
    let version = connect.version;
    let connect = convert::connect(connect);
    let dialect = dialect(&connect);
    if shared.is_stopping() {
        let stopping = Refusal::new(Reason::ServerBusy, "the broker is stopping");
        refuse(dialect, &stopping, &mut write).await;
        return None;
    }
    inbound.connected(version, shared.settings.max_message_size);
    let signals = Arc::new(Signals::default());
    let claimed = shared
        .broker
        .connect(connect, signals.wakes(), shared.clock.now());
    let mut claim = match claimed {
        Ok(claim) => claim,
        Err(refusal) => {
            refuse(dialect, &refusal, &mut write).await;
            return None;
        }
    };
    let connack = match accepted(shared, &mut claim, &signals).await {
        Ok(connack) => connack,
        Err(refusal) => {
            drop(claim);
            refuse(dialect, &refusal, &mut write).await;
            return None;
        }
    };
    let keep_alive = claim.keep_alive();
    // A CONNACK that cannot be written gives the claim back: dropping it does.
    write_connack(shared, dialect, &connack, &mut write).await?;
    let connection = claim.established(shared.clock.now())?;
    tracing::debug!(client = connection.client_id(), "connected");
    shared.close_if_stopping(&connection);
    Some(Established {
        inbound,
        socket: write,
        connection,
        signals,
        dialect,
        silence: (keep_alive > 0).then(|| Duration::from_millis(u64::from(keep_alive) * 1500)),
    })
}

fn dialect(connect: &Connect) -> Dialect {
    Dialect {
        protocol: connect.protocol,
        maximum_packet_size: connect
            .maximum_packet_size
            .map_or(usize::MAX, |bytes| bytes as usize),
        problem_information: connect.request_problem_information,
    }
}

/// The first packet, which has to be a CONNECT; `None` where the client left.
pub(super) async fn first_packet(
    inbound: &mut Inbound,
) -> Option<Result<saguin_mqtt_codec::Connect, DecodeError>> {
    loop {
        match inbound.decode() {
            Ok(Some(Packet::Connect(connect))) => return Some(Ok(*connect)),
            // The decoder takes nothing else while no version is known.
            Ok(Some(_)) => return None,
            Ok(None) => match inbound.fill().await {
                Ok(Filled::More) => {}
                Ok(Filled::End) | Err(_) => return None,
            },
            Err(error) => return Some(Err(error)),
        }
    }
}

/// Waits for the claim's turn and its store.
async fn accepted(
    shared: &Shared,
    claim: &mut Claim,
    signals: &Signals,
) -> Result<Connack, Refusal> {
    loop {
        match claim.poll(shared.clock.now()) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => signals.reader.notified().await,
        }
    }
}

async fn write_connack(
    shared: &Shared,
    dialect: Dialect,
    connack: &Connack,
    socket: &mut OwnedWriteHalf,
) -> Option<()> {
    let mut bytes = BytesMut::new();
    dialect.write_connack(connack, &mut bytes).ok()?;
    let limit = shared
        .settings
        .write_timeout
        .unwrap_or(shared.settings.connect_timeout);
    timeout(limit, socket.write_all(&bytes)).await.ok()?.ok()
}

/// Answers a CONNECT with a refusal and closes.
pub(super) async fn refuse(dialect: Dialect, refusal: &Refusal, socket: &mut OwnedWriteHalf) {
    tracing::debug!(%refusal, "connection refused");
    let mut bytes = BytesMut::new();
    if dialect.write_refusal(refusal, &mut bytes).is_ok() && !bytes.is_empty() {
        let _ = socket.write_all(&bytes).await;
    }
    let _ = socket.shutdown().await;
}

/// Answers what is no CONNECT, as far as the version it spoke allows.
async fn refuse_unreadable(error: &DecodeError, socket: &mut OwnedWriteHalf) {
    tracing::debug!(%error, "unreadable CONNECT");
    let v311 = Dialect {
        protocol: Protocol::V311,
        maximum_packet_size: usize::MAX,
        problem_information: false,
    };
    match error.reply() {
        Reply::ConnAckV5 => {
            let v5 = Dialect {
                protocol: convert::protocol(Version::V5),
                problem_information: true,
                ..v311
            };
            refuse(v5, &convert::refusal(error), socket).await;
        }
        Reply::ConnAckV311(code) => {
            let reason = match code {
                ConnectReturnCode::UnacceptableProtocolVersion => Reason::UnsupportedVersion,
                _ => Reason::NotAuthorized,
            };
            refuse(v311, &Refusal::new(reason, error.to_string()), socket).await;
        }
        Reply::Nothing | Reply::DisconnectV5 => {
            let _ = socket.shutdown().await;
        }
    }
}
