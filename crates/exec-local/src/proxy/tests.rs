//! Whole proxies, served on the loopback and spoken to by hand, as a hostile process would.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use exec_core::ProcessId;
use exec_core::network::{
    DomainAccess, NetworkAnswer, NetworkDecision, NetworkMode, NetworkOutcome, NetworkProxy, NetworkRequest,
    UpstreamProxies,
};
use exec_env::{BoxFuture, NetworkDecider};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinSet;

use super::ProxyHost;
use super::dial::Lookups;
use crate::descriptors::DescriptorBudget;

const SUCCEEDED: u8 = 0;
const FAILED: u8 = 1;
const NOT_SUPPORTED: u8 = 7;
const NO_SUCH_ADDRESS: u8 = 8;
/// Most bytes of a datagram, and those of the header before what it carries.
const DATAGRAM: usize = 65_507;
const HEADER: usize = 10;

fn proxy(domains: &[(&str, DomainAccess)]) -> NetworkProxy {
    NetworkProxy {
        domains: domains.iter().map(|(pattern, access)| ((*pattern).to_owned(), *access)).collect(),
        review_domains: Vec::new(),
        mode: NetworkMode::Full,
        socks5: true,
        socks5_udp: true,
        allow_upstream: true,
        allow_local: false,
        decision_timeout: None,
        audit: Vec::new(),
    }
}

/// Allows the loopback and nothing else.
fn local() -> NetworkProxy {
    proxy(&[("127.0.0.1", DomainAccess::Allow)])
}

/// Remembers what was decided.
#[derive(Default)]
struct Decisions(Mutex<Vec<(NetworkOutcome, String)>>);

impl NetworkDecider for Decisions {
    fn decide<'a>(&'a self, _: &'a ProcessId, _: NetworkRequest) -> BoxFuture<'a, NetworkAnswer> {
        Box::pin(async { NetworkAnswer::none() })
    }

    fn decided(&self, _: &ProcessId, decision: NetworkDecision) {
        let request = format!("{}:{}", decision.request.host, decision.request.port);
        self.0.lock().expect("nobody panics").push((decision.outcome, request));
    }
}

/// A proxy that is served until this is dropped.
struct Served {
    http: SocketAddr,
    socks: SocketAddr,
    decisions: Arc<Decisions>,
    _task: JoinSet<()>,
}

impl Served {
    async fn start(proxy: NetworkProxy) -> Self {
        Self::with(ProxyHost::new(DescriptorBudget::of_this_process()), proxy, &[]).await
    }

    async fn with(host: ProxyHost, proxy: NetworkProxy, own: &[&std::net::UdpSocket]) -> Self {
        let decisions = Arc::new(Decisions::default());
        host.set_decider(decisions.clone());
        let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let [http, socks] = [0, 1].map(|at: usize| listeners[at].local_addr().expect("it is bound"));
        let own = own.iter().map(|socket| socket.try_clone().expect("a descriptor").into());
        let sockets = listeners.into_iter().map(Into::into).chain(own).collect();
        let process = ProcessId::new("p").expect("short");
        let serving = Arc::new(host).serve(&process, &proxy, sockets).expect("good rules");
        let mut task = JoinSet::new();
        task.spawn(serving);
        Self { http, socks, decisions, _task: task }
    }

    fn decided(&self) -> Vec<(NetworkOutcome, String)> {
        self.decisions.0.lock().expect("nobody panics").clone()
    }

    /// Says `request` behind the greeting, and what is answered.
    async fn ask(&self, request: &[u8]) -> (TcpStream, [u8; 10]) {
        let mut stream = TcpStream::connect(self.socks).await.expect("it listens");
        stream.write_all(&[&[5, 1, 0], request].concat()).await.expect("it reads");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.expect("it answers");
        (stream, answer[2..].try_into().expect("ten bytes"))
    }

    async fn relay(&self) -> Relay {
        self.relay_from(UdpSocket::bind("127.0.0.1:0").await.expect("a free port"), true).await
    }

