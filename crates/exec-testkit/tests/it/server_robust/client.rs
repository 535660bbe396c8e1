//! A plain client for tests of endurance: it asks without waiting, and keeps what it hears in the order it came.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use exec_testkit::binaries;
use exec_testkit::pattern::Pattern;
use rustix::fs::{CWD, FileType, Mode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::compat::DEADLINE;
use crate::compat::program::{Daemon, Program, Side};
use crate::compat::wire::{Came, Wire};
use crate::environments::ACTOR;

/// Our server on a free port, in a folder of its own.
pub(crate) struct Served {
    pub(crate) daemon: Daemon,
    pub(crate) folder: TempDir,
}

impl Served {
    pub(crate) async fn begin() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = Program::new(Side::Ours, binaries::exec_server(), folder.path());
        Self { daemon: program.listen(&[]).await, folder }
    }

    pub(crate) async fn client(&self) -> Client {
        let mut client = Client::connect(&self.daemon.address).await;
        client.greet(json!({"clientName": "robust"})).await;
        client
    }

    /// A connection on which blocks may be raw bytes.
    pub(crate) async fn raw_client(&self) -> Client {
        let mut client = Client::connect(&self.daemon.address).await;
        client.greet(json!({"clientName": "robust", "binaryFrames": true})).await;
        client
    }

    /// A connection that goes on with the session of another.
    pub(crate) async fn resume(&self, session: &str) -> Client {
        let mut client = Client::connect(&self.daemon.address).await;
        client.greet(json!({"clientName": "robust", "resumeSessionId": session})).await;
        client
    }

    /// Memory the server has touched and not given back.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let pid = self.daemon.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has one");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
    }

    /// The process that starts and reaps for the server.
    pub(crate) fn keeper(&self) -> rustix::process::Pid {
        let pid = self.daemon.child.id().expect("it runs");
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
        let child = children.split_whitespace().next().and_then(|child| child.parse().ok());
        child.and_then(rustix::process::Pid::from_raw).expect("a server has a keeper")
    }

    /// A FIFO through which children say that they are done.
    pub(crate) fn bell(&self, name: &str) -> Bell {
        let path = self.folder.path().join(name);
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("the name is new");
        let ends = File::options().read(true).write(true).open(&path).expect("it was made a moment ago");
        Bell { path, ends }
    }
}

/// A FIFO that a shell script rings with `echo > PATH`.
pub(crate) struct Bell {
    path: PathBuf,
    ends: File,
}

impl Bell {
    pub(crate) fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Waits until it was rung so often.
    pub(crate) async fn rung(&self, times: usize) {
        let mut ends = self.ends.try_clone().expect("a descriptor more");
        let wait = tokio::task::spawn_blocking(move || ends.read_exact(&mut vec![0; times]));
        wait.await.expect("reading does not panic").expect("a FIFO that we write ourselves never ends");
    }
}

/// A shell script that floods with the pattern of `seed`, then rings.
pub(crate) fn flood(bytes: u64, seed: u64, bell: &Bell) -> String {
    format!("{ACTOR} flood stdout {bytes} {seed} 65536; echo > {}", bell.path())
}

pub(crate) struct Client {
    pub(crate) wire: Wire,
    pub(crate) session: String,
    next_id: i64,
    heard: VecDeque<Value>,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Self {
        Self { wire: Wire::connect(address).await, session: String::new(), next_id: 1, heard: VecDeque::new() }
    }

