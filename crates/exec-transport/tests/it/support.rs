//! What the tests share: listeners, peers from tungstenite, and a peer that writes raw bytes.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use exec_transport::{
    ConnectOptions, Connection, ConnectionEnd, ListenOptions, ListenUrl, Listener, Message, Received, Receiver, Target,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;

/// Nothing in these tests takes so long; it only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Tungstenite = WebSocketStream<TcpStream>;

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("the test hangs")
}

pub(crate) async fn websocket_listener(options: ListenOptions) -> (Listener, SocketAddr) {
    let any_port = ListenUrl::WebSocket("127.0.0.1:0".parse().expect("a literal address"));
    let listener = Listener::bind(&any_port, options).await.expect("loopback has free ports");
    let address = listener.url().strip_prefix("ws://").expect("a WebSocket listener").parse().expect("an address");
    (listener, address)
}

/// Accepts one connection, and keeps accepting (and dropping) no other.
pub(crate) async fn accept(listener: &mut Listener) -> Connection {
    within(listener.accept()).await.expect("the listener works")
}

/// Our server and tungstenite's client, connected.
pub(crate) async fn with_tungstenite(options: ListenOptions) -> (Connection, Tungstenite) {
    let (mut listener, address) = websocket_listener(options).await;
    let client = async {
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (client, _) =
            tokio_tungstenite::client_async(format!("ws://{address}/"), stream).await.expect("it upgrades");
        client
    };
    tokio::join!(accept(&mut listener), within(client))
}

/// Our server and a client that has upgraded and otherwise only moves bytes.
pub(crate) async fn with_raw_client(options: ListenOptions) -> (Connection, TcpStream) {
    let (mut listener, address) = websocket_listener(options).await;
    tokio::join!(accept(&mut listener), within(raw_upgrade(address)))
}

/// Our server and our client.
pub(crate) async fn with_our_client(options: ListenOptions, connect: ConnectOptions) -> (Connection, Connection) {
    let (mut listener, address) = websocket_listener(options).await;
    let target: Target = format!("ws://{address}").parse().expect("a URL");
    let (server, client) = tokio::join!(accept(&mut listener), within(exec_transport::connect(&target, &connect)));
    (server, client.expect("it upgrades"))
}

pub(crate) async fn raw_upgrade(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!(
        "GET / HTTP/1.1\r\nhost: {address}\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
    stream
}

/// An HTTP head, byte by byte so that nothing behind it is read.
pub(crate) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the head ends before the stream does"));
    }
    String::from_utf8(head).expect("heads are text")
}

/// A frame as it lies on the wire, unmasked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) fin: bool,
    pub(crate) opcode: u8,
    pub(crate) payload: Vec<u8>,
}

pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Frame> {
    let first = stream.read_u8().await?;
    let length = match stream.read_u8().await? {
        126 => u64::from(stream.read_u16().await?),
        127 => stream.read_u64().await?,
        short => u64::from(short),
    };
    let mut payload = vec![0; usize::try_from(length).expect("a frame that fits")];
    stream.read_exact(&mut payload).await?;
    Ok(Frame { fin: first & 0x80 != 0, opcode: first & 0x0F, payload })
}

/// A client's frame with the mask `0`, which changes nothing and may be written by hand.
pub(crate) fn masked(first_byte: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first_byte, 0x80 | u8::try_from(payload.len()).expect("short"), 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

pub(crate) fn text(content: impl Into<String>) -> Message {
    Message::Text(Bytes::from(content.into()))
}

pub(crate) async fn send(connection: &mut Connection, message: Message) {
    within(connection.sender.feed(message)).await.expect("the peer reads");
    within(connection.sender.flush()).await.expect("the peer reads");
}

pub(crate) async fn message(receiver: &mut Receiver) -> Message {
    match within(receiver.next()).await {
        Received::Message(message) => message,
        other => panic!("expected a message, found {other:?}"),
    }
}

pub(crate) async fn closed(receiver: &mut Receiver) -> ConnectionEnd {
    match within(receiver.next()).await {
        Received::Closed(closed) => closed,
        other => panic!("expected the end, found {other:?}"),
    }
}

/// Text that repeats at no power of two, so that a misplaced piece shows.
pub(crate) fn long_text(bytes: usize) -> String {
    let period: String =
        (0..4093).map(|at| char::from(b'a' + u8::try_from((at / 7 + at) % 26).expect("below 26"))).collect();
    let mut text = period.repeat(bytes.div_ceil(period.len()));
    text.truncate(bytes);
    text
}
