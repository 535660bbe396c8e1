//! Plays the script of a case on one server and writes down what it shows.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::folder::Folder;
use super::normal;
use super::program::{Daemon, Program};
use super::script::{Over, Step};
use super::wire::{Came, Wire};

/// Where connections of a case come from.
pub(crate) struct Place<'a> {
    pub(crate) program: &'a Program,
    pub(crate) daemon: &'a Daemon,
    pub(crate) over: Over,
    /// The web server that requests may be sent to.
    pub(crate) web: &'a str,
}

/// What each step shows, in the order of the steps.
pub(crate) async fn play(place: &Place<'_>, steps: impl Iterator<Item = &Step>) -> Vec<Value> {
    let mut talk = Talk { place, lines: Vec::new(), current: 0, session: String::new(), folder: Folder::new() };
    let mut shown = Vec::new();
    for step in steps {
        shown.push(talk.perform(step).await);
    }
    shown
}

struct Talk<'a> {
    place: &'a Place<'a>,
    lines: Vec<Line>,
    current: usize,
    session: String,
    folder: Folder,
}

/// One connection, and what has been heard on it.
struct Line {
    wire: Option<Wire>,
    end: Option<Value>,
    next_id: i64,
    asked: Vec<(i64, String)>,
    answers: BTreeMap<i64, Value>,
    strays: VecDeque<Value>,
    processes: BTreeMap<String, Vec<Value>>,
    bodies: BTreeMap<String, Vec<Value>>,
}