    async fn relay_from(&self, socket: UdpSocket, named: bool) -> Relay {
        let port = if named { socket.local_addr().expect("it is bound").port() } else { 0 };
        let (stream, answer) = self.ask(&[&[5, 3, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat()).await;
        assert_eq!(answer[..8], [5, SUCCEEDED, 0, 1, 0, 0, 0, 0]);
        let port = u16::from_be_bytes([answer[8], answer[9]]);
        Relay { stream, socket, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }
    }

    /// What an HTTP proxy answers, until it is done.
    async fn heard(&self, said: &str) -> String {
        let mut stream = TcpStream::connect(self.http).await.expect("it listens");
        stream.write_all(said.as_bytes()).await.expect("it reads");
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        String::from_utf8_lossy(&heard).into_owned()
    }
}

/// A relay, from the side of the process.
struct Relay {
    stream: TcpStream,
    socket: UdpSocket,
    address: SocketAddr,
}

impl Relay {
    async fn send(&self, to: SocketAddr, data: &[u8]) {
        self.send_raw(&datagram(to, data)).await;
    }

    async fn send_raw(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.address).await.expect("the loopback carries it");
    }

    /// Where the next datagram comes from, and what it carries.
    async fn receive(&self) -> (SocketAddr, Vec<u8>) {
        let mut buffer = vec![0; DATAGRAM];
        let (length, from) = self.socket.recv_from(&mut buffer).await.expect("a socket");
        assert_eq!((from, &buffer[..4]), (self.address, &[0, 0, 0, 1][..]));
        let ip = Ipv4Addr::new(buffer[4], buffer[5], buffer[6], buffer[7]);
        let port = u16::from_be_bytes([buffer[8], buffer[9]]);
        (SocketAddr::from((ip, port)), buffer[HEADER..length].to_vec())
    }

    /// Until the proxy ends it.
    async fn ended(mut self) {
        assert_eq!(self.stream.read(&mut [0]).await.unwrap_or(0), 0);
    }
}

fn datagram(to: SocketAddr, data: &[u8]) -> Vec<u8> {
    let IpAddr::V4(ip) = to.ip() else { panic!("of the old kind") };
    [&[0, 0, 0, 1][..], &ip.octets(), &to.port().to_be_bytes(), data].concat()
}

/// Somebody in the world who takes datagrams.
async fn world() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let address = socket.local_addr().expect("it is bound");
    (socket, address)
}

async fn received(socket: &UdpSocket) -> (SocketAddr, Vec<u8>) {
    let mut buffer = vec![0; DATAGRAM];
    let (length, from) = socket.recv_from(&mut buffer).await.expect("a socket");
    (from, buffer[..length].to_vec())
}

#[tokio::test]
async fn a_datagram_reaches_what_is_allowed_and_its_answer_says_where_it_is_from() {
    let served = Served::start(local()).await;
    let (world, there) = world().await;
    for named in [true, false] {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
        let relay = served.relay_from(socket, named).await;
        for text in ["one", "two"] {
            relay.send(there, text.as_bytes()).await;
            let (from, data) = received(&world).await;
            assert_eq!(data, text.as_bytes());
            world.send_to(b"answer", from).await.expect("the relay has a socket");
            assert_eq!(relay.receive().await, (there, b"answer".to_vec()));
        }
    }
    // Once for each relay: a destination is judged as a tunnel is.
    assert_eq!(served.decided(), vec![(NetworkOutcome::Allow, there.to_string()); 2]);
}

#[tokio::test]
async fn a_destination_that_is_refused_ends_the_relay_and_gets_nothing() {
    let (world, there) = world().await;
    let limited = NetworkProxy { mode: NetworkMode::Limited, ..local() };
    let denied = proxy(&[("127.0.0.1", DomainAccess::Deny)]);
    for refusing in [proxy(&[]), proxy(&[("*", DomainAccess::Allow)]), denied, limited] {
        let served = Served::start(refusing).await;
        let relay = served.relay().await;
        relay.send(there, b"refused").await;
        relay.ended().await;
        assert_eq!(served.decided(), [(NetworkOutcome::Deny, there.to_string())]);
    }
    let nothing = world.try_recv_from(&mut [0]).map_err(|error| error.kind());
    assert_eq!(nothing, Err(std::io::ErrorKind::WouldBlock));
}

