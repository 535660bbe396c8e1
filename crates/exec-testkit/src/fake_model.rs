//! A fake of the model server behind the real Codex CLI and the real Claude Code: the test decides what the model answers.
//!
//! An agent posts the whole conversation, Codex to `/v1/responses` and Claude Code to `/v1/messages`, and reads
//! server-sent events. Each such request is a [`ModelRequest`]: the test takes it, looks at the outputs of the tools that
//! it called before, and responds with the next calls. So a test is a script in the plain order of its lines, and the
//! agent waits between them. A request that the test drops ends as an HTTP error, not as a hang.
//!
//! Any other request is refused and recorded ([`FakeModelServer::unexpected_requests`]). A client whose proxy variables
//! name this server therefore reaches nobody outside, and a test can prove that it did not try.
//!
//! Deliberately absent: everything about the agents themselves, and any judgement.

mod messages;

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

/// Requests that wait for the test. An agent sends one at a time; more than a few would come from another client, and
/// wait.
const WAITING_REQUESTS: usize = 4;

/// The server stops when this is dropped.
#[derive(Debug)]
pub struct FakeModelServer {
    address: SocketAddr,
    requests: mpsc::Receiver<ModelRequest>,
    unexpected: Arc<Mutex<Vec<String>>>,
    server: JoinSet<()>,
}

impl FakeModelServer {
    /// Listens on a free port of the loopback.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let (sender, requests) = mpsc::channel(WAITING_REQUESTS);
        let unexpected = Arc::new(Mutex::new(Vec::new()));
        let mut server = JoinSet::new();
        server.spawn(accept(listener, RequestHandler { requests: sender, unexpected: unexpected.clone() }));
        Self { address, requests, unexpected, server }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next request of the agent.
    pub async fn next_request(&mut self) -> ModelRequest {
        self.requests.recv().await.expect("the server has a sender for as long as it runs")
    }

    /// All other requests: `METHOD target`, in order.
    pub fn unexpected_requests(&self) -> Vec<String> {
        self.unexpected.lock().expect("nobody panics while adding a line").clone()
    }

    /// Stops listening, closes every connection, and waits until that is done.
    pub async fn shutdown(mut self) {
        self.server.shutdown().await;
    }
}

/// A request of the agent, and the channel for the response to it.
#[derive(Debug)]
pub struct ModelRequest {
    api: Api,
    body: Value,
    response: oneshot::Sender<Bytes>,
}

impl ModelRequest {
    /// The names of the tools that the agent offers.
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
    }

    /// The output of this tool call, if it is over. Most tools answer with a text, some with a list of contents.
    pub fn tool_output(&self, call_id: &str) -> Option<&Value> {
        if self.api == Api::Messages {
            return messages::tool_output(&self.body, call_id);
        }
        let input = self.body["input"].as_array()?;
        let is_output = |item: &&Value| item["type"].as_str().is_some_and(|kind| kind.ends_with("_output"));
        Some(&input.iter().filter(is_output).find(|item| item["call_id"] == call_id)?["output"])
    }

    /// Answers with these items; the agent makes the calls among them, and its next request has their outputs.
    pub fn respond(self, items: &[OutputItem]) {
        let events = match self.api {
            Api::Responses => events(items),
            Api::Messages => messages::events(items),
        };
        // If the client is gone, whoever waits for its next request will notice.
        let _ = self.response.send(events);
    }
}

/// What the agent speaks, by the path of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    /// OpenAI's, for Codex.
    Responses,
    /// Anthropic's, for Claude Code.
    Messages,
}

/// One item of a model's response, named as in the Responses API.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputItem {
    /// Text for the user. A response of nothing but messages ends the agent's work.
    Message(String),
    /// A call of a tool that takes arguments by name.
    FunctionCall { id: String, tool: String, arguments: Value },
    /// The same for a tool of an MCP server, which Codex puts into a namespace of the server's, and Claude Code behind a
    /// prefix that is the same word.
    NamespacedCall { id: String, namespace: String, tool: String, arguments: Value },
    /// A call of a tool that takes a text of its own grammar, as `apply_patch` does.
    CustomToolCall { id: String, tool: String, input: String },
}

impl OutputItem {
    fn to_json(&self) -> Value {
        match self {
            Self::Message(text) => {
                json!({"type": "message", "role": "assistant", "id": "message",
                       "content": [{"type": "output_text", "text": text}]})
            }
            Self::FunctionCall { id, tool, arguments } => {
                // The arguments travel as a text, as a real model produces them.
                json!({"type": "function_call", "call_id": id, "name": tool, "arguments": arguments.to_string()})
            }
            Self::NamespacedCall { id, namespace, tool, arguments } => {
                json!({"type": "function_call", "call_id": id, "name": tool, "namespace": namespace,
                       "arguments": arguments.to_string()})
            }
            Self::CustomToolCall { id, tool, input } => {
                json!({"type": "custom_tool_call", "call_id": id, "name": tool, "input": input})
            }
        }
    }
}

