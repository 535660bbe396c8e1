//! A plain client: it can send requests without waiting for the responses, and keeps messages in the order of arrival.

use std::collections::{BTreeMap, VecDeque};

use exec_testkit::os_process::OsProcess;
use exec_testkit::semaphore::FifoSemaphore;
use exec_testkit::test_data::SeededBytes;
use exec_testkit::{binaries, proc_status};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::compat::DEADLINE;
use crate::compat::raw_connection::{RawConnection, Received};
use crate::compat::server_program::{Implementation, ListeningServer, ServerProgram};
use crate::environments::ACTOR;

/// Our server on a free port, with a directory of its own.
pub(crate) struct ServerFixture {
    pub(crate) process: ListeningServer,
    pub(crate) directory: TempDir,
}

impl ServerFixture {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let program = ServerProgram::new(Implementation::Ours, binaries::exec_server(), directory.path());
        Self { process: program.listen(&[]).await, directory }
    }

    /// A server that may open so many files, and cannot raise that.
    pub(crate) async fn start_with_open_files(limit: usize) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let text = format!("ulimit -n {limit} && exec {} \"$@\"", binaries::exec_server().display());
        Self::start_by_script(directory, &text, &["--workers", "2"]).await
    }

    /// A server that is started by a shell script, which ends with `exec PROGRAM "$@"`.
    pub(crate) async fn start_by_script(directory: TempDir, text: &str, arguments: &[&str]) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let script = directory.path().join("server-script");
        std::fs::write(&script, format!("#!/bin/sh\n{text}\n")).expect("the folder is ours");
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        let program = ServerProgram::new(Implementation::Ours, script, directory.path());
        Self { process: program.listen(arguments).await, directory }
    }

    /// A server whose processes outlive it. [`Self::kill_and_restart`] starts the next one.
    pub(crate) async fn start_with_state() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        Self { process: listen_with_state(directory.path()).await, directory }
    }

    /// `kill -9`, and another server on the same state, on another port.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.process.child.kill().await.expect("it is ours");
        self.process = listen_with_state(self.directory.path()).await;
    }

    pub(crate) async fn client(&self) -> Client {
        let mut client = Client::connect(&self.process.address).await;
        client.initialize(json!({"clientName": "robust"})).await;
        client
    }

    /// A connection on which blocks may be raw bytes.
    pub(crate) async fn raw_client(&self) -> Client {
        let mut client = Client::connect(&self.process.address).await;
        client.initialize(json!({"clientName": "robust", "binaryFrames": true})).await;
        client
    }

    /// A connection that resumes the session of another.
    pub(crate) async fn resume(&self, session: &str) -> Client {
        let mut client = Client::connect(&self.process.address).await;
        client.initialize(json!({"clientName": "robust", "resumeSessionId": session})).await;
        client
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id().expect("it runs")
    }

    /// Without the pieces of its own program, of which an unoptimised one has tens of megabytes: no client adds to those.
    pub(crate) fn used_bytes(&self) -> u64 {
        proc_status::resident_bytes(self.pid()).saturating_sub(proc_status::file_bytes(self.pid()))
    }

    /// The keeper, which is the server's only child.
    pub(crate) fn keeper(&self) -> OsProcess {
        *OsProcess::children_of(self.pid()).first().expect("a server has a keeper")
    }

    /// A semaphore that shell scripts release with `echo > PATH`.
    pub(crate) fn semaphore(&self, name: &str) -> FifoSemaphore {
        FifoSemaphore::new(self.directory.path().join(name))
    }
}

async fn listen_with_state(directory: &std::path::Path) -> ListeningServer {
    let program = ServerProgram::new(Implementation::Ours, binaries::exec_server(), directory);
    let state = directory.join("state");
    program.listen(&["--state-dir", state.to_str().expect("a temporary folder has a plain name")]).await
}

/// A shell script that floods with the bytes of `seed`, then releases `done` once.
pub(crate) fn flood(bytes: u64, seed: u64, done: &FifoSemaphore) -> String {
    format!("{ACTOR} flood stdout {bytes} {seed} 65536; echo > {}", done.path().display())
}

pub(crate) struct Client {
    pub(crate) connection: RawConnection,
    pub(crate) session: String,
    next_id: i64,
    unread: VecDeque<Value>,
}

impl Client {
    pub(crate) async fn connect(address: &str) -> Self {
        Self {
            connection: RawConnection::connect(address).await,
            session: String::new(),
            next_id: 1,
            unread: VecDeque::new(),
        }
    }

    /// A client on a connection that is there already.
    pub(crate) async fn over(connection: RawConnection) -> Self {
        let mut client = Self { connection, session: String::new(), next_id: 1, unread: VecDeque::new() };
        client.initialize(json!({"clientName": "robust"})).await;
        client
    }

