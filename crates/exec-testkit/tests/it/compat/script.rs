//! How a case is written down: a name, what is said and awaited, and where ours may differ and why.

use serde_json::{Value, json};

use super::folder::Thing;
use super::rows::Row;

/// Over what a case is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    WebSocket,
    Stdio,
}

/// One line of a script.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// One more connection, on which the script goes on.
    Connect,
    /// The script goes on on the n-th connection.
    On(usize),
    /// `initialize`; its session is called `$SESSION` from then on.
    Hello,
    /// Goes on with the session; only whether that succeeds is compared.
    Resume,
    /// The same, as soon as the server has noticed that its connection is gone.
    ResumeSoon,
    /// A message, as it is.
    Say(String),
    /// Bytes below any framing.
    Raw(Vec<u8>),
    /// A message in a binary frame.
    Binary(String),
    /// A message in several frames.
    Fragments(String, usize),
    /// No more input from us.
    Finish,
    /// The connection is dropped.
    Drop,
    /// The next message that is no notice of a process.
    Hear,
    /// A request, and its answer.
    Call(String, Value),
    /// A request whose answer is heard later, with [`Step::Answer`].
    Ask(String, Value),
    /// The answer to the n-th [`Step::Ask`] of this connection.
    Answer(usize),
    /// Until a process has printed so much.
    Printed(String, String),
    /// Until a process has exited.
    Exited(String),
    /// Until a process is closed.
    Closed(String),
    /// What has been told of a process; neighbouring output of one stream counts as one.
    Log(String),
    /// The same with every seq.
    ExactLog(String),
    /// What a process printed, its lines sorted.
    SortedOutput(String),
    /// Until a streamed body is told; its pieces count as one.
    Body(String),
    /// Something is put into the script's folder.
    Furnish(Thing),
    /// What the script's folder holds.
    Look,
    /// Whether the connection is still served.
    Alive,
    /// Until the server ends the connection.
    Ended,
}

/// Where ours differs, and which row of WIRE A.1 says so.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub(crate) row: Row,
    pub(crate) ours: Value,
}

/// A script with a name.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) over: Vec<Over>,
    pub(crate) steps: Vec<(Step, Option<Difference>)>,
}

/// A case over both transports, on a fresh connection.
pub(crate) fn case(name: &str) -> Case {
    Case { name: name.to_owned(), over: vec![Over::WebSocket, Over::Stdio], steps: vec![(Step::Connect, None)] }
}

/// A case whose connection has shaken hands.
pub(crate) fn greeted(name: &str) -> Case {
    case(name).hello()
}

impl Case {
    pub(crate) fn only(mut self, over: Over) -> Self {
        self.over = vec![over];
        self
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.steps.push((step, None));
        self
    }

    /// What the step before it shows is different, and better.
    pub(crate) fn better(mut self, row: Row, ours: Value) -> Self {
        let last = self.steps.last_mut().expect("a difference belongs to a step");
        last.1 = Some(Difference { row, ours });
        self
    }

    /// The same for the first call of the script.
    pub(crate) fn better_at_start(mut self, row: Row, ours: Value) -> Self {
        let call = self.steps.iter_mut().find(|(step, _)| matches!(step, Step::Call(..)));
        call.expect("the script has a call").1 = Some(Difference { row, ours });
        self
    }

    /// The handshake.
    pub(crate) fn hello(self) -> Self {
        self.step(Step::Hello).say(r#"{"method":"initialized"}"#)
    }

    /// The handshake of a connection that goes on with the first connection's session.
    pub(crate) fn resume(self) -> Self {
        let params = json!({"clientName": "again", "resumeSessionId": "$SESSION"});
        self.call("initialize", params).say(r#"{"method":"initialized"}"#)
    }

    pub(crate) fn say(self, text: impl Into<String>) -> Self {
        self.step(Step::Say(text.into()))
    }

    /// A message, and the next that comes back.
    pub(crate) fn says(self, text: impl Into<String>) -> Self {
        self.say(text).step(Step::Hear)
    }

    pub(crate) fn hear(self) -> Self {
        self.step(Step::Hear)
    }

    pub(crate) fn call(self, method: &str, params: Value) -> Self {
        self.step(Step::Call(method.to_owned(), params))
    }

    pub(crate) fn ask(self, method: &str, params: Value) -> Self {
        self.step(Step::Ask(method.to_owned(), params))
    }

    pub(crate) fn answer(self, asked: usize) -> Self {
        self.step(Step::Answer(asked))
    }

    pub(crate) fn connect(self) -> Self {
        self.step(Step::Connect)
    }

    pub(crate) fn on(self, connection: usize) -> Self {
        self.step(Step::On(connection))
    }

    pub(crate) fn alive(self) -> Self {
        self.step(Step::Alive)
    }

    pub(crate) fn ended(self) -> Self {
        self.step(Step::Ended)
    }

    /// What is told of the body of a streamed answer.
    pub(crate) fn body(self, request: &str) -> Self {
        self.step(Step::Body(request.to_owned()))
    }

    pub(crate) fn printed(self, process: &str, text: &str) -> Self {
        self.step(Step::Printed(process.to_owned(), text.to_owned()))
    }

    pub(crate) fn exited(self, process: &str) -> Self {
        self.step(Step::Exited(process.to_owned()))
    }

    pub(crate) fn closed(self, process: &str) -> Self {
        self.step(Step::Closed(process.to_owned()))
    }

    /// Everything that is told of a process, to its end.
    pub(crate) fn log(self, process: &str) -> Self {
        self.closed(process).step(Step::Log(process.to_owned()))
    }

    pub(crate) fn exact_log(self, process: &str) -> Self {
        self.closed(process).step(Step::ExactLog(process.to_owned()))
    }

    pub(crate) fn sorted_output(self, process: &str) -> Self {
        self.closed(process).step(Step::SortedOutput(process.to_owned()))
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