/// A whole response as the events that a client of the Responses API expects.
fn events(items: &[OutputItem]) -> Bytes {
    let usage = json!({"input_tokens": 1, "output_tokens": 1, "total_tokens": 2});
    let mut events = vec![json!({"type": "response.created", "response": {"id": "scripted"}})];
    events.extend(items.iter().map(|item| json!({"type": "response.output_item.done", "item": item.to_json()})));
    events.push(json!({"type": "response.completed", "response": {"id": "scripted", "usage": usage}}));
    server_sent_events(&events)
}

fn server_sent_events(events: &[Value]) -> Bytes {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(event).collect::<String>().into()
}

#[derive(Clone)]
struct RequestHandler {
    requests: mpsc::Sender<ModelRequest>,
    unexpected: Arc<Mutex<Vec<String>>>,
}

async fn accept(listener: TcpListener, handler: RequestHandler) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(serve(stream, handler.clone()));
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn serve(stream: TcpStream, handler: RequestHandler) {
    let service = service_fn(|request| {
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(handler.handle(request).await) }
    });
    // However a connection ends, the client can open the next.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl RequestHandler {
    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let api = match (request.method(), request.uri().path()) {
            (&Method::POST, "/v1/responses") => Api::Responses,
            (&Method::POST, messages::PATH) => Api::Messages,
            (method, _) => {
                let line = format!("{method} {}", request.uri());
                self.unexpected.lock().expect("nobody panics while adding a line").push(line);
                return refusal(StatusCode::NOT_FOUND);
            }
        };
        let Ok(bytes) = request.into_body().collect().await else { return refusal(StatusCode::BAD_REQUEST) };
        let Ok(body) = serde_json::from_slice(&bytes.to_bytes()) else {
            return refusal(StatusCode::BAD_REQUEST);
        };
        let (response, responded) = oneshot::channel();
        if self.requests.send(ModelRequest { api, body, response }).await.is_err() {
            return refusal(StatusCode::SERVICE_UNAVAILABLE);
        }
        let Ok(events) = responded.await else { return refusal(StatusCode::SERVICE_UNAVAILABLE) };
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

    async fn send(model: &FakeModelServer, request: String) -> TcpStream {
        let mut stream = TcpStream::connect(model.address()).await.expect("the model listens");
        stream.write_all(request.as_bytes()).await.expect("the model reads");
        stream
    }

    async fn read_response(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("the model answers and closes");
        text
    }

    #[tokio::test]
    async fn a_request_shows_what_came_of_a_call_and_is_answered_with_events() {
        let responses = json!({
            "tools": [{"name": "exec_command"}, {"type": "web_search"}],
            "input": [{"type": "function_call", "call_id": "1"},
                      {"type": "function_call_output", "call_id": "1", "output": "hi"}],
        });
        let messages = json!({
            "tools": [{"name": "exec_command"}],
            "messages": [{"role": "user", "content": "do it"},
                         {"role": "assistant", "content": [{"type": "tool_use", "id": "1"}]},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "hi"}]}],
        });
        let of_responses = vec!["response.created", "response.output_item.done", "response.completed"];
        let block = ["content_block_start", "content_block_delta", "content_block_stop"];
        let of_messages = [&["message_start"], &block[..], &["message_delta", "message_stop"]].concat();
        let cases = [("/v1/responses", responses, of_responses), ("/v1/messages?beta=true", messages, of_messages)];
        let mut model = FakeModelServer::start().await;
        for (target, body, expected) in cases {
            let body = body.to_string();
            let head = format!("POST {target} HTTP/1.1\r\nhost: m\r\nconnection: close\r\ncontent-length: ");
            let client = send(&model, format!("{head}{}\r\n\r\n{body}", body.len())).await;
            let request = model.next_request().await;
            assert_eq!(request.tools(), ["exec_command"]);
            assert_eq!(request.tool_output("1"), Some(&json!("hi")));
            assert_eq!(request.tool_output("2"), None);
            request.respond(&[OutputItem::Message("done".to_owned())]);
            let text = read_response(client).await;
            let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
            assert_eq!(names, expected);
        }
        model.shutdown().await;
    }

    #[tokio::test]
    async fn whatever_else_is_asked_is_refused_and_remembered() {
        let model = FakeModelServer::start().await;
        let request = "CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n";
        let text = read_response(send(&model, request.to_owned()).await).await;
        assert!(text.starts_with("HTTP/1.1 404"), "{text}");
        assert_eq!(model.unexpected_requests(), ["CONNECT example.com:443"]);
        model.shutdown().await;
    }
}
