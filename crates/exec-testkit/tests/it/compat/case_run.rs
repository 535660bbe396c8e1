//! Runs a case against one server and records what the server shows.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::case::{CaseStep, Transport};
use super::case_directory::CaseDirectory;
use super::normalize;
use super::raw_connection::{RawConnection, Received};
use super::server_program::{ListeningServer, ServerProgram};

/// The server that a case is run against.
pub(crate) struct CaseTarget<'a> {
    pub(crate) program: &'a ServerProgram,
    pub(crate) server: &'a ListeningServer,
    pub(crate) transport: Transport,
    /// The address of the HTTP server that requests may be sent to.
    pub(crate) http_address: &'a str,
}

/// What each step shows, in the order of the steps.
pub(crate) async fn run(target: &CaseTarget<'_>, steps: impl Iterator<Item = &CaseStep>) -> Vec<Value> {
    let directory = CaseDirectory::new();
    let mut run = CaseRun { target, connections: Vec::new(), current: 0, session: String::new(), directory };
    let mut shown = Vec::new();
    for step in steps {
        shown.push(run.perform(step).await);
    }
    shown
}

struct CaseRun<'a> {
    target: &'a CaseTarget<'a>,
    connections: Vec<RecordedConnection>,
    current: usize,
    session: String,
    directory: CaseDirectory,
}

/// One connection, and what was received on it, sorted.
struct RecordedConnection {
    raw: Option<RawConnection>,
    end: Option<Value>,
    next_id: i64,
    requests: Vec<(i64, String)>,
    responses: BTreeMap<i64, Value>,
    others: VecDeque<Value>,
    processes: BTreeMap<String, Vec<Value>>,
    bodies: BTreeMap<String, Vec<Value>>,
}

impl CaseRun<'_> {
    fn connection(&mut self) -> &mut RecordedConnection {
        &mut self.connections[self.current]
    }

    async fn perform(&mut self, step: &CaseStep) -> Value {
        match step {
            CaseStep::Connect => self.connect().await,
            CaseStep::UseConnection(connection) => self.current = *connection,
            CaseStep::Initialize => return self.initialize().await,
            CaseStep::Resume => return self.resume().await,
            CaseStep::ResumeSoon => return self.resume_soon().await,
            CaseStep::Send(text) => {
                let text = self.substitute(text);
                self.connection().send(&text).await;
            }
            CaseStep::Raw(bytes) => self.connection().raw(bytes).await,
            CaseStep::Binary(text) => self.connection().message(Message::binary(text.clone().into_bytes())).await,
            CaseStep::Fragments(text, size) => self.connection().fragments(text.as_bytes(), *size).await,
            CaseStep::CloseInput => {
                if let Some(raw) = &mut self.connection().raw {
                    raw.finish().await;
                }
            }
            CaseStep::Drop => drop(self.connection().raw.take()),
            CaseStep::Receive => {
                let message = self.connection().receive().await;
                return self.normalized("", message);
            }
            CaseStep::Request(method, params) => drop(self.request(method, params).await),
            CaseStep::Call(method, params) => {
                let id = self.request(method, params).await;
                let answer = self.connection().response(id).await;
                return self.normalized(method, answer);
            }
            CaseStep::Response(asked) => {
                let (id, method) = self.connection().requests[asked - 1].clone();
                let answer = self.connection().response(id).await;
                return self.normalized(&method, answer);
            }
            CaseStep::Printed(process, text) => {
                return self.connection().until(process, |log| printed(log).contains(text)).await;
            }
            CaseStep::Exited(process) => {
                return self.connection().until(process, |log| has_notification(log, "process/exited")).await;
            }
            CaseStep::Closed(process) => return self.connection().until(process, is_complete).await,
            CaseStep::Log(process) => return normalize::log(self.connection().log_of(process)),
            CaseStep::ExactLog(process) => return normalize::exact_log(self.connection().log_of(process)),
            CaseStep::SortedOutput(process) => {
                let output = printed(self.connection().log_of(process));
                let mut lines: Vec<String> = output.lines().map(normalize::variable).collect();
                lines.sort_unstable();
                return json!(lines);
            }
            CaseStep::Body(request) => return self.connection().body(request).await,
            CaseStep::Create(fixture) => self.directory.create(fixture),
            CaseStep::Snapshot => return self.directory.snapshot(),
            CaseStep::Alive => return self.connection().alive().await,
            CaseStep::Ended => return self.connection().ended().await,
        }
        Value::Null
    }

    /// Replaces `$SESSION`, `$ROOT` and `$WEB`.
    fn substitute(&self, text: &str) -> String {
        let text = text.replace("$SESSION", &self.session).replace("$ROOT", self.directory.name());
        text.replace("$WEB", self.target.http_address)
    }

    fn normalized(&self, method: &str, message: Value) -> Value {
        normalize::reply(method, message, &self.session, self.directory.name())
    }

    async fn connect(&mut self) {
        let raw = match self.target.transport {
            Transport::WebSocket => RawConnection::connect(&self.target.server.address).await,
            Transport::Stdio => RawConnection::of_child(self.target.program.on_stdio()),
        };
        self.current = self.connections.len();
        self.connections.push(RecordedConnection {
            raw: Some(raw),
            end: None,
            next_id: 1,
            requests: Vec::new(),
            responses: BTreeMap::new(),
            others: VecDeque::new(),
            processes: BTreeMap::new(),
            bodies: BTreeMap::new(),
        });
    }

    async fn initialize(&mut self) -> Value {
        let id = self.request("initialize", &json!({"clientName": "compat"})).await;
        let answer = self.connection().response(id).await;
        self.session = answer["result"]["sessionId"].as_str().unwrap_or_default().to_owned();
        json!({"initialized": !self.session.is_empty()})
    }

    async fn resume(&mut self) -> Value {
        let params = json!({"clientName": "again", "resumeSessionId": "$SESSION"});
        let id = self.request("initialize", &params).await;
        let answer = self.connection().response(id).await;
        if answer["result"]["sessionId"] == self.session { json!("resumed") } else { answer["error"]["code"].clone() }
    }

    /// A Codex client asks again for as long as its old connection is taken to be alive; so do we.
    async fn resume_soon(&mut self) -> Value {
        loop {
            let answer = self.resume().await;
            if answer != -32010 {
                return answer;
            }
        }
    }

    async fn request(&mut self, method: &str, params: &Value) -> i64 {
        let params = self.substitute(&params.to_string());
        let connection = self.connection();
        let id = connection.next_id;
        connection.next_id += 1;
        connection.requests.push((id, method.to_owned()));
        connection.send(&format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#)).await;
        id
    }
}

