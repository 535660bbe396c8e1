//! `exec-server forward`: connections to here are carried there, and with `-R` the other way.
//!
//! Here and there are two [`Streams`]; a forward listens on one and connects on the other, whichever way round. What is
//! carried is the business of the two ends: bytes, the end of a direction, a reset. How it survives a connection that
//! breaks is the business of the client library.
//!
//! A listener that is lost with its server is opened again. A stream that is lost is reset at both ends, and told.

mod preview;
mod relay;
mod stream_io;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use exec_client::LinkState;
use exec_env::Environment;
use exec_env::streams::{Accepted, StreamAddress, StreamError, StreamListener, StreamReason, Streams};
use exec_local::streams::LocalStreams;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::args::{AddressPair, ForwardArgs, ForwardWord, TargetArgs};
use crate::connection_status::LinkMonitor;
use crate::target::{self, OpenConnection, OpenTarget, Target};
use crate::{messages, signal_listener};

/// Connections that are carried at once, of all forwards: as many as a server gives one session. One more waits to be
/// accepted.
const CONNECTIONS: usize = 256;

/// Between two tries to find out whether a port answers, or to listen again where a listener was lost.
const PAUSE: Duration = Duration::from_millis(100);
const LISTEN_AGAIN_PAUSE: Duration = Duration::from_secs(1);

const EADDRINUSE: i32 = 98;

pub(crate) async fn run(args: &ForwardArgs) -> anyhow::Result<u8> {
    let plan = Plan::new(args)?;
    let access = match target::choose(&plan.target)? {
        Target::Local => OpenTarget::Local(Box::default()),
        Target::Remote(remote) => OpenTarget::Remote(Box::new(OpenConnection::open(&remote).await?)),
    };
    if let OpenTarget::Local(_) = &access {
        plan.refuse_loops().await?;
    }
    let monitor = access.link_monitor(None, args.quiet);
    let ends =
        Arc::new(Ends { here: LocalStreams::default(), there: access, room: Arc::new(Semaphore::new(CONNECTIONS)) });
    let reporter = Reporter { json: args.json, quiet: args.quiet };
    // Before anything is listened at: a socket that was made must be removed again.
    let mut signals = signal_listener::stop_signals().context("cannot listen for signals")?;
    let mut tasks = JoinSet::new();
    let outcome = tokio::select! {
        outcome = forward_all(&plan, args, &ends, reporter, &mut tasks) => outcome,
        never = report_link(monitor) => never,
        // This is how it normally ends.
        _ = signals.next() => Ok(()),
    };
    // Whatever is carried ends with a reset: nobody must take it for a whole file.
    tasks.shutdown().await;
    if let Some(Ends { there: OpenTarget::Remote(connection), .. }) = Arc::into_inner(ends) {
        connection.end().await;
    }
    outcome.map(|()| 0)
}

/// What the command line asks for.
struct Plan {
    forwards: Vec<Forward>,
    target: TargetArgs,
}

/// One address that is listened at, and one that is connected to.
#[derive(Clone)]
struct Forward {
    pair: AddressPair,
    /// Listen there, and connect here.
    is_reverse: bool,
}

impl Plan {
    fn new(args: &ForwardArgs) -> anyhow::Result<Self> {
        let mut target = args.target.clone();
        let mut forwards = Vec::new();
        for (index, word) in args.words.iter().enumerate() {
            match word {
                ForwardWord::Pair(pair) => forwards.push(Forward { pair: pair.clone(), is_reverse: false }),
                ForwardWord::Environment(id) if index == 0 && target.environment.is_none() => {
                    target.environment = Some(id.clone());
                }
                ForwardWord::Environment(id) => bail!("`{id}:` must come first, and only one environment can be named"),
            }
        }
        forwards.extend(args.reverse.iter().map(|pair| Forward { pair: pair.clone(), is_reverse: true }));
        if forwards.is_empty() && args.open.is_empty() && args.preview.is_none() {
            bail!("nothing is to be forwarded: write 8080:3000, -R, --open PORT or --preview ADDRESS");
        }
        Ok(Self { forwards, target })
    }

    /// Where the two machines are one, an address can be forwarded to itself: its first connection would make another, and so on
    /// until there is room for none.
    async fn refuse_loops(&self) -> anyhow::Result<()> {
        for Forward { pair, .. } in &self.forwards {
            if leads_to_itself(pair).await {
                bail!(
                    "{} would be forwarded to itself, because the other machine is this one: name another first, as `build:` \
                     or by --connect, or write two ports",
                    pair.listen
                );
            }
        }
        Ok(())
    }
}

