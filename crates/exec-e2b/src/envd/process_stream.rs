//! What is told of one process, as a stream of Connect: its pid, its log from the beginning, its end.
//!
//! hyper asks for the next piece when the socket has taken the one before, and dropping the body drops the position in the log:
//! there is no task, no queue, and the process knows nothing of who listens.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exec_core::{EntryBody, Exit, ExitCause, ExitStatus, Gap, Page, ProcessId, Stream, signal};
use exec_env::process::{LogFollower, ProcessError};
use serde_json::json;
use tokio::time::{Instant, Sleep};

use crate::connect;
use crate::error::{Code, ServiceError};
use crate::limits::PAGE_BYTES;
use crate::response::{self, HttpResponse};
use crate::sandbox::Sandbox;

pub(super) struct StreamOptions {
    pub(super) pid: u32,
    pub(super) tty: bool,
    /// After so much silence it says that it lives.
    pub(super) keepalive: Duration,
    /// How long it goes on at most.
    pub(super) deadline: Option<Duration>,
    /// Whether the end of a process whose time was over is the failure of this call: that of the call which has started it.
    pub(super) tells_timeout: bool,
}

pub(super) struct ProcessStream {
    sandbox: Arc<Sandbox>,
    follower: Box<dyn LogFollower>,
    options: StreamOptions,
    deadline: Option<Pin<Box<Sleep>>>,
    /// Sent, but not yet the close of its streams.
    exit: Option<Exit>,
    state: State,
}

#[derive(PartialEq, Eq)]
enum State {
    New,
    Following,
    Ended,
}

/// What a stream waits for.
enum Event {
    Read(Result<Option<Page>, ProcessError>),
    Silence,
    Deadline,
    SandboxEnded,
}

impl ProcessStream {
    pub(super) async fn open(
        sandbox: &Arc<Sandbox>,
        id: &ProcessId,
        options: StreamOptions,
    ) -> Result<Self, ServiceError> {
        let follower = sandbox.processes().follow(id, 0).await?;
        let deadline = options.deadline.map(|deadline| Box::pin(tokio::time::sleep_until(Instant::now() + deadline)));
        Ok(Self { sandbox: Arc::clone(sandbox), follower, options, deadline, exit: None, state: State::New })
    }

    pub(super) fn into_response(self) -> HttpResponse {
        let pieces = futures_util::stream::unfold(self, |mut stream| async move {
            let piece = stream.next_piece().await?;
            Some((Ok(piece), stream))
        });
        response::streamed(connect::STREAM_TYPE, pieces)
    }

    /// Some whole messages; `None` after the last.
    async fn next_piece(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        match self.state {
            State::Ended => return None,
            State::New => {
                put_event(&mut out, &json!({ "start": { "pid": self.options.pid } }));
                self.state = State::Following;
            }
            State::Following => {
                let event = self.next_event().await;
                if let Err(error) = self.handle(event, &mut out) {
                    connect::put_end(&mut out, Some(&error));
                    self.state = State::Ended;
                }
            }
        }
        Some(out.into())
    }

    async fn next_event(&mut self) -> Event {
        let deadline = async {
            match &mut self.deadline {
                Some(deadline) => deadline.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            page = self.follower.next(PAGE_BYTES) => Event::Read(page),
            () = tokio::time::sleep(self.options.keepalive) => Event::Silence,
            () = deadline => Event::Deadline,
            () = self.sandbox.ended.cancelled() => Event::SandboxEnded,
        }
    }

    fn handle(&mut self, event: Event, out: &mut Vec<u8>) -> Result<(), ServiceError> {
        match event {
            Event::Silence => put_event(out, &json!({ "keepalive": {} })),
            Event::Deadline => {
                let message = "the stream was given this much time; the process goes on";
                return Err(ServiceError::new(Code::DeadlineExceeded, message));
            }
            Event::SandboxEnded => return Err(ServiceError::sandbox_gone(&self.sandbox.id())),
            Event::Read(page) => match page? {
                Some(page) => self.put_page(page, out)?,
                None => return Err(ServiceError::new(Code::Internal, "the log ended without an end")),
            },
        }
        Ok(())
    }

    fn put_page(&mut self, page: Page, out: &mut Vec<u8>) -> Result<(), ServiceError> {
        if let Some(gap) = page.gap {
            self.put_gap(gap, out);
        }
        for entry in page.entries {
            match entry.body {
                EntryBody::Output { stream, bytes } => put_output(out, stream, &bytes),
                EntryBody::Exited(exit) => self.exit = Some(exit),
                EntryBody::Closed => {
                    let exit = self.exit.or(page.head.exit.map(|(_, exit)| exit));
                    return self.put_exit(exit, out);
                }
            }
        }
        Ok(())
    }

    /// The protocol has no words for lost output, so it is told where it is missing.
    fn put_gap(&self, gap: Gap, out: &mut Vec<u8>) {
        let stream = if self.options.tty { Stream::Pty } else { Stream::Stderr };
        let text = format!(
            "\n[exec-server: earlier output was dropped here, because the log was full; {} bytes so far]\n",
            gap.dropped_bytes
        );
        put_output(out, stream, text.as_bytes());
    }

    fn put_exit(&mut self, exit: Option<Exit>, out: &mut Vec<u8>) -> Result<(), ServiceError> {
        if self.options.tells_timeout && exit.is_some_and(|exit| exit.cause == ExitCause::TimedOut) {
            let message = "the process was ended, because the time that the call gave it was over";
            return Err(ServiceError::new(Code::DeadlineExceeded, message));
        }
        put_event(out, &json!({ "end": end_event(exit) }));
        connect::put_end(out, None);
        self.state = State::Ended;
        Ok(())
    }
}

/// Streams of `Start` and of `Connect` have the same messages.
fn put_event(out: &mut Vec<u8>, event: &serde_json::Value) {
    connect::put_message(out, json!({ "event": event }).to_string().as_bytes());
}

fn put_output(out: &mut Vec<u8>, stream: Stream, bytes: &[u8]) {
    let name = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
        Stream::Pty => "pty",
    };
    let encoded = base64_simd::STANDARD.encode_to_string(bytes);
    connect::put_message(out, format!(r#"{{"event":{{"data":{{"{name}":"{encoded}"}}}}}}"#).as_bytes());
}

/// As envd tells it, which is as Go does. Zeros are left out.
fn end_event(exit: Option<Exit>) -> serde_json::Value {
    match exit.map(|exit| exit.status) {
        Some(ExitStatus::Code(0)) => json!({ "exited": true, "status": "exit status 0" }),
        Some(ExitStatus::Code(code)) => {
            let status = format!("exit status {code}");
            json!({ "exitCode": code, "exited": true, "status": status, "error": status })
        }
        Some(ExitStatus::Signal { number, core_dumped }) => {
            let core = if core_dumped { " (core dumped)" } else { "" };
            let status = format!("signal: {}{core}", signal_words(number));
            json!({ "exitCode": -1, "status": status, "error": status })
        }
        Some(ExitStatus::Lost) | None => {
            let status = "the exit status is not known: the keeper of the process has died";
            json!({ "exitCode": -1, "status": "unknown", "error": status })
        }
    }
}

fn signal_words(number: i32) -> String {
    match number {
        1 => "hangup".to_owned(),
        2 => "interrupt".to_owned(),
        3 => "quit".to_owned(),
        6 => "aborted".to_owned(),
        8 => "floating point exception".to_owned(),
        9 => "killed".to_owned(),
        11 => "segmentation fault".to_owned(),
        13 => "broken pipe".to_owned(),
        15 => "terminated".to_owned(),
        number => signal::name(number),
    }
}
