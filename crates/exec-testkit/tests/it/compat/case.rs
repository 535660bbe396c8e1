//! How a case is written: a name, the messages that are sent and awaited, and where ours may differ from Codex and why.

use serde_json::{Value, json};

use super::case_directory::Fixture;
use super::declared_differences::DeclaredDifference;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    WebSocket,
    Stdio,
}

#[derive(Debug, Clone)]
pub(crate) enum CaseStep {
    /// Opens one more connection, which the next steps use.
    Connect,
    /// The next steps use the n-th connection.
    UseConnection(usize),
    /// `initialize`; its session is called `$SESSION` from then on.
    Initialize,
    /// Resumes the session; only whether that succeeds is compared.
    Resume,
    /// The same, as soon as the server has noticed that its connection is gone.
    ResumeSoon,
    Send(String),
    /// Bytes below any framing.
    Raw(Vec<u8>),
    /// A message in a binary frame.
    Binary(String),
    /// A message in several frames.
    Fragments(String, usize),
    /// Ends our half of the connection.
    CloseInput,
    Drop,
    /// The next message that is no notification of a process.
    Receive,
    /// A request and its response.
    Call(String, Value),
    /// A request whose response is awaited later, with [`CaseStep::Response`].
    Request(String, Value),
    /// The response to the n-th [`CaseStep::Request`] of this connection.
    Response(usize),
    /// Until a process has printed so much.
    Printed(String, String),
    /// Until a process has exited.
    Exited(String),
    /// Until a process is closed.
    Closed(String),
    /// All notifications of a process; neighbouring output of one stream counts as one.
    Log(String),
    /// The same with every seq.
    ExactLog(String),
    /// What a process printed, its lines sorted.
    SortedOutput(String),
    /// Until a streamed body is complete; its pieces count as one.
    Body(String),
    /// Creates something in the case's directory.
    Create(Fixture),
    /// What the case's directory holds.
    Snapshot,
    /// Whether the connection is still served.
    Alive,
    /// Until the server ends the connection.
    Ended,
}

/// What ours shows instead, and where WIRE declares that.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub(crate) reason: DeclaredDifference,
    pub(crate) ours: Value,
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) transports: Vec<Transport>,
    pub(crate) steps: Vec<(CaseStep, Option<Difference>)>,
}

/// A case over both transports, on a fresh connection.
pub(crate) fn case(name: &str) -> Case {
    Case {
        name: name.to_owned(),
        transports: vec![Transport::WebSocket, Transport::Stdio],
        steps: vec![(CaseStep::Connect, None)],
    }
}

/// A case whose connection has done the handshake.
pub(crate) fn initialized(name: &str) -> Case {
    case(name).initialize()
}

impl Case {
    pub(crate) fn only(mut self, transport: Transport) -> Self {
        self.transports = vec![transport];
        self
    }

    pub(crate) fn step(mut self, step: CaseStep) -> Self {
        self.steps.push((step, None));
        self
    }

    /// Ours differs from Codex in what the last step shows.
    pub(crate) fn differs(mut self, reason: DeclaredDifference, ours: Value) -> Self {
        let last = self.steps.last_mut().expect("a difference belongs to a step");
        last.1 = Some(Difference { reason, ours });
        self
    }

    /// Ours differs from Codex in what the first call shows.
    pub(crate) fn start_differs(mut self, reason: DeclaredDifference, ours: Value) -> Self {
        let call = self.steps.iter_mut().find(|(step, _)| matches!(step, CaseStep::Call(..)));
        call.expect("the case has a call").1 = Some(Difference { reason, ours });
        self
    }

