//! A TCP proxy that cuts: what a bad network does to a connection, at the moment that a test chooses.
//!
//! It passes bytes both ways until it is told to [`cut`](CuttingProxy::cut). Then both ends of every connection are
//! closed in the middle of whatever they carried; later connections pass, except while the proxy is
//! [`block`](CuttingProxy::block)ed. It counts, so that a test can wait for a connection, a byte or the answer to a start
//! instead of for a time.
//!
//! Deliberately absent: delay, loss below TCP, and any other look at what passes.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Bytes moved at a time. Small, so that a cut falls inside a message as often as between two.
const BLOCK_BYTES: usize = 4096;

/// What the answer to `process/start` has, and no other message of a server. Messages of servers are not masked.
const START_ANSWER: &[u8] = br#""result":{"processId":"#;

/// The proxy stops when this is dropped.
#[derive(Debug)]
pub struct CuttingProxy {
    address: SocketAddr,
    control: watch::Sender<Control>,
    counts: watch::Receiver<Counts>,
    acceptor: JoinSet<()>,
}

/// What the test told the proxy to do.
#[derive(Debug, Clone, Copy, Default)]
struct Control {
    /// How often it was told to cut; a connection ends when this differs from what it was at its start.
    cuts: u64,
    /// Whether new connections are closed at once.
    blocked: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that reached the server.
    pub connections: u64,
    /// Bytes that came from the server and were passed on.
    pub answered_bytes: u64,
    /// Answers to `process/start` that were passed on.
    pub answered_starts: u64,
}

impl CuttingProxy {
    /// Listens on a free port of the loopback, and connects to `server`.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let control = watch::Sender::new(Control::default());
        let (count, counts) = watch::channel(Counts::default());
        let mut acceptor = JoinSet::new();
        acceptor.spawn(accept(listener, server, control.subscribe(), Arc::new(count)));
        Self { address, control, counts, acceptor }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes every connection. Later ones pass.
    pub fn cut(&self) {
        self.control.send_modify(|control| control.cuts += 1);
    }

    /// Closes every connection, and new ones at once until [`unblock`](Self::unblock).
    pub fn block(&self) {
        self.control.send_modify(|control| *control = Control { cuts: control.cuts + 1, blocked: true });
    }

    pub fn unblock(&self) {
        self.control.send_modify(|control| control.blocked = false);
    }

    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    pub async fn wait_until(&self, holds: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.counts.clone();
        let counted = counts.wait_for(holds).await;
        *counted.expect("the acceptor counts for as long as the proxy lives")
    }

    /// Stops listening, closes every connection, and waits until that is done.
    pub async fn shutdown(mut self) {
        self.acceptor.shutdown().await;
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    control: watch::Receiver<Control>,
    count: Arc<watch::Sender<Counts>>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                connections.spawn(relay(client, server, control.clone(), count.clone()));
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Carries one connection until an end closes it or the proxy cuts it. Leaving this function closes both sockets at
/// once.
async fn relay(
    client: TcpStream,
    server: SocketAddr,
    mut control: watch::Receiver<Control>,
    count: Arc<watch::Sender<Counts>>,
) {
    let at_start = *control.borrow_and_update();
    if at_start.blocked {
        return;
    }
    let Ok(upstream) = TcpStream::connect(server).await else { return };
    for socket in [&client, &upstream] {
        // Best effort: without it a keystroke would only come late.
        let _ = socket.set_nodelay(true);
    }
    count.send_modify(|counts| counts.connections += 1);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = upstream.into_split();
    let mut seen = Vec::new();
    let passed_on = |bytes: &[u8]| {
        seen.extend_from_slice(bytes);
        let starts = memchr::memmem::find_iter(&seen, START_ANSWER).count();
        // The rest is too short to be found twice, and may be the beginning of one.
        seen.drain(..seen.len().saturating_sub(START_ANSWER.len() - 1));
        count.send_modify(|counts| {
            counts.answered_bytes += bytes.len() as u64;
            counts.answered_starts += starts as u64;
        });
    };
    tokio::select! {
        () = pass(from_client, to_server, |_| ()) => {}
        () = pass(from_server, to_client, passed_on) => {}
        _ = control.wait_for(|control| control.cuts != at_start.cuts) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut passed: impl FnMut(&[u8])) {
    let mut block = [0; BLOCK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut block).await {
        if to.write_all(&block[..count]).await.is_err() {
            return;
        }
        passed(&block[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut peers = JoinSet::new();
            while let Ok((peer, _)) = listener.accept().await {
                let (from, to) = peer.into_split();
                peers.spawn(pass(from, to, |_| ()));
            }
        });
        (address, server)
    }

    async fn echoes(stream: &mut TcpStream) -> bool {
        let mut answer = [0; 4];
        stream.write_all(b"ping").await.is_ok() && stream.read_exact(&mut answer).await.is_ok()
    }

    #[tokio::test]
    async fn a_cut_ends_those_who_are_connected_and_nobody_after() {
        let (server, mut task) = echo().await;
        let proxy = CuttingProxy::start(server).await;
        let mut first = TcpStream::connect(proxy.address()).await.expect("the proxy listens");
        assert!(echoes(&mut first).await);
        proxy.cut();
        assert_eq!(first.read(&mut [0; 4]).await.unwrap_or(0), 0, "the first connection is over");
        let mut second = TcpStream::connect(proxy.address()).await.expect("the proxy listens");
        assert!(echoes(&mut second).await);
        assert_eq!(proxy.counts(), Counts { connections: 2, answered_bytes: 8, answered_starts: 0 });
        proxy.shutdown().await;
        task.shutdown().await;
    }

    #[tokio::test]
    async fn the_answer_to_a_start_is_counted_once_in_whatever_pieces_it_comes() {
        let (server, mut task) = echo().await;
        let proxy = CuttingProxy::start(server).await;
        let mut stream = TcpStream::connect(proxy.address()).await.expect("the proxy listens");
        let answer = br#"{"id":1,"result":{"processId":"p"}}{"id":2,"result":{}}"#;
        let mut back = vec![0; answer.len()];
        for byte in answer {
            stream.write_all(&[*byte]).await.expect("the proxy reads");
        }
        stream.read_exact(&mut back).await.expect("it comes back");
        stream.write_all(answer).await.expect("the proxy reads");
        stream.read_exact(&mut back).await.expect("it comes back");
        let counts = proxy.wait_until(|counts| counts.answered_bytes >= 2 * answer.len() as u64).await;
        assert_eq!(counts.answered_starts, 2);
        proxy.shutdown().await;
        task.shutdown().await;
    }

    #[tokio::test]
    async fn a_blocked_proxy_turns_away_until_it_is_unblocked() {
        let (server, mut task) = echo().await;
        let proxy = CuttingProxy::start(server).await;
        proxy.block();
        let mut early = TcpStream::connect(proxy.address()).await.expect("the kernel accepts");
        assert!(!echoes(&mut early).await);
        proxy.unblock();
        let mut late = TcpStream::connect(proxy.address()).await.expect("the proxy listens");
        assert!(echoes(&mut late).await);
        proxy.shutdown().await;
        task.shutdown().await;
    }
}