#[tokio::test]
async fn a_relay_is_for_those_who_may_have_one_and_name_no_name() {
    let served = Served::start(NetworkProxy { socks5_udp: false, ..local() }).await;
    assert_eq!(served.ask(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await.1[1], NOT_SUPPORTED);
    let served = Served::start(local()).await;
    assert_eq!(served.ask(b"\x05\x03\0\x03\x09localhost\0\0").await.1[1], NO_SUCH_ADDRESS);
}

/// A stranger sends to the socket of the relay, and to its socket in the world. Neither passes.
#[tokio::test]
async fn a_stranger_can_send_neither_through_a_relay_nor_to_its_process() {
    let served = Served::start(local()).await;
    let (world, there) = world().await;
    let stranger = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    for named in [true, false] {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
        let relay = served.relay_from(socket, named).await;
        if !named {
            relay.send(there, b"first").await;
            received(&world).await;
        }
        stranger.send_to(&datagram(there, b"strange"), relay.address).await.expect("it is sent");
        relay.send(there, b"ours").await;
        let (from, data) = received(&world).await;
        assert_eq!(data, b"ours");
        stranger.send_to(b"strange", from).await.expect("it is sent");
        world.send_to(b"answer", from).await.expect("it is sent");
        assert_eq!(relay.receive().await, (there, b"answer".to_vec()));
    }
}

#[tokio::test]
async fn fragments_and_garbage_are_dropped_and_the_relay_goes_on() {
    let served = Served::start(local()).await;
    let (world, there) = world().await;
    let relay = served.relay().await;
    let mut fragment = datagram(there, b"fragment");
    fragment[2] = 1;
    let garbage: [&[u8]; 6] =
        [b"", b"\0", b"\0\0\0", b"\0\0\0\x09abcdef", b"\0\0\0\x03\xffa", b"\0\0\0\x03\x03a b\0\x07"];
    for dropped in garbage.into_iter().chain([&fragment[..]]) {
        relay.send_raw(dropped).await;
    }
    relay.send(there, b"whole").await;
    assert_eq!(received(&world).await.1, b"whole");
    assert_eq!(served.decided().len(), 1);
}

#[tokio::test]
async fn the_longest_datagrams_pass_whole_and_what_has_no_room_for_its_header_is_dropped() {
    let served = Served::start(local()).await;
    let (world, there) = world().await;
    let relay = served.relay().await;
    let longest: Vec<u8> = (0..DATAGRAM - HEADER).map(|at| at as u8).collect();
    relay.send(there, &longest).await;
    let (from, data) = received(&world).await;
    assert!(data == longest, "{} of {} bytes", data.len(), longest.len());
    world.send_to(&vec![0; DATAGRAM], from).await.expect("it is sent");
    world.send_to(&longest, from).await.expect("it is sent");
    let (_, data) = relay.receive().await;
    assert!(data == longest, "{} of {} bytes", data.len(), longest.len());
}

/// More destinations than are remembered: those that were forgotten are judged again, and hear nothing in between.
#[tokio::test]
async fn thousands_of_destinations_are_served_and_only_some_remembered() {
    let served = Served::start(local()).await;
    let (first, at_first) = world().await;
    let (last, at_last) = world().await;
    let relay = served.relay().await;
    relay.send(at_first, b"a").await;
    let (from, _) = received(&first).await;
    for port in 1..=2000 {
        relay.send(SocketAddr::from((Ipv4Addr::new(127, 0, 0, 1), port)), b"x").await;
        if port % 50 == 0 {
            // By then the relay has read them all, so that none is lost in a full buffer.
            relay.send(at_last, b"b").await;
            received(&last).await;
        }
    }
    first.send_to(b"late", from).await.expect("it is sent");
    last.send_to(b"now", from).await.expect("it is sent");
    assert_eq!(relay.receive().await, (at_last, b"now".to_vec()));
    relay.send(at_first, b"a").await;
    first.send_to(b"again", received(&first).await.0).await.expect("it is sent");
    assert_eq!(relay.receive().await, (at_first, b"again".to_vec()));
    let judged = served.decided().into_iter().filter(|(_, request)| *request == at_first.to_string()).count();
    assert_eq!(judged, 2);
}

/// What nobody reads is lost, in both directions, and the relay goes on.
#[tokio::test]
async fn a_flood_that_nobody_reads_leaves_the_relay_as_it_was() {
    let served = Served::start(local()).await;
    let (world, there) = world().await;
    let relay = served.relay().await;
    relay.send(there, b"first").await;
    let (from, _) = received(&world).await;
    for _ in 0..20_000 {
        relay.send(there, &[0; 1024]).await;
        world.send_to(&[0; 1024], from).await.expect("it is sent");
    }
    let (mut outwards, mut inwards) = (false, false);
    while !(outwards && inwards) {
        relay.send(there, b"out").await;
        world.send_to(b"in", from).await.expect("it is sent");
        outwards |= received(&world).await.1 == b"out";
        inwards |= relay.receive().await.1 == b"in";
    }
}

#[tokio::test]
async fn a_relay_ends_with_its_connection() {
    let served = Served::start(local()).await;
    let relay = served.relay().await;
    let address = relay.address;
    assert!(std::net::UdpSocket::bind(address).is_err(), "the relay has it");
    drop(relay);
    while std::net::UdpSocket::bind(address).is_err() {
        tokio::task::yield_now().await;
    }
}

/// In a network of the process's own there are only so many sockets, and each is used again.
#[tokio::test]
async fn sockets_of_the_process_s_own_network_are_used_again_without_what_was_left_in_them() {
    let own = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let host = ProxyHost::new(DescriptorBudget::of_this_process());
    let served = Served::with(host, local(), &[&own]).await;
    let (world, there) = world().await;
    let first = served.relay().await;
    assert_eq!(Some(first.address), own.local_addr().ok());
    let unnamed = [5, 3, 0, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(served.ask(&unnamed).await.1[1], FAILED);
    let stranger = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    first.send(there, b"first").await;
    received(&world).await;
    drop(first);
    let (_second, answer) = loop {
        // Whoever sends while nobody has the relay is heard by nobody.
        stranger.send_to(&datagram(there, b"left over"), own.local_addr().expect("it is bound")).await.expect("sent");
        let (stream, answer) = served.ask(&unnamed).await;
        if answer[1] == SUCCEEDED {
            break (stream, answer);
        }
    };
    let relay = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::from_be_bytes([answer[8], answer[9]])));
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    socket.send_to(&datagram(there, b"second"), relay).await.expect("it is sent");
    assert_eq!(received(&world).await.1, b"second");
}