impl Talk<'_> {
    fn line(&mut self) -> &mut Line {
        &mut self.lines[self.current]
    }

    async fn perform(&mut self, step: &Step) -> Value {
        match step {
            Step::Connect => self.connect().await,
            Step::On(connection) => self.current = *connection,
            Step::Hello => return self.hello().await,
            Step::Resume => return self.resume().await,
            Step::ResumeSoon => return self.resume_soon().await,
            Step::Say(text) => {
                let text = self.named(text);
                self.line().send(&text).await;
            }
            Step::Raw(bytes) => self.line().raw(bytes).await,
            Step::Binary(text) => self.line().message(Message::binary(text.clone().into_bytes())).await,
            Step::Fragments(text, size) => self.line().fragments(text.as_bytes(), *size).await,
            Step::Finish => {
                if let Some(wire) = &mut self.line().wire {
                    wire.finish().await;
                }
            }
            Step::Drop => drop(self.line().wire.take()),
            Step::Hear => {
                let heard = self.line().hear().await;
                return self.normal("", heard);
            }
            Step::Ask(method, params) => drop(self.ask(method, params).await),
            Step::Call(method, params) => {
                let id = self.ask(method, params).await;
                let answer = self.line().answer(id).await;
                return self.normal(method, answer);
            }
            Step::Answer(asked) => {
                let (id, method) = self.line().asked[asked - 1].clone();
                let answer = self.line().answer(id).await;
                return self.normal(&method, answer);
            }
            Step::Printed(process, text) => return self.line().until(process, |log| printed(log).contains(text)).await,
            Step::Exited(process) => return self.line().until(process, |log| told(log, "process/exited")).await,
            Step::Closed(process) => return self.line().until(process, all_told).await,
            Step::Log(process) => return normal::log(self.line().log_of(process)),
            Step::ExactLog(process) => return normal::exact_log(self.line().log_of(process)),
            Step::SortedOutput(process) => {
                let output = printed(self.line().log_of(process));
                let mut lines: Vec<String> = output.lines().map(normal::variable).collect();
                lines.sort_unstable();
                return json!(lines);
            }
            Step::Body(request) => return self.line().body(request).await,
            Step::Furnish(thing) => self.folder.furnish(thing),
            Step::Look => return self.folder.picture(),
            Step::Alive => return self.line().alive().await,
            Step::Ended => return self.line().ended().await,
        }
        Value::Null
    }

    /// `text` with what its names stand for.
    fn named(&self, text: &str) -> String {
        let text = text.replace("$SESSION", &self.session).replace("$ROOT", self.folder.name());
        text.replace("$WEB", self.place.web)
    }

    fn normal(&self, method: &str, message: Value) -> Value {
        normal::reply(method, message, &self.session, self.folder.name())
    }

    async fn connect(&mut self) {
        let wire = match self.place.over {
            Over::WebSocket => Wire::connect(&self.place.daemon.address).await,
            Over::Stdio => Wire::of_child(self.place.program.on_stdio()),
        };
        self.current = self.lines.len();
        self.lines.push(Line {
            wire: Some(wire),
            end: None,
            next_id: 1,
            asked: Vec::new(),
            answers: BTreeMap::new(),
            strays: VecDeque::new(),
            processes: BTreeMap::new(),
            bodies: BTreeMap::new(),
        });
    }

    async fn hello(&mut self) -> Value {
        let id = self.ask("initialize", &json!({"clientName": "compat"})).await;
        let answer = self.line().answer(id).await;
        self.session = answer["result"]["sessionId"].as_str().unwrap_or_default().to_owned();
        json!({"greeted": !self.session.is_empty()})
    }

    async fn resume(&mut self) -> Value {
        let params = json!({"clientName": "again", "resumeSessionId": "$SESSION"});
        let id = self.ask("initialize", &params).await;
        let answer = self.line().answer(id).await;
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

    async fn ask(&mut self, method: &str, params: &Value) -> i64 {
        let params = self.named(&params.to_string());
        let line = self.line();
        let id = line.next_id;
        line.next_id += 1;
        line.asked.push((id, method.to_owned()));
        line.send(&format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#)).await;
        id
    }
}

impl Line {
    async fn send(&mut self, text: &str) {
        if let Some(wire) = &mut self.wire {
            wire.send(text).await;
        }
    }

    async fn raw(&mut self, bytes: &[u8]) {
        if let Some(wire) = &mut self.wire {
            wire.send_raw(bytes).await;
        }
    }

    async fn message(&mut self, message: Message) {
        if let Some(wire) = &mut self.wire {
            wire.send_message(message).await;
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

    /// Takes in one message. `false` when there will be no more, or none came in time.
    async fn take(&mut self) -> bool {
        if self.end.is_some() {
            return false;
        }
        let came = match &mut self.wire {
            Some(wire) => wire.next().await,
            None => Some(Came::End(None)),
        };
        match came {
            Some(Came::Text(text)) => self.sort(&text),
            Some(Came::End(code)) => self.end = Some(json!({"ended": code})),
            None => self.end = Some(json!("silence")),
        }
        self.end.is_none()
    }

    fn sort(&mut self, text: &str) {
        let message: Value = serde_json::from_str(text).expect("a server sends JSON");
        let process = message["params"]["processId"].as_str();
        if message["method"] == "http/request/bodyDelta" {
            let request = message["params"]["requestId"].as_str().unwrap_or_default().to_owned();
            self.bodies.entry(request).or_default().push(message);
            return;
        }
        match (message["method"].is_string(), process, message["id"].as_i64()) {
            (true, Some(process), _) => self.processes.entry(process.to_owned()).or_default().push(message),
            (false, _, Some(id)) if self.asked.iter().any(|(asked, _)| *asked == id) => {
                self.answers.insert(id, message);
            }
            _ => self.strays.push_back(message),
        }
    }

    async fn hear(&mut self) -> Value {
        while self.strays.is_empty() && self.take().await {}
        self.strays.pop_front().unwrap_or_else(|| self.over())
    }

    async fn answer(&mut self, id: i64) -> Value {
        while !self.answers.contains_key(&id) && self.take().await {}
        self.answers.remove(&id).unwrap_or_else(|| self.over())
    }

    async fn body(&mut self, request: &str) -> Value {
        let done = |deltas: &Vec<Value>| deltas.last().is_some_and(|delta| delta["params"]["done"] == true);
        while !self.bodies.get(request).is_some_and(done) {
            if !self.take().await {
                return self.over();
            }
        }
        // The same name may be used again.
        normal::body(&self.bodies.remove(request).unwrap_or_default())
    }

    async fn until(&mut self, process: &str, enough: impl Fn(&[Value]) -> bool) -> Value {
        while !enough(self.log_of(process)) {
            if !self.take().await {
                return self.over();
            }
        }
        Value::Null
    }

    fn log_of(&self, process: &str) -> &[Value] {
        self.processes.get(process).map_or(&[], Vec::as_slice)
    }

    async fn alive(&mut self) -> Value {
        self.send(r#"{"id":"are you there","method":"compat/areYouThere"}"#).await;
        let there = |message: &Value| message["id"] == "are you there";
        while !self.strays.iter().any(there) {
            if !self.take().await {
                return json!("not alive");
            }
        }
        self.strays.retain(|message| !there(message));
        json!("alive")
    }

    async fn ended(&mut self) -> Value {
        while self.take().await {}
        self.over()
    }

    fn over(&self) -> Value {
        self.end.clone().unwrap_or(Value::Null)
    }
}

fn told(log: &[Value], what: &str) -> bool {
    log.iter().any(|notice| notice["method"] == what)
}

/// Whether the end was told, and everything before it. Theirs may send notices out of order.
fn all_told(log: &[Value]) -> bool {
    let closed = log.iter().find(|notice| notice["method"] == "process/closed");
    closed.is_some_and(|closed| closed["params"]["seq"] == log.len())
}

fn printed(log: &[Value]) -> String {
    let mut output: Vec<&Value> = log.iter().filter(|notice| notice["method"] == "process/output").collect();
    output.sort_by_key(|notice| notice["params"]["seq"].as_u64());
    output.into_iter().map(|notice| normal::text_of(&notice["params"]["chunk"])).collect()
}
