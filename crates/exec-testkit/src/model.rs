//! A stand-in for the model behind the real Codex CLI: it says what the test tells it to, and shows the test what came
//! of it.
//!
//! Codex posts the whole conversation to `/v1/responses` and reads server-sent events. Each such request is a [`Turn`]:
//! the test takes it, looks at the outputs of the tools it called before, and answers with the next calls. So a test is
//! a script in the plain order of its lines, and Codex waits between them. A turn that nobody answers ends as a broken
//! answer, not as a hang.
//!
//! Whatever else is asked is refused and remembered ([`ScriptedModel::strays`]). A client whose proxy variables name
//! this server therefore reaches nobody outside, and a test can swear that it did not try.
//!
//! Deliberately absent: everything about Codex itself, and any judgement.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Turns that wait for the test. Codex asks one at a time; more than a few would be a client of another kind, and waits.
const WAITING_TURNS: usize = 4;

/// A model that is played by a test. Its server ends with it.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    turns: mpsc::Receiver<Turn>,
    strays: Arc<Mutex<Vec<String>>>,
    server: JoinSet<()>,
}

impl ScriptedModel {
    /// Listens on a free port of the loopback.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let (turn, turns) = mpsc::channel(WAITING_TURNS);
        let strays = Arc::new(Mutex::new(Vec::new()));
        let mut server = JoinSet::new();
        server.spawn(accept(listener, Desk { turn, strays: strays.clone() }));
        Self { address, turns, strays, server }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next request for something to say; waits until there is one.
    pub async fn turn(&mut self) -> Turn {
        self.turns.recv().await.expect("the server has a sender for as long as it runs")
    }

    /// Everything that was asked besides turns: `METHOD target`, in order.
    pub fn strays(&self) -> Vec<String> {
        self.strays.lock().expect("nobody panics while adding a line").clone()
    }

    /// Stops listening, cuts who is connected, and waits until all that is done.
    pub async fn end(mut self) {
        self.server.shutdown().await;
    }
}

/// One request for something to say, and the place for the answer.
#[derive(Debug)]
pub struct Turn {
    conversation: Value,
    answer: oneshot::Sender<Bytes>,
}

impl Turn {
    /// What Codex posted.
    pub fn conversation(&self) -> &Value {
        &self.conversation
    }

    /// The names of the tools that are offered.
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.conversation["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
    }

    /// What the call of this id came to, if it is over. Most tools answer with a text, some with a list of contents.
    pub fn output(&self, call_id: &str) -> Option<&Value> {
        let input = self.conversation["input"].as_array()?;
        let is_output = |item: &&Value| item["type"].as_str().is_some_and(|kind| kind.ends_with("_output"));
        Some(&input.iter().filter(is_output).find(|item| item["call_id"] == call_id)?["output"])
    }

    /// Says these items; calls among them are carried out, and the next turn has their outputs.
    pub fn answer(self, items: &[Item]) {
        // A client that has gone meanwhile is missed by whoever waits for its next turn.
        let _ = self.answer.send(events(items));
    }
}

/// One thing a model can say.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// Words for the user. A turn of nothing but words ends the work.
    Words(String),
    /// A call of a tool that takes arguments by name.
    Call {
        /// The id its output will carry.
        id: String,
        /// The tool.
        tool: String,
        /// Its arguments.
        arguments: Value,
    },
    /// A call of a tool that takes a text of its own grammar, as `apply_patch` does.
    Grammar {
        /// The id its output will carry.
        id: String,
        /// The tool.
        tool: String,
        /// The text.
        input: String,
    },
}

impl Item {
    fn shape(&self) -> Value {
        match self {
            Self::Words(text) => {
                json!({"type": "message", "role": "assistant", "id": "words",
                       "content": [{"type": "output_text", "text": text}]})
            }
            Self::Call { id, tool, arguments } => {
                // The arguments travel as a text, as a real model produces them.
                json!({"type": "function_call", "call_id": id, "name": tool, "arguments": arguments.to_string()})
            }
            Self::Grammar { id, tool, input } => {
                json!({"type": "custom_tool_call", "call_id": id, "name": tool, "input": input})
            }
        }
    }
}

