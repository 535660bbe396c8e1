//! A TCP proxy that cuts: what a bad network does to a connection, at the moment a test chooses.
//!
//! It passes bytes both ways until it is told to [`cut`](CuttingProxy::cut). Then both ends of every connection are
//! closed in the middle of whatever they carried; connections that come later pass, or are closed as they come while
//! the door is [`shut`](CuttingProxy::shut). It counts, so that a test can wait for a connection or for a byte instead
//! of for a time.
//!
//! Deliberately absent: delay, loss below TCP, and any look at what passes.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Bytes moved at a time. Small, so that a cut falls inside a message as often as between two.
const BLOCK_BYTES: usize = 4096;

/// A way to a server that can be interrupted. It ends with this.
#[derive(Debug)]
pub struct CuttingProxy {
    address: SocketAddr,
    door: watch::Sender<Door>,
    counts: watch::Receiver<Counts>,
    acceptor: JoinSet<()>,
}

/// What the proxy is told.
#[derive(Debug, Clone, Copy, Default)]
struct Door {
    /// How often it was told to cut; a connection ends when this is no longer what it was.
    cuts: u64,
    /// Whether those who come are turned away.
    shut: bool,
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that reached the server.
    pub connections: u64,
    /// Bytes that came from the server and were passed on.
    pub answered_bytes: u64,
}

impl CuttingProxy {
    /// Stands before the server at this address.
    pub async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let door = watch::Sender::new(Door::default());
        let (count, counts) = watch::channel(Counts::default());
        let mut acceptor = JoinSet::new();
        acceptor.spawn(accept(listener, server, door.subscribe(), Arc::new(count)));
        Self { address, door, counts, acceptor }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every connection there is. The next ones pass.
    pub fn cut(&self) {
        self.door.send_modify(|door| door.cuts += 1);
    }

    /// Ends every connection there is, and turns away those who come until [`open`](Self::open).
    pub fn shut(&self) {
        self.door.send_modify(|door| *door = Door { cuts: door.cuts + 1, shut: true });
    }

    /// Lets connections pass again.
    pub fn open(&self) {
        self.door.send_modify(|door| door.shut = false);
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Waits until the counts are as wished.
    pub async fn until(&self, wished: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.counts.clone();
        let counted = counts.wait_for(wished).await;
        *counted.expect("the acceptor counts for as long as the proxy lives")
    }

    /// Stops listening, cuts who is connected, and waits until all that is done.
    pub async fn end(mut self) {
        self.acceptor.shutdown().await;
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    door: watch::Receiver<Door>,
    count: Arc<watch::Sender<Counts>>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((client, _)) = accepted {
                connections.spawn(relay(client, server, door.clone(), count.clone()));
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// One connection, until an end closes it or the proxy cuts it. Leaving this function closes both sockets at once.
async fn relay(
    client: TcpStream,
    server: SocketAddr,
    mut door: watch::Receiver<Door>,
    count: Arc<watch::Sender<Counts>>,
) {
    let at_start = *door.borrow_and_update();
    if at_start.shut {
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
    let passed_on = |bytes| count.send_modify(|counts| counts.answered_bytes += bytes);
    tokio::select! {
        () = pass(from_client, to_server, |_| ()) => {}
        () = pass(from_server, to_client, passed_on) => {}
        _ = door.wait_for(|door| door.cuts != at_start.cuts) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, passed: impl Fn(u64)) {
    let mut block = [0; BLOCK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut block).await {
        if to.write_all(&block[..count]).await.is_err() {
            return;
        }
        passed(count as u64);
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
        let proxy = CuttingProxy::before(server).await;
        let mut first = TcpStream::connect(proxy.address()).await.expect("the proxy listens");
        assert!(echoes(&mut first).await);
        proxy.cut();
        assert_eq!(first.read(&mut [0; 4]).await.unwrap_or(0), 0, "the first connection is over");
        let mut second = TcpStream::connect(proxy.address()).await.expect("the proxy listens");
        assert!(echoes(&mut second).await);
        assert_eq!(proxy.counts(), Counts { connections: 2, answered_bytes: 8 });
        proxy.end().await;
        task.shutdown().await;
    }

    #[tokio::test]
    async fn a_shut_door_turns_away_until_it_opens() {
        let (server, mut task) = echo().await;
        let proxy = CuttingProxy::before(server).await;
        proxy.shut();
        let mut early = TcpStream::connect(proxy.address()).await.expect("the kernel accepts");
        assert!(!echoes(&mut early).await);
        proxy.open();
        let mut late = TcpStream::connect(proxy.address()).await.expect("the proxy listens");
        assert!(echoes(&mut late).await);
        proxy.end().await;
        task.shutdown().await;
    }
}