/// Whether what listens would also accept the connection that is made.
async fn leads_to_itself(pair: &AddressPair) -> bool {
    match (&pair.listen, &pair.connect) {
        (StreamAddress::Tcp { host: at, port }, StreamAddress::Tcp { host: to, port: wanted }) => {
            if *port == 0 || port != wanted {
                return false;
            }
            let (at, to) = (addresses(at).await, addresses(to).await);
            at.iter().any(|at| to.iter().any(|to| accepts(*at, *to)))
        }
        (listen, connect) => listen == connect,
    }
}

/// None where the name is not known: that is told when it is used.
async fn addresses(host: &str) -> Vec<IpAddr> {
    let found = tokio::net::lookup_host((host, 0)).await;
    found.map(|found| found.map(|address| address.ip().to_canonical()).collect()).unwrap_or_default()
}

/// Whether a listener at `at` accepts a connection to `to`.
fn accepts(at: IpAddr, to: IpAddr) -> bool {
    let to = match to {
        // The kernel takes these for the loopback address.
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        other => other,
    };
    // A wildcard of version 6 accepts both versions. An address is this machine's if something can be bound to it.
    let is_wildcard = at.is_unspecified() && (at.is_ipv6() || to.is_ipv4());
    at == to || (is_wildcard && std::net::UdpSocket::bind((to, 0)).is_ok())
}

/// The two machines.
struct Ends {
    here: LocalStreams,
    there: OpenTarget<LocalStreams>,
    room: Arc<Semaphore>,
}

impl Ends {
    fn there(&self) -> &dyn Streams {
        match &self.there {
            OpenTarget::Local(streams) => streams.as_ref(),
            OpenTarget::Remote(connection) => connection.environment.streams(),
        }
    }

    /// Where a forward listens.
    fn listening(&self, forward: &Forward) -> &dyn Streams {
        if forward.is_reverse { self.there() } else { &self.here }
    }

    /// Where it connects.
    fn connecting(&self, forward: &Forward) -> &dyn Streams {
        if forward.is_reverse { &self.here } else { self.there() }
    }
}

/// Opens every listener before anything is carried: with a mistake in one, nothing happens to the others.
async fn forward_all(
    plan: &Plan,
    args: &ForwardArgs,
    ends: &Arc<Ends>,
    reporter: Reporter,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let mut opened = Vec::new();
    for forward in &plan.forwards {
        let listener = ends.listening(forward).listen(forward.pair.listen.clone()).await?;
        opened.push((forward.clone(), listener));
    }
    if let Some(address) = args.preview {
        let preview = preview::Preview::bind(address, Arc::clone(ends)).await?;
        reporter.preview(preview.address())?;
        tasks.spawn(preview.serve());
    }
    for (forward, listener) in opened {
        reporter.listening(&forward, listener.address())?;
        tasks.spawn(serve(forward, listener, Arc::clone(ends), reporter));
    }
    for port in &args.open {
        tasks.spawn(open(*port, args.wait, Arc::clone(ends), reporter));
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a part of exec-server broke down")??;
    }
    Ok(())
}

