//! Listeners, admission, and the tasks that serve all connections at once.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};

use crate::broker::counters::{Counters, Refused};
use crate::broker::reason::{Reason, Refusal};
use crate::broker::{Broker, Connection, Wake};

use super::clock::MonotonicClock;
use super::convert;
use super::inbound::Inbound;
use super::outbound::Dialect;
use super::serve::{first_packet, refuse, serve};

/// Connections the kernel holds for us between accepts.
const BACKLOG: u32 = 4096;

/// How long a connection past `max_connections` may take to send the CONNECT it is refused on.
const OVERFLOW_WAIT: Duration = Duration::from_millis(50);

/// How many such connections are answered at one time; past them they are closed.
const OVERFLOW_SLOTS: usize = 32;

/// How long accepting rests after the system refused it a socket.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long connections may take to end once the stop began: more than what a last write and the
/// close behind it are given.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// How long the store may take for positions after that.
const STORE_PATIENCE: Duration = Duration::from_secs(3);

/// Bounds of the front end.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Connections at one time.
    pub max_connections: usize,
    /// From accept to CONNACK.
    pub connect_timeout: Duration,
    /// One write to one client; `None` leaves it to the client's keepalive.
    pub write_timeout: Option<Duration>,
    /// A CONNECT, bytes.
    pub max_connect_size: usize,
    /// Any later packet, bytes, fixed header included.
    pub max_message_size: usize,
    /// A topic, bytes: what an alias holds of one.
    pub max_topic_length: usize,
}

/// Wakes one of the tasks that serve all connections. Made before the stores and the broker are
/// opened, which call it.
#[derive(Clone, Default)]
pub struct TaskWake {
    notify: Arc<Notify>,
}

impl TaskWake {
    /// The callback for a store or the broker.
    #[must_use]
    pub fn callback(&self) -> Wake {
        let notify = self.notify.clone();
        Arc::new(move || notify.notify_one())
    }
}

/// What the stores and the broker call.
#[derive(Clone, Default)]
pub struct ServerWakes {
    /// A store has outcomes: called once per commit.
    pub outcomes: TaskWake,
    /// A store has something to commit, and waits to be told that no more is on its way.
    pub gather: TaskWake,
    /// A deadline of the broker came nearer.
    pub timer: TaskWake,
}

/// Why the front end could not start.
#[derive(Debug)]
pub enum ServerError {
    /// The address could not be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServerError::Listen { address, error } => {
                write!(f, "cannot listen on {address}: {error}")
            }
        }
    }
}

impl std::error::Error for ServerError {}

/// What every connection's tasks share.
pub(super) struct Shared {
    pub broker: Arc<Broker>,
    pub settings: ServerSettings,
    pub clock: MonotonicClock,
    stopping: watch::Sender<bool>,
    slots: Arc<Semaphore>,
    overflow: Arc<Semaphore>,
}

impl Shared {
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Waits for the stop to begin.
    pub async fn stop_begun(&self) {
        // The sender is held by `self`, so this cannot fail.
        let _ = self.stopping.subscribe().wait_for(|stops| *stops).await;
    }

    /// A connection that was established while the stop began is told like the others.
    pub fn close_if_stopping(&self, connection: &Connection) {
        if self.is_stopping() {
            connection.close(stopping());
        }
    }
}

fn stopping() -> Refusal {
    Refusal::new(
        Reason::ServerShuttingDown,
        "the broker is stopping; connect again later",
    )
}

