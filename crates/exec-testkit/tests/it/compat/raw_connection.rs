//! One connection to a server, from outside: a WebSocket by somebody else's library, or a child's stdin and stdout.

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::DEADLINE;

pub(crate) enum RawConnection {
    WebSocket(Box<WebSocketStream<TcpStream>>),
    Stdio { child: Box<Child>, stdin: Option<ChildStdin>, lines: BufReader<ChildStdout> },
}

pub(crate) enum Received {
    Text(String),
    /// The connection is over; a server on stdio has ended with it, and this is its exit code.
    End(Option<i32>),
}

impl RawConnection {
    pub(crate) async fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        let request = format!("ws://{address}/").into_client_request().expect("a URL");
        // The server may send frames of any size; what the client would mind is not the subject here.
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let upgrade = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
        let (socket, _) = upgrade.await.expect("the upgrade succeeds");
        Self::WebSocket(Box::new(socket))
    }

    pub(crate) fn of_child(mut child: Child) -> Self {
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self::Stdio { child: Box::new(child), stdin, lines }
    }

    /// Sends one message. A server that has ended does not listen; what it says then is for the reader to see.
    pub(crate) async fn send(&mut self, text: &str) {
        match self {
            Self::WebSocket(socket) => drop(socket.send(Message::text(text)).await),
            Self::Stdio { .. } => self.send_raw(format!("{text}\n").as_bytes()).await,
        }
    }

    /// Bytes as they are, below any framing.
    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        match self {
            Self::WebSocket(socket) => {
                let stream = socket.get_mut();
                let _ = stream.write_all(bytes).await;
                let _ = stream.flush().await;
            }
            Self::Stdio { stdin: Some(stdin), .. } => {
                let _ = stdin.write_all(bytes).await;
                let _ = stdin.flush().await;
            }
            Self::Stdio { stdin: None, .. } => {}
        }
    }

    /// A whole message in frames of our choice.
    pub(crate) async fn send_message(&mut self, message: Message) {
        let Self::WebSocket(socket) = self else { panic!("only a WebSocket has frames") };
        let _ = socket.send(message).await;
    }

    /// No more input: EOF on stdio, a close frame on a WebSocket.
    pub(crate) async fn finish(&mut self) {
        match self {
            Self::WebSocket(socket) => drop(socket.send(Message::Close(None)).await),
            Self::Stdio { stdin, .. } => drop(stdin.take()),
        }
    }

    /// The next message, or the end; `None` if neither comes in time.
    pub(crate) async fn next(&mut self) -> Option<Received> {
        tokio::time::timeout(DEADLINE, self.receive()).await.ok()
    }

    async fn receive(&mut self) -> Received {
        match self {
            Self::WebSocket(socket) => loop {
                match socket.next().await {
                    Some(Ok(Message::Text(text))) => return Received::Text(text.to_string()),
                    Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Received::End(None),
                }
            },
            Self::Stdio { child, stdin, lines } => {
                let mut line = String::new();
                match lines.read_line(&mut line).await {
                    Ok(read) if read > 0 => Received::Text(line.trim_end_matches('\n').to_owned()),
                    _ => {
                        drop(stdin.take());
                        Received::End(child.wait().await.ok().and_then(|status| status.code()))
                    }
                }
            }
        }
    }
}
