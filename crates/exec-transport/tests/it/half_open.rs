//! Streams that are opened and then say nothing, or only half of something: thousands of them keep nobody out.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use exec_transport::{
    CertificateSource, ClientTls, ConnectOptions, Connection, ListenOptions, ListenUrl, Listener, ServerTls,
    ServerTlsOptions, Target, TlsOptions, TrustedServers, connect,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::within;

/// What a flood opens, if this process may have so many descriptors.
const FLOOD: u64 = 10_000;

/// Descriptors for all that is not the flood.
const OTHERS: u64 = 1_500;

/// A real client gets in within this time.
const PROMISE: Duration = Duration::from_secs(1);

/// Connections that the listener allows; far fewer than the flood would take.
const PLACES: usize = 16;

fn flood_size() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where it cannot be raised, the flood is smaller.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.map_or(FLOOD, |limit| FLOOD.min(limit.saturating_sub(OTHERS)))
}

/// The beginning of something: of nothing, of a request, of a TLS record, a record that is none.
fn beginning(at: u64) -> &'static [u8] {
    match at % 4 {
        0 => b"",
        1 => b"GET / HTTP/1.1\r\nhost: local",
        2 => b"\x16\x03\x01\x02\x00\x01\x00",
        _ => b"\x16",
    }
}

/// Opens the flood and keeps it; meanwhile and afterwards real clients connect. The slowest of them is returned.
async fn slowest_of_real_clients(mut listener: Listener, address: SocketAddr, options: ConnectOptions) -> Duration {
    let target: Target =
        format!("{}://{address}", if options.tls.is_some() { "wss" } else { "ws" }).parse().expect("a URL");
    let serving = tokio::spawn(async move {
        let mut accepted: Vec<Connection> = Vec::new();
        while let Ok(connection) = listener.accept().await {
            accepted.push(connection);
        }
    });
    let size = flood_size();
    let (mut flood, mut real, mut slowest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for at in 0..=size {
        if at % (size / 8).max(1) == 0 {
            let begun = Instant::now();
            real.push(within(connect(&target, &options)).await.expect("a real client is not refused"));
            slowest = slowest.max(begun.elapsed());
        }
        let mut stream = TcpStream::connect(address).await.expect("the listener accepts");
        // It may have been cut off already.
        let _ = stream.write_all(beginning(at)).await;
        flood.push(stream);
    }
    let mut rest = Vec::new();
    // The first of the flood had to make room for the last.
    let _ = within(flood[0].read_to_end(&mut rest)).await;
    assert!(real.len() < PLACES, "there was a place for every real client");
    serving.abort();
    slowest
}

fn options() -> ListenOptions {
    ListenOptions { max_connections: PLACES, ..ListenOptions::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_half_open_connections_keep_no_real_client_waiting() {
    let any_port: ListenUrl = "ws://127.0.0.1:0".parse().expect("a URL");
    let listener = Listener::bind(&any_port, options()).await.expect("loopback has free ports");
    let address = listener.url()[5..].parse().expect("an address");
    let slowest = slowest_of_real_clients(listener, address, ConnectOptions::default()).await;
    assert!(slowest < PROMISE, "{slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_half_open_tls_handshakes_keep_no_real_client_waiting() {
    let certificate = CertificateSource::SelfSigned { addresses: Vec::new(), kept_in: None };
    let tls = ServerTls::load(&ServerTlsOptions { certificate, client_ca: None }).expect("nothing to read");
    let trust = TrustedServers::Fingerprint(tls.fingerprint());
    let client = ClientTls::load(&TlsOptions { trust, certificate: None }).expect("nothing to read");
    let any_port: ListenUrl = "wss://127.0.0.1:0".parse().expect("a URL");
    let listener = Listener::bind(&any_port, ListenOptions { tls: Some(tls), ..options() }).await;
    let listener = listener.expect("loopback has free ports");
    let address = listener.url()[6..].parse().expect("an address");
    let options = ConnectOptions { tls: Some(client), ..ConnectOptions::default() };
    let slowest = slowest_of_real_clients(listener, address, options).await;
    assert!(slowest < PROMISE, "{slowest:?}");
}
