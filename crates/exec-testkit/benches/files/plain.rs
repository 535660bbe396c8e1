//! A plain client of the protocol: text messages, blocks of 1 MiB, several under way.

use std::time::{Duration, Instant};

use base64_simd::STANDARD as BASE64;
use futures_util::stream::SplitSink;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::{Load, Measured, PAUSE, QUIET_KEYS, Task};

/// Most that a block may have.
const BLOCK_BYTES: u64 = 1 << 20;
/// Blocks under way at a time.
const WINDOW: usize = 4;

pub(crate) async fn measure(url: &str, task: &Task) -> Measured {
    Client::connect(url).await.measure(task).await
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

struct Client {
    socket: Socket,
    next_id: u64,
}

impl Client {
    async fn connect(url: &str) -> Self {
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let connected = tokio_tungstenite::connect_async_with_config(url, Some(config), true).await;
        let mut client = Self { socket: connected.expect("it listens").0, next_id: 1 };
        client.call("initialize", json!({"clientName": "bench"})).await;
        client.send(json!({"method": "initialized"}).to_string()).await;
        client
    }

    async fn send(&mut self, text: String) {
        self.socket.send(Message::text(text)).await.expect("the connection lives");
    }

    async fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    async fn next(&mut self) -> String {
        loop {
            match self.socket.next().await.expect("the connection lives").expect("and is whole") {
                Message::Text(text) => return text.as_str().to_owned(),
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        loop {
            let message: Value = serde_json::from_str(&self.next().await).expect("JSON");
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message;
            }
        }
    }

    async fn measure(mut self, task: &Task) -> Measured {
        let load = task.load;
        let cat = json!({"processId": "cat", "argv": ["/bin/cat"], "cwd": "file:///tmp", "env": {}, "tty": true,
            "pipeStdin": true, "arg0": null});
        self.call("process/start", cat).await;
        let mode = if load == Load::Writing { "replace" } else { "read" };
        let path = format!("file://{}", task.path().display());
        self.call("fs/open", json!({"handleId": "h", "path": path, "mode": mode})).await;

        let begin = Instant::now();
        let mut blocks = if load == Load::Nothing { 0 } else { task.file_bytes / BLOCK_BYTES };
        let (keys, pressed) = mpsc::channel(1);
        let (free_slots, slots) = mpsc::channel(WINDOW);
        let (sink, mut stream) = self.socket.split();
        let sender = tokio::spawn(RequestSender { sink, next_id: self.next_id }.run(load, blocks, pressed, slots));
        for _ in 0..WINDOW {
            let _ = free_slots.try_send(());
        }
        let mut echoes = Vec::new();
        let mut since = press(&keys, PAUSE);
        while blocks > 0 || (load == Load::Nothing && echoes.len() < QUIET_KEYS) {
            let message = match stream.next().await.expect("the connection lives").expect("and is whole") {
                Message::Text(text) => text,
                _ => continue,
            };
            // A block is large, and to understand it would take longer than to receive it.
            let start = message.get(..message.len().min(200)).unwrap_or_default();
            assert!(!start.contains("\"error\""), "{start}");
            if start.contains("process/output") {
                echoes.push(since.await.expect("a key was pressed").elapsed());
                since = press(&keys, PAUSE);
            } else if start.contains("\"chunk\"") || start.contains("\"result\":{}") {
                blocks -= 1;
                let _ = free_slots.try_send(());
            }
        }
        sender.abort();
        (echoes, task.rate(begin.elapsed()))
    }
}

/// Presses a key after `pause`; returns when that was.
fn press(keys: &mpsc::Sender<()>, pause: Duration) -> JoinHandle<Instant> {
    let keys = keys.clone();
    tokio::spawn(async move {
        // not a wait: keys are pressed at such a pace
        tokio::time::sleep(pause).await;
        let at = Instant::now();
        let _ = keys.send(()).await;
        at
    })
}

/// Sends keys before blocks, and a block for each free slot of the window.
struct RequestSender {
    sink: SplitSink<Socket, Message>,
    next_id: u64,
}

impl RequestSender {
    async fn run(mut self, load: Load, blocks: u64, mut keys: mpsc::Receiver<()>, mut slots: mpsc::Receiver<()>) {
        let chunk = BASE64.encode_to_string(vec![b'x'; BLOCK_BYTES as usize]);
        let mut asked = 0;
        loop {
            let request = tokio::select! {
                biased;
                Some(()) = keys.recv() => {
                    format!(r#""process/write","params":{{"processId":"cat","writeId":"{}","chunk":"aw=="}}"#, self.next_id)
                }
                Some(()) = slots.recv(), if asked < blocks => {
                    let offset = asked * BLOCK_BYTES;
                    asked += 1;
                    match load {
                        Load::Writing => {
                            format!(r#""fs/writeBlock","params":{{"handleId":"h","offset":{offset},"chunk":"{chunk}"}}"#)
                        }
                        _ => format!(r#""fs/readBlock","params":{{"handleId":"h","offset":{offset},"len":{BLOCK_BYTES}}}"#),
                    }
                }
                else => return,
            };
            let id = self.next_id;
            self.next_id += 1;
            let request = format!(r#"{{"id":{id},"method":{request}}}"#);
            self.sink.send(Message::text(request)).await.expect("the connection lives");
        }
    }
}