    /// The handshake.
    pub(crate) fn initialize(self) -> Self {
        self.step(CaseStep::Initialize).send(r#"{"method":"initialized"}"#)
    }

    /// Closes our half of the connection; the server must then end it.
    pub(crate) fn disconnect(self) -> Self {
        self.step(CaseStep::CloseInput).ended()
    }

    /// Closes the connection, and resumes its session on another.
    pub(crate) fn reconnect(self) -> Self {
        self.disconnect().connect().resume()
    }

    /// The handshake of a connection that resumes the first connection's session.
    pub(crate) fn resume(self) -> Self {
        let params = json!({"clientName": "again", "resumeSessionId": "$SESSION"});
        self.call("initialize", params).send(r#"{"method":"initialized"}"#)
    }

    pub(crate) fn send(self, text: impl Into<String>) -> Self {
        self.step(CaseStep::Send(text.into()))
    }

    pub(crate) fn send_and_receive(self, text: impl Into<String>) -> Self {
        self.send(text).step(CaseStep::Receive)
    }

    pub(crate) fn receive(self) -> Self {
        self.step(CaseStep::Receive)
    }

    pub(crate) fn call(self, method: &str, params: Value) -> Self {
        self.step(CaseStep::Call(method.to_owned(), params))
    }

    pub(crate) fn request(self, method: &str, params: Value) -> Self {
        self.step(CaseStep::Request(method.to_owned(), params))
    }

    pub(crate) fn response(self, asked: usize) -> Self {
        self.step(CaseStep::Response(asked))
    }

    pub(crate) fn connect(self) -> Self {
        self.step(CaseStep::Connect)
    }

    pub(crate) fn use_connection(self, connection: usize) -> Self {
        self.step(CaseStep::UseConnection(connection))
    }

    pub(crate) fn alive(self) -> Self {
        self.step(CaseStep::Alive)
    }

    pub(crate) fn ended(self) -> Self {
        self.step(CaseStep::Ended)
    }

    /// The body of a streamed response.
    pub(crate) fn body(self, request: &str) -> Self {
        self.step(CaseStep::Body(request.to_owned()))
    }

    pub(crate) fn printed(self, process: &str, text: &str) -> Self {
        self.step(CaseStep::Printed(process.to_owned(), text.to_owned()))
    }

    /// Waits until the process has printed `text`, then writes an empty line to it.
    pub(crate) fn line_after(self, process: &str, text: &str, write_id: &str) -> Self {
        self.printed(process, text).write(process, write_id, "\n")
    }

    pub(crate) fn exited(self, process: &str) -> Self {
        self.step(CaseStep::Exited(process.to_owned()))
    }

    pub(crate) fn closed(self, process: &str) -> Self {
        self.step(CaseStep::Closed(process.to_owned()))
    }

    /// All notifications of a process, to its end.
    pub(crate) fn log(self, process: &str) -> Self {
        self.closed(process).step(CaseStep::Log(process.to_owned()))
    }

    pub(crate) fn exact_log(self, process: &str) -> Self {
        self.closed(process).step(CaseStep::ExactLog(process.to_owned()))
    }

    pub(crate) fn sorted_output(self, process: &str) -> Self {
        self.closed(process).step(CaseStep::SortedOutput(process.to_owned()))
    }

    /// Starts `argv` over pipes with no stdin.
    pub(crate) fn start(self, process: &str, argv: &[&str]) -> Self {
        self.call("process/start", start(process, argv))
    }

    /// Starts a shell.
    pub(crate) fn sh(self, process: &str, script: &str) -> Self {
        self.start(process, &["/bin/sh", "-c", script])
    }

    /// Starts a shell whose stdin can be written to.
    pub(crate) fn sh_with_stdin(self, process: &str, script: &str) -> Self {
        let params = with(start(process, &["/bin/sh", "-c", script]), json!({"pipeStdin": true}));
        self.call("process/start", params)
    }

    /// Starts a shell on a terminal.
    pub(crate) fn sh_on_tty(self, process: &str, script: &str) -> Self {
        let params = with(start(process, &["/bin/sh", "-c", script]), json!({"tty": true}));
        self.call("process/start", params)
    }

    pub(crate) fn write(self, process: &str, write_id: &str, text: &str) -> Self {
        let chunk = base64_simd::STANDARD.encode_to_string(text);
        self.call("process/write", json!({"processId": process, "writeId": write_id, "chunk": chunk}))
    }

    pub(crate) fn read(self, process: &str, more: Value) -> Self {
        self.call("process/read", with(json!({"processId": process}), more))
    }
}

/// The least a start needs.
pub(crate) fn start(process: &str, argv: &[&str]) -> Value {
    json!({"processId": process, "argv": argv, "cwd": "file:///tmp", "env": {"PATH": "/usr/bin:/bin"}, "tty": false})
}

/// `base` with the members of `more` on top; a member that is `"$ABSENT"` is taken away.
pub(crate) fn with(mut base: Value, more: Value) -> Value {
    let (Value::Object(members), Value::Object(more)) = (&mut base, more) else { panic!("both are objects") };
    for (name, value) in more {
        if value == "$ABSENT" {
            members.remove(&name);
        } else {
            members.insert(name, value);
        }
    }
    base
}