impl RecordedConnection {
    async fn send(&mut self, text: &str) {
        if let Some(raw) = &mut self.raw {
            raw.send(text).await;
        }
    }

    async fn raw(&mut self, bytes: &[u8]) {
        if let Some(raw) = &mut self.raw {
            raw.send_raw(bytes).await;
        }
    }

    async fn message(&mut self, message: Message) {
        if let Some(raw) = &mut self.raw {
            raw.send_message(message).await;
        }
    }

    async fn fragments(&mut self, bytes: &[u8], size: usize) {
        let count = bytes.len().div_ceil(size);
        for (at, part) in bytes.chunks(size).enumerate() {
            let kind = if at == 0 { Data::Text } else { Data::Continue };
            let frame = Frame::message(part.to_vec(), OpCode::Data(kind), at + 1 == count);
            self.message(Message::Frame(frame)).await;
        }
    }

    /// Receives and sorts one message. `false` when there will be no more, or none came in time.
    async fn receive_one(&mut self) -> bool {
        if self.end.is_some() {
            return false;
        }
        let came = match &mut self.raw {
            Some(raw) => raw.next().await,
            None => Some(Received::End(None)),
        };
        match came {
            Some(Received::Text(text)) => self.sort(&text),
            Some(Received::End(code)) => self.end = Some(json!({"ended": code})),
            None => self.end = Some(json!("silence")),
        }
        self.end.is_none()
    }

    fn sort(&mut self, text: &str) {
        let message: Value = serde_json::from_str(text).expect("a server sends JSON");
        // What is told of the network has no place in the log.
        let of_network = message["method"].as_str().is_some_and(|method| method.starts_with("network/"));
        let process = message["params"]["processId"].as_str().filter(|_| !of_network);
        if message["method"] == "http/request/bodyDelta" {
            let request = message["params"]["requestId"].as_str().unwrap_or_default().to_owned();
            self.bodies.entry(request).or_default().push(message);
            return;
        }
        match (message["method"].is_string(), process, message["id"].as_i64()) {
            (true, Some(process), _) => self.processes.entry(process.to_owned()).or_default().push(message),
            (false, _, Some(id)) if self.requests.iter().any(|(asked, _)| *asked == id) => {
                self.responses.insert(id, message);
            }
            _ => self.others.push_back(message),
        }
    }

    async fn receive(&mut self) -> Value {
        while self.others.is_empty() && self.receive_one().await {}
        self.others.pop_front().unwrap_or_else(|| self.end_or_null())
    }

    async fn response(&mut self, id: i64) -> Value {
        while !self.responses.contains_key(&id) && self.receive_one().await {}
        self.responses.remove(&id).unwrap_or_else(|| self.end_or_null())
    }

    async fn body(&mut self, request: &str) -> Value {
        let done = |deltas: &Vec<Value>| deltas.last().is_some_and(|delta| delta["params"]["done"] == true);
        while !self.bodies.get(request).is_some_and(done) {
            if !self.receive_one().await {
                return self.end_or_null();
            }
        }
        // The same name may be used again.
        normalize::body(&self.bodies.remove(request).unwrap_or_default())
    }

    async fn until(&mut self, process: &str, enough: impl Fn(&[Value]) -> bool) -> Value {
        while !enough(self.log_of(process)) {
            if !self.receive_one().await {
                return self.end_or_null();
            }
        }
        Value::Null
    }

    fn log_of(&self, process: &str) -> &[Value] {
        self.processes.get(process).map_or(&[], Vec::as_slice)
    }

    async fn alive(&mut self) -> Value {
        self.send(r#"{"id":"are you there","method":"compat/areYouThere"}"#).await;
        let is_reply = |message: &Value| message["id"] == "are you there";
        while !self.others.iter().any(is_reply) {
            if !self.receive_one().await {
                return json!("not alive");
            }
        }
        self.others.retain(|message| !is_reply(message));
        json!("alive")
    }

    async fn ended(&mut self) -> Value {
        while self.receive_one().await {}
        self.end_or_null()
    }

    fn end_or_null(&self) -> Value {
        self.end.clone().unwrap_or(Value::Null)
    }
}

fn has_notification(log: &[Value], what: &str) -> bool {
    log.iter().any(|notification| notification["method"] == what)
}

/// Whether the end was received, and everything before it. Codex may send notifications out of order.
fn is_complete(log: &[Value]) -> bool {
    let closed = log.iter().find(|notification| notification["method"] == "process/closed");
    closed.is_some_and(|closed| closed["params"]["seq"] == log.len())
}

fn printed(log: &[Value]) -> String {
    let mut output: Vec<&Value> =
        log.iter().filter(|notification| notification["method"] == "process/output").collect();
    output.sort_by_key(|notification| notification["params"]["seq"].as_u64());
    output.into_iter().map(|notification| normalize::text_of(&notification["params"]["chunk"])).collect()
}