    async fn greet(&mut self, params: Value) {
        let answer = self.call("initialize", params).await;
        self.session = answer["result"]["sessionId"].as_str().expect("a session").to_owned();
        self.wire.send(r#"{"method":"initialized"}"#).await;
    }

    /// Asks and does not wait.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.wire.send(&json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// The next message, in the order of arrival.
    pub(crate) async fn next(&mut self) -> Value {
        match self.heard.pop_front() {
            Some(message) => message,
            None => self.receive().await.expect("the connection lives"),
        }
    }

    /// `None` when the server has ended the connection.
    pub(crate) async fn receive(&mut self) -> Option<Value> {
        match self.wire.next().await.expect("something comes in time") {
            Came::Text(text) => Some(serde_json::from_str(&text).expect("a server sends JSON")),
            Came::End(_) => None,
        }
    }

    /// The answer; what comes before it is kept for [`Client::next`].
    pub(crate) async fn answer(&mut self, id: i64) -> Value {
        if let Some(at) = self.heard.iter().position(|message| message["id"] == id) {
            return self.heard.remove(at).expect("it was found there");
        }
        loop {
            let message = self.receive().await.expect("the connection lives");
            if message["id"] == id {
                return message;
            }
            self.heard.push_back(message);
        }
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer(id).await
    }

    /// Starts a shell over pipes.
    pub(crate) async fn sh(&mut self, process: &str, script: &str) {
        let answer = self.call("process/start", shell(process, script, false)).await;
        assert_eq!(answer["result"]["processId"], process, "{answer}");
    }

    /// Drops what was heard so far.
    pub(crate) fn forget_heard(&mut self) {
        self.heard.clear();
    }
}

/// Params of a start of a shell.
pub(crate) fn shell(process: &str, script: &str, stdin: bool) -> Value {
    json!({
        "processId": process, "argv": ["/bin/sh", "-c", script], "cwd": "file:///tmp",
        "env": {"PATH": "/usr/bin:/bin"}, "tty": false, "pipeStdin": stdin,
    })
}

/// What has arrived of many processes, each entry judged when it comes: its seq is the next, its bytes are those of the
/// pattern.
#[derive(Default)]
pub(crate) struct Arrivals {
    by_process: BTreeMap<String, Arrived>,
}

#[derive(Default)]
pub(crate) struct Arrived {
    pub(crate) bytes: u64,
    pub(crate) seq: u64,
    pub(crate) exited: bool,
    pub(crate) closed: bool,
}

impl Arrivals {
    pub(crate) fn of(&self, process: &str) -> Option<&Arrived> {
        self.by_process.get(process)
    }

    pub(crate) fn closed(&self) -> usize {
        self.by_process.values().filter(|arrived| arrived.closed).count()
    }

    /// Takes a notice of a process that floods with the pattern of `seed`; any other message is passed over.
    pub(crate) fn take(&mut self, message: &Value, seed: impl Fn(&str) -> u64) {
        let params = &message["params"];
        let (Some(process), Some(seq)) = (params["processId"].as_str(), params["seq"].as_u64()) else { return };
        let arrived = self.by_process.entry(process.to_owned()).or_default();
        if seq <= arrived.seq {
            // Told again after a resume, as WIRE A.1 allows.
            return;
        }
        assert_eq!(seq, arrived.seq + 1, "{process} has a gap");
        arrived.seq = seq;
        match message["method"].as_str() {
            Some("process/output") => arrived.judge(&params["chunk"], seed(process)),
            Some("process/exited") => arrived.exited = true,
            Some("process/closed") => arrived.closed = true,
            other => panic!("no notice of a process: {other:?}"),
        }
    }

    /// Takes a page of `process/read`.
    pub(crate) fn take_page(&mut self, process: &str, page: &Value, seed: u64) {
        let arrived = self.by_process.entry(process.to_owned()).or_default();
        for chunk in page["chunks"].as_array().expect("a page has chunks") {
            let seq = chunk["seq"].as_u64().expect("a chunk has a seq");
            assert_eq!(seq, arrived.seq + 1, "{process} has a gap");
            arrived.seq = seq;
            arrived.judge(&chunk["chunk"], seed);
        }
    }
}

impl Arrived {
    fn judge(&mut self, chunk: &Value, seed: u64) {
        let chunk = chunk.as_str().expect("output is base64");
        let bytes = base64_simd::STANDARD.decode_to_vec(chunk).expect("output is base64");
        assert_eq!(Pattern::new(seed).first_difference(self.bytes, &bytes), None, "a byte is wrong");
        self.bytes += bytes.len() as u64;
    }
}

/// So long nothing may take, however slow the machine.
pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE * 4, work).await.expect("it is done in time")
}