/// Waits until a port answers there, and forwards it.
async fn open(port: u16, wait: Duration, ends: Arc<Ends>, reporter: Reporter) -> anyhow::Result<()> {
    let connect = StreamAddress::Tcp { host: "localhost".to_owned(), port };
    let answers = async {
        loop {
            match ends.there().connect(connect.clone()).await {
                Ok(_) => return Ok(()),
                Err(StreamError { reason: StreamReason::Os(_), .. }) => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    };
    match tokio::time::timeout(wait, answers).await {
        Ok(answered) => answered?,
        Err(_) => {
            bail!("nothing answers at {connect} there after {wait:?}: is it started? --wait says how long to wait")
        }
    }
    // The same number is the easiest to remember; if it is taken here, any will do.
    let listener = match ends.here.listen(StreamAddress::loopback(port)).await {
        Err(StreamError { reason: StreamReason::Os(EADDRINUSE), .. }) => {
            ends.here.listen(StreamAddress::loopback(0)).await
        }
        listening => listening,
    }?;
    let pair = AddressPair { listen: listener.address().clone(), connect };
    let forward = Forward { pair, is_reverse: false };
    reporter.opened(&forward, listener.address())?;
    serve(forward, listener, ends, reporter).await
}

/// Accepts connections and carries them, for ever.
async fn serve(
    mut forward: Forward,
    listener: Box<dyn StreamListener>,
    ends: Arc<Ends>,
    reporter: Reporter,
) -> anyhow::Result<()> {
    // The port that it got is the one to get again.
    forward.pair.listen = listener.address().clone();
    let mut listener = Some(listener);
    let mut relays = JoinSet::new();
    loop {
        let Some(listening) = &listener else {
            match ends.listening(&forward).listen(forward.pair.listen.clone()).await {
                Ok(again) => {
                    reporter.note(format_args!("listening at {} again", again.address()));
                    listener = Some(again);
                }
                Err(error) if is_hopeless(&error.reason) => return Err(error.into()),
                Err(_) => tokio::time::sleep(LISTEN_AGAIN_PAUSE).await,
            }
            continue;
        };
        let event = tokio::select! {
            Some(_) = relays.join_next(), if !relays.is_empty() => continue,
            accepted = accept(&ends, &**listening) => accepted,
        };
        match event {
            Ok((accepted, place)) => {
                let (forward, ends) = (forward.clone(), Arc::clone(&ends));
                relays.spawn(async move {
                    carry(&forward, accepted, &ends, reporter).await;
                    drop(place);
                });
            }
            Err(error) => {
                reporter.note(&error);
                match error.reason {
                    // The session has no room for one more just now.
                    StreamReason::TooMany { .. } => tokio::time::sleep(LISTEN_AGAIN_PAUSE).await,
                    _ => listener = None,
                }
            }
        }
    }
}

async fn accept(
    ends: &Ends,
    listener: &dyn StreamListener,
) -> Result<(Accepted, tokio::sync::OwnedSemaphorePermit), StreamError> {
    let place = Arc::clone(&ends.room).acquire_owned().await.expect("nobody closes it");
    Ok((listener.accept().await?, place))
}

/// Whether to try again is of no use.
fn is_hopeless(reason: &StreamReason) -> bool {
    matches!(reason, StreamReason::Forbidden { .. } | StreamReason::Unsupported | StreamReason::BadPath { .. })
}

/// Carries one connection.
async fn carry(forward: &Forward, accepted: Accepted, ends: &Ends, reporter: Reporter) {
    let Accepted { stream: from, peer } = accepted;
    let who = peer
        .map_or_else(|| format!("a connection to {}", forward.pair.listen), |peer| format!("connection from {peer}"));
    let from = relay::ResetUnlessWhole::new(from);
    let carried = async {
        let to = ends.connecting(forward).connect(forward.pair.connect.clone()).await?;
        relay::relay(from, relay::ResetUnlessWhole::new(to)).await
    };
    if let Err(error) = carried.await {
        reporter.note(format_args!("{who}: {error}"));
    }
}

/// What the user is told.
#[derive(Debug, Clone, Copy)]
struct Reporter {
    json: bool,
    quiet: bool,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum ForwardEvent {
    Listening { listen: String, connect: String, reverse: bool },
    Opened { listen: String, connect: String, url: String },
    Preview { url: String },
    Note { message: String },
}

impl Reporter {
    fn listening(self, forward: &Forward, at: &StreamAddress) -> anyhow::Result<()> {
        let (listen, connect) = (at.to_string(), forward.pair.connect.to_string());
        let (here, there) = if forward.is_reverse { ("there", "here") } else { ("here", "there") };
        let text = format!("{listen} {here} -> {connect} {there}");
        self.print(&text, &ForwardEvent::Listening { listen, connect, reverse: forward.is_reverse })
    }

    fn opened(self, forward: &Forward, at: &StreamAddress) -> anyhow::Result<()> {
        let (listen, connect) = (at.to_string(), forward.pair.connect.to_string());
        let url = format!("http://{listen}/");
        self.print(&url.clone(), &ForwardEvent::Opened { listen, connect, url })
    }

    fn preview(self, at: std::net::SocketAddr) -> anyhow::Result<()> {
        let url = format!("http://{at}/preview/");
        self.print(&format!("{url}PORT/"), &ForwardEvent::Preview { url })
    }

    fn print(self, text: &str, event: &ForwardEvent) -> anyhow::Result<()> {
        match self.json {
            true => messages::print_json(event),
            false => messages::print_stdout(format!("{text}\n").as_bytes()).context("cannot write to stdout"),
        }
    }

    fn note(self, text: impl std::fmt::Display) {
        if self.json {
            // Whoever has closed our stdout does not want to know.
            let _ = messages::print_json(&ForwardEvent::Note { message: text.to_string() });
        } else if !self.quiet {
            messages::print_note(text);
        }
    }
}

/// Tells of connections that break, for ever.
async fn report_link(monitor: Option<LinkMonitor>) -> anyhow::Result<()> {
    let Some(mut monitor) = monitor else { return std::future::pending().await };
    loop {
        let state = monitor.changed().await;
        if let LinkState::Lost(loss) = &state {
            messages::print_note(format_args!("the session is lost, and what it carried: {}", loss.why));
        }
        monitor.report(&state, false);
    }
}
