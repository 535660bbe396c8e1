//! A client without our library: another WebSocket implementation, frames of at most 16 MiB, plain JSON.

use exec_transport::ListenUrl;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::remote;

pub(super) struct PlainClient {
    socket: WebSocketStream<TcpStream>,
    last_id: u64,
    notifications: Vec<Value>,
    address: String,
    /// The server, if it ends with this client.
    _server: Option<remote::InProcessServer>,
}

impl PlainClient {
    /// A client of a server of its own, past the handshake.
    pub(super) async fn connected() -> Self {
        let (address, server) = remote::listen(ListenUrl::WebSocket("127.0.0.1:0".parse().expect("an address"))).await;
        let address = address.trim_start_matches("ws://").trim_end_matches('/').to_owned();
        Self::connect(address, Some(server)).await
    }

    /// Another client of the same server, with a session of its own.
    pub(super) async fn another(&self) -> Self {
        Self::connect(self.address.clone(), None).await
    }

    async fn connect(address: String, server: Option<remote::InProcessServer>) -> Self {
        let stream = TcpStream::connect(&address).await.expect("the server accepts");
        let request = format!("ws://{address}/").into_client_request().expect("a URL");
        let config = WebSocketConfig::default().max_frame_size(Some(16 << 20)).max_message_size(Some(64 << 20));
        let upgrade = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
        let (socket, _) = upgrade.await.expect("the upgrade succeeds");
        let mut client = Self { socket, last_id: 0, notifications: Vec::new(), address, _server: server };
        client.call("initialize", json!({"clientName": "raw"})).await;
        client.send(json!({"method": "initialized", "params": {}})).await;
        client
    }

    /// Sends a request and does not wait for its response.
    pub(super) async fn send_request(&mut self, method: &str, params: Value) {
        self.last_id += 1;
        self.send(json!({"id": self.last_id, "method": method, "params": params})).await;
    }

    /// Sends a request; returns the result, or code and message of the error.
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Value {
        self.send_request(method, params).await;
        loop {
            let mut message = self.receive().await;
            if message["id"] == self.last_id {
                return match message.get_mut("result") {
                    Some(result) => result.take(),
                    None => json!([message["error"]["code"], message["error"]["message"]]),
                };
            }
            self.notifications.push(message);
        }
    }

    /// The next notification, also one that came before a response.
    pub(super) async fn notification(&mut self) -> Value {
        if self.notifications.is_empty() { self.receive().await } else { self.notifications.remove(0) }
    }

    async fn send(&mut self, message: Value) {
        self.socket.send(Message::text(message.to_string())).await.expect("the server reads");
    }

    async fn receive(&mut self) -> Value {
        loop {
            match self.socket.next().await.expect("the server is there").expect("no frame is too large") {
                Message::Text(text) => return serde_json::from_str(&text).expect("the server writes JSON"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("nothing else was asked for: {other:?}"),
            }
        }
    }
}

pub(super) fn uri(path: &std::path::Path) -> Value {
    json!(format!("file://{}", path.display()))
}