#[tokio::test]
async fn a_name_is_looked_up_once_for_all_datagrams_of_a_relay() {
    let (world, there) = world().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let lookups = Lookups::with(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(vec![IpAddr::from(Ipv4Addr::LOCALHOST)]) })
    });
    let host = ProxyHost { lookups, ..ProxyHost::new(DescriptorBudget::of_this_process()) };
    let allow_all = NetworkProxy { allow_local: true, ..proxy(&[("*", DomainAccess::Allow)]) };
    let served = Served::with(host, allow_all, &[]).await;
    let relay = served.relay().await;
    let by_name = [b"\0\0\0\x03\x06a.test", &there.port().to_be_bytes()[..], b"hi"].concat();
    for _ in 0..3 {
        relay.send_raw(&by_name).await;
        assert_eq!(received(&world).await.1, b"hi");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

/// A proxy of the machine: what it was told, and an answer that is always the same.
async fn upstream(answer: &'static [u8]) -> (SocketAddr, tokio::sync::mpsc::Receiver<String>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (told, heads) = tokio::sync::mpsc::channel(16);
    let mut task = JoinSet::new();
    task.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.is_ok_and(|read| read > 0) {}
            let _ = told.send(String::from_utf8_lossy(&head).into_owned()).await;
            let _ = stream.write_all(answer).await;
        }
    });
    (address, heads, task)
}