    pub(crate) async fn initialize(&mut self, params: Value) {
        let answer = self.call("initialize", params).await;
        self.session = answer["result"]["sessionId"].as_str().expect("a session").to_owned();
        self.connection.send(r#"{"method":"initialized"}"#).await;
    }

    /// Sends a request and returns its id without waiting for the response.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.connection.send(&json!({"id": id, "method": method, "params": params}).to_string()).await;
        id
    }

    /// The next message, in the order of arrival.
    pub(crate) async fn next(&mut self) -> Value {
        match self.unread.pop_front() {
            Some(message) => message,
            None => self.receive().await.expect("the connection lives"),
        }
    }

    /// `None` when the server has ended the connection.
    pub(crate) async fn receive(&mut self) -> Option<Value> {
        match self.connection.next().await.expect("something comes in time") {
            Received::Text(text) => Some(serde_json::from_str(&text).expect("a server sends JSON")),
            Received::End(_) => None,
        }
    }

    /// Waits for a response; what comes before it is kept for [`Client::next`].
    pub(crate) async fn response(&mut self, id: i64) -> Value {
        if let Some(at) = self.unread.iter().position(|message| message["id"] == id) {
            return self.unread.remove(at).expect("it was found there");
        }
        loop {
            let message = self.receive().await.expect("the connection lives");
            if message["id"] == id {
                return message;
            }
            self.unread.push_back(message);
        }
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.response(id).await
    }

    /// Starts a shell over pipes.
    pub(crate) async fn sh(&mut self, process: &str, script: &str) {
        let answer = self.call("process/start", shell(process, script, false)).await;
        assert_eq!(answer["result"]["processId"], process, "{answer}");
    }

    pub(crate) fn drop_unread(&mut self) {
        self.unread.clear();
    }
}

/// Params that start a shell.
pub(crate) fn shell(process: &str, script: &str, stdin: bool) -> Value {
    json!({
        "processId": process, "argv": ["/bin/sh", "-c", script], "cwd": "file:///tmp",
        "env": {"PATH": "/usr/bin:/bin"}, "tty": false, "pipeStdin": stdin,
    })
}

/// What was received of many processes, checked entry by entry: its seq is the next, its bytes are the expected ones.
#[derive(Default)]
pub(crate) struct ReceivedLogs {
    by_process: BTreeMap<String, ReceivedLog>,
}

#[derive(Default)]
pub(crate) struct ReceivedLog {
    pub(crate) bytes: u64,
    pub(crate) seq: u64,
    pub(crate) exited: bool,
    pub(crate) closed: bool,
}

impl ReceivedLogs {
    pub(crate) fn of(&self, process: &str) -> Option<&ReceivedLog> {
        self.by_process.get(process)
    }

    pub(crate) fn closed(&self) -> usize {
        self.by_process.values().filter(|log| log.closed).count()
    }

    /// Adds a notification of a process that floods with the bytes of `seed`; ignores any other message.
    pub(crate) fn add_notification(&mut self, message: &Value, seed: impl Fn(&str) -> u64) {
        let params = &message["params"];
        let (Some(process), Some(seq)) = (params["processId"].as_str(), params["seq"].as_u64()) else { return };
        let log = self.by_process.entry(process.to_owned()).or_default();
        if seq <= log.seq {
            // Sent again after a resume, as WIRE A.1 allows.
            return;
        }
        assert_eq!(seq, log.seq + 1, "{process} has a gap");
        log.seq = seq;
        match message["method"].as_str() {
            Some("process/output") => log.add_output(&params["chunk"], seed(process)),
            Some("process/exited") => log.exited = true,
            Some("process/closed") => log.closed = true,
            other => panic!("no notification of a process: {other:?}"),
        }
    }

    /// Reads notifications until so many logs are closed; `seed` tells which bytes a process floods with.
    pub(crate) async fn read_until_closed(&mut self, client: &mut Client, logs: usize, seed: impl Fn(&str) -> u64) {
        let read = async {
            while self.closed() < logs {
                self.add_notification(&client.next().await, &seed);
            }
        };
        with_deadline(read).await;
    }

    /// Adds a page of `process/read`.
    pub(crate) fn add_page(&mut self, process: &str, page: &Value, seed: u64) {
        let log = self.by_process.entry(process.to_owned()).or_default();
        for chunk in page["chunks"].as_array().expect("a page has chunks") {
            let seq = chunk["seq"].as_u64().expect("a chunk has a seq");
            assert_eq!(seq, log.seq + 1, "{process} has a gap");
            log.seq = seq;
            log.add_output(&chunk["chunk"], seed);
        }
    }
}

impl ReceivedLog {
    fn add_output(&mut self, chunk: &Value, seed: u64) {
        let chunk = chunk.as_str().expect("output is base64");
        let bytes = base64_simd::STANDARD.decode_to_vec(chunk).expect("output is base64");
        assert_eq!(SeededBytes::new(seed).first_difference(self.bytes, &bytes), None, "a byte is wrong");
        self.bytes += bytes.len() as u64;
    }
}

/// Fails if `work` takes longer than anything may on a slow machine.
pub(crate) async fn with_deadline<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE * 4, work).await.expect("it is done in time")
}