/// The front end at work. Dropping it leaves its tasks running; [`stop`](Self::stop) ends them.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
    /// Completions, commits and deadlines.
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Listens on every address and serves. `wakes` were given out before the broker was opened.
    ///
    /// # Errors
    /// [`ServerError`]; then nothing is served.
    pub async fn start(
        broker: Arc<Broker>,
        settings: ServerSettings,
        clock: MonotonicClock,
        addresses: &[SocketAddr],
        wakes: ServerWakes,
    ) -> Result<Self, ServerError> {
        while broker.is_settling() {
            broker.go();
            if broker.run_completions() == 0 {
                wakes.outcomes.notify.notified().await;
            }
        }
        let mut bound = Vec::new();
        for address in addresses {
            let listener = listen(*address).map_err(|error| ServerError::Listen {
                address: *address,
                error,
            })?;
            bound.push(listener);
        }
        let addresses = bound
            .iter()
            .filter_map(|listener| listener.local_addr().ok())
            .collect();
        let shared = Arc::new(Shared {
            broker: broker.clone(),
            slots: Arc::new(Semaphore::new(settings.max_connections)),
            overflow: Arc::new(Semaphore::new(settings.max_connections.min(OVERFLOW_SLOTS))),
            settings,
            clock,
            stopping: watch::Sender::new(false),
        });
        let listeners = bound
            .into_iter()
            .map(|listener| tokio::spawn(accept(shared.clone(), listener)))
            .collect();
        let tasks = vec![
            tokio::spawn(run_completions(broker.clone(), wakes.outcomes.notify)),
            tokio::spawn(gather(broker.clone(), wakes.gather.notify)),
            tokio::spawn(run_deadlines(broker, clock, wakes.timer.notify)),
        ];
        Ok(Server {
            shared,
            listeners,
            addresses,
            tasks,
        })
    }

    /// The addresses listened on, with their real ports.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What the broker has counted since it was opened.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        self.shared.broker.counters()
    }

    /// Stops: nothing more is accepted, every client is told 0x8B, their sessions and positions
    /// are stored. Takes at most a few seconds, whatever a client or a store does.
    pub async fn stop(self) {
        for listener in &self.listeners {
            listener.abort();
        }
        self.shared.stopping.send_replace(true);
        self.shared.broker.close_all(&stopping());
        // Every connection gives its slot back once its session is let go of, and each of its
        // writes is bounded.
        let all = u32::try_from(self.shared.settings.max_connections).unwrap_or(u32::MAX);
        if timeout(STOP_PATIENCE, self.shared.slots.acquire_many(all))
            .await
            .is_err()
        {
            tracing::warn!("some connections did not end in time");
        }
        let stored = Arc::new(Notify::new());
        let signal = stored.clone();
        self.shared
            .broker
            .store_all_positions(Arc::new(move || signal.notify_one()));
        if timeout(STORE_PATIENCE, stored.notified()).await.is_err() {
            tracing::warn!("positions could not be stored in time; what they lag is sent again");
        }
        for task in &self.tasks {
            task.abort();
        }
        for task in self.tasks {
            // A task in the middle of a sweep ends after it; the runtime must still be there then.
            let _ = task.await;
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restart does not wait for the connections of the last run to fade.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    let mut refused = false;
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                refused = false;
                admit(&shared, socket);
            }
            Err(error) => {
                // Out of descriptors, most likely: those who are connected are served on. Said
                // once for as long as it lasts.
                if !std::mem::replace(&mut refused, true) {
                    tracing::warn!(%error, "a connection could not be accepted");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, socket: TcpStream) {
    match shared.slots.clone().try_acquire_owned() {
        Ok(slot) => spawn(shared.clone(), socket, slot),
        Err(_) => match shared.overflow.clone().try_acquire_owned() {
            Ok(place) => {
                tokio::spawn(overflow(shared.clone(), socket, place));
            }
            Err(_) => count_refused(shared),
        },
    }
}

fn spawn(shared: Arc<Shared>, socket: TcpStream, slot: OwnedSemaphorePermit) {
    tokio::spawn(async move {
        serve(shared, socket).await;
        drop(slot);
    });
}

fn count_refused(shared: &Shared) {
    shared
        .broker
        .counters()
        .refuse(Refused::Connect, Reason::ServerBusy);
}

/// A connection past the bound: it may get a slot that is given back in a moment, is refused 0x89
/// where its CONNECT comes in time, and is closed otherwise.
async fn overflow(shared: Arc<Shared>, socket: TcpStream, place: OwnedSemaphorePermit) {
    if let Ok(Ok(slot)) = timeout(OVERFLOW_WAIT, shared.slots.clone().acquire_owned()).await {
        drop(place);
        spawn(shared, socket, slot);
        return;
    }
    count_refused(&shared);
    let (read, mut write) = socket.into_split();
    let mut inbound = Inbound::new(read, shared.settings.max_connect_size);
    let answer = async {
        if let Some(Ok(connect)) = first_packet(&mut inbound).await {
            let dialect = Dialect {
                protocol: convert::protocol(connect.version),
                maximum_packet_size: usize::MAX,
                problem_information: connect.request_problem_information,
            };
            let busy = Refusal::new(
                Reason::ServerBusy,
                "every connection slot is taken; connect again later",
            );
            refuse(dialect, &busy, &mut write).await;
        }
    };
    let _ = timeout(OVERFLOW_WAIT, answer).await;
    drop(place);
}

/// Runs what the stores have outcomes for, once per wake.
async fn run_completions(broker: Arc<Broker>, wake: Arc<Notify>) {
    loop {
        wake.notified().await;
        broker.run_completions();
    }
}

/// Rounds of reading that a commit waits for at most.
const GATHER_ROUNDS: usize = 16;

/// Rounds that bring nothing more and end it: some microseconds in all, in which a client that was
/// just answered sends its next publish.
const EMPTY_ROUNDS: usize = 4;

/// Has a commit begin once what is on its way to it is there: whoever has something to read has read
/// it, and nothing more came of that. Nothing is waited for that has not arrived at the machine.
async fn gather(broker: Arc<Broker>, wake: Arc<Notify>) {
    loop {
        wake.notified().await;
        let (mut waiting, mut empty) = (broker.waiting(), 0);
        for _ in 0..GATHER_ROUNDS {
            // Comes back once the tasks that are ready have run, and the sockets were asked again.
            tokio::task::yield_now().await;
            let now = broker.waiting();
            empty = if now == waiting { empty + 1 } else { 0 };
            if empty == EMPTY_ROUNDS {
                break;
            }
            waiting = now;
        }
        broker.go();
    }
}

/// Calls the broker when its next deadline comes.
async fn run_deadlines(broker: Arc<Broker>, clock: MonotonicClock, wake: Arc<Notify>) {
    loop {
        let next = broker.next_deadline();
        if next.is_none_or(|at| at > clock.now().since_start) {
            tokio::select! {
                () = wake.notified() => continue,
                () = async {
                    match next {
                        Some(at) => sleep_until(clock.instant(at)).await,
                        None => std::future::pending().await,
                    }
                } => {}
            }
        }
        let now = clock.now();
        // A sweep reads from the stores.
        tokio::task::block_in_place(|| broker.tick(now));
    }
}