/// A host whose every name has this address, and whose own variables are these.
fn host_with(address: [u8; 4], variables: &[(&'static str, String)]) -> ProxyHost {
    let lookups = Lookups::with(move |_| Box::pin(async move { Ok(vec![IpAddr::from(address)]) }));
    let find = |name: &str| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.clone());
    let upstream = UpstreamProxies::from_variables(find);
    ProxyHost { lookups, upstream, ..ProxyHost::new(DescriptorBudget::of_this_process()) }
}

const PUBLIC: [u8; 4] = [93, 184, 216, 34];
const GET: &str =
    "GET http://a.test:81/x HTTP/1.1\r\nHost: a.test:81\r\nProxy-Authorization: mine\r\nConnection: close\r\n\r\n";
const CONNECT: &str = "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nConnection: close\r\n\r\n";

fn allowing_all() -> NetworkProxy {
    proxy(&[("*", DomainAccess::Allow), ("denied.test", DomainAccess::Deny), ("127.0.0.1", DomainAccess::Allow)])
}

#[tokio::test]
async fn an_allowed_request_goes_on_through_the_machine_s_proxy_with_its_credentials() {
    let (address, mut told, _task) =
        upstream(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes").await;
    let variables = [("HTTP_PROXY", format!("http://u:p@{address}"))];
    let served = Served::with(host_with(PUBLIC, &variables), allowing_all(), &[]).await;
    assert!(served.heard(GET).await.ends_with("\r\n\r\nyes"));
    let authorization = "Proxy-Authorization: Basic dTpw";
    let expected = format!("GET http://a.test:81/x HTTP/1.1\r\nHost: a.test:81\r\n{authorization}\r\n\r\n");
    assert_eq!(told.recv().await, Some(expected));
    // What is denied is never told to anybody.
    assert!(served.heard(&GET.replace("a.test", "denied.test")).await.starts_with("HTTP/1.1 403"));
    assert!(told.try_recv().is_err());
}

#[tokio::test]
async fn a_tunnel_goes_on_through_the_machine_s_proxy() {
    let (address, mut told, _task) = upstream(b"HTTP/1.1 200 fine\r\n\r\nwho speaks first").await;
    let variables = [("HTTPS_PROXY", format!("http://{address}"))];
    let served = Served::with(host_with(PUBLIC, &variables), allowing_all(), &[]).await;
    let heard = served.heard(CONNECT).await;
    assert!(heard.starts_with("HTTP/1.1 200 OK") && heard.ends_with("\r\n\r\nwho speaks first"), "{heard}");
    assert_eq!(told.recv().await.as_deref(), Some("CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\n\r\n"));
}

#[tokio::test]
async fn a_proxy_of_the_machine_that_refuses_or_is_not_there_is_an_answer_too() {
    let (refusing, mut told, _task) = upstream(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n").await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let variables = |address: SocketAddr| [("ALL_PROXY", format!("http://{address}"))];
    let served = Served::with(host_with(PUBLIC, &variables(refusing)), allowing_all(), &[]).await;
    assert!(served.heard(GET).await.starts_with("HTTP/1.1 407"));
    let heard = served.heard(CONNECT).await;
    assert!(heard.starts_with("HTTP/1.1 200 OK") && heard.ends_with("\r\n\r\n"), "{heard}");
    assert!(told.recv().await.is_some() && told.recv().await.is_some());
    let served = Served::with(host_with(PUBLIC, &variables(closed.expect("a free port"))), allowing_all(), &[]).await;
    let heard = served.heard(GET).await;
    assert!(heard.starts_with("HTTP/1.1 502") && heard.ends_with("upstream failure"), "{heard}");
}

/// By the flag, by `NO_PROXY`, because it is local, because SOCKS5 was spoken, or because the name is one of this machine.
#[tokio::test]
async fn what_shall_not_go_through_the_machine_s_proxy_goes_straight_to_the_world() {
    let (address, mut told, _task) =
        upstream(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let (there, mut straight, _origin) = upstream(b"HTTP/1.1 204 Straight\r\nConnection: close\r\n\r\n").await;
    let variables = |around: &str| [("ALL_PROXY", format!("http://{address}")), ("NO_PROXY", around.to_owned())];
    let loopback = Ipv4Addr::LOCALHOST.octets();
    let open = || NetworkProxy { allow_local: true, ..allowing_all() };
    let without = NetworkProxy { allow_upstream: false, ..open() };
    let by_name = GET.replace("a.test:81", &format!("a.test:{}", there.port()));
    let by_address = GET.replace("a.test:81", &there.to_string());
    for (host, proxy, said) in [
        (host_with(loopback, &variables("")), without, &by_name),
        (host_with(loopback, &variables(".test")), open(), &by_name),
        (host_with(PUBLIC, &variables("")), allowing_all(), &by_address),
        (host_with(loopback, &variables("")), open(), &by_name),
    ] {
        let served = Served::with(host, proxy, &[]).await;
        let heard = served.heard(said).await;
        assert!(heard.starts_with("HTTP/1.1 204"), "{heard}");
        assert!(straight.recv().await.is_some());
    }
    let served = Served::with(host_with(PUBLIC, &variables("")), allowing_all(), &[]).await;
    let (mut tunnel, answer) =
        served.ask(&[&[5, 1, 0, 1, 127, 0, 0, 1][..], &there.port().to_be_bytes()].concat()).await;
    assert_eq!(answer[1], SUCCEEDED);
    tunnel.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("it reads");
    assert!(straight.recv().await.is_some());
    assert!(told.try_recv().is_err(), "the machine's proxy heard of something");
}