/// A whole answer as the events a client of the Responses API expects.
fn events(items: &[Item]) -> Bytes {
    let usage = json!({"input_tokens": 1, "output_tokens": 1, "total_tokens": 2});
    let mut events = vec![json!({"type": "response.created", "response": {"id": "scripted"}})];
    events.extend(items.iter().map(|item| json!({"type": "response.output_item.done", "item": item.shape()})));
    events.push(json!({"type": "response.completed", "response": {"id": "scripted", "usage": usage}}));
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(event).collect::<String>().into()
}

/// Where requests are put down.
#[derive(Clone)]
struct Desk {
    turn: mpsc::Sender<Turn>,
    strays: Arc<Mutex<Vec<String>>>,
}

async fn accept(listener: TcpListener, desk: Desk) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(serve(stream, desk.clone()));
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn serve(stream: TcpStream, desk: Desk) {
    let service = service_fn(|request| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(desk.reply(request).await) }
    });
    // However a connection ends, the next one is as good.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Desk {
    async fn reply(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if *request.method() != Method::POST || request.uri().path() != "/v1/responses" {
            let line = format!("{} {}", request.method(), request.uri());
            self.strays.lock().expect("nobody panics while adding a line").push(line);
            return refusal(StatusCode::NOT_FOUND);
        }
        let Ok(body) = request.into_body().collect().await else { return refusal(StatusCode::BAD_REQUEST) };
        let Ok(conversation) = serde_json::from_slice(&body.to_bytes()) else {
            return refusal(StatusCode::BAD_REQUEST);
        };
        let (answer, answered) = oneshot::channel();
        if self.turn.send(Turn { conversation, answer }).await.is_err() {
            return refusal(StatusCode::SERVICE_UNAVAILABLE);
        }
        let Ok(events) = answered.await else { return refusal(StatusCode::SERVICE_UNAVAILABLE) };
        let mut response = Response::new(Full::new(events));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }
}

fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn ask(model: &ScriptedModel, request: String) -> TcpStream {
        let mut stream = TcpStream::connect(model.address()).await.expect("the model listens");
        stream.write_all(request.as_bytes()).await.expect("the model reads");
        stream
    }

    async fn told(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("the model answers and closes");
        text
    }

    #[tokio::test]
    async fn a_turn_shows_what_came_of_a_call_and_is_answered_with_events() {
        let mut model = ScriptedModel::start().await;
        let body = json!({
            "tools": [{"name": "exec_command"}, {"type": "web_search"}],
            "input": [{"type": "function_call", "call_id": "1"},
                      {"type": "function_call_output", "call_id": "1", "output": "hi"}],
        });
        let body = body.to_string();
        let head = "POST /v1/responses HTTP/1.1\r\nhost: m\r\nconnection: close\r\ncontent-length: ";
        let client = ask(&model, format!("{head}{}\r\n\r\n{body}", body.len())).await;
        let turn = model.turn().await;
        assert_eq!(turn.tools(), ["exec_command"]);
        assert_eq!(turn.output("1"), Some(&json!("hi")));
        assert_eq!(turn.output("2"), None);
        turn.answer(&[Item::Words("done".to_owned())]);
        let text = told(client).await;
        let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
        assert_eq!(names, ["response.created", "response.output_item.done", "response.completed"]);
        model.end().await;
    }

    #[tokio::test]
    async fn whatever_else_is_asked_is_refused_and_remembered() {
        let model = ScriptedModel::start().await;
        let request = "CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n";
        let text = told(ask(&model, request.to_owned()).await).await;
        assert!(text.starts_with("HTTP/1.1 404"), "{text}");
        assert_eq!(model.strays(), ["CONNECT example.com:443"]);
        model.end().await;
    }
}
