//! One process on one connection: where its push stands, and how its entries are written.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use exec_core::{EntryBody, Entry, Seq};
use exec_env::BoxFuture;
use exec_env::process::LogFollower;
use exec_transport::Message;
use exec_wire::binary::{self, FrameHeader};
use exec_wire::envelope;
use exec_wire::output_codec::OutputEncoder;
use exec_wire::method::NotificationMethod;
use exec_wire::process::{ClosedParams, ExitedParams};

use crate::convert;
use crate::session::Process;

/// A follower that waits until it has something: its lane's name and token come back with it.
pub(super) type Ready = BoxFuture<'static, (String, u64, Box<dyn LogFollower>)>;

pub(super) fn ready(wire_id: String, token: u64, mut follower: Box<dyn LogFollower>) -> Ready {
    Box::pin(async move {
        follower.ready().await;
        (wire_id, token, follower)
    })
}

pub(super) struct Lane {
    process: Arc<Process>,
    state: State,
}

enum State {
    /// After a resume: the client's first read says where to go on.
    Waiting {
        until: Instant,
    },
    Following {
        token: u64,
        encoder: OutputEncoder,
        jsonrpc: bool,
        last_bytes: usize,
    },
}

impl Lane {
    pub(super) fn waiting(process: Arc<Process>, until: Instant) -> Self {
        Self { process, state: State::Waiting { until } }
    }

    pub(super) fn following(process: Arc<Process>, token: u64, jsonrpc: bool) -> Self {
        let encoder = OutputEncoder::new(&process.wire_id, jsonrpc);
        Self { process, state: State::Following { token, encoder, jsonrpc, last_bytes: 0 } }
    }

    pub(super) fn wire_id(&self) -> &str {
        &self.process.wire_id
    }

    pub(super) fn process(&self) -> Arc<Process> {
        self.process.clone()
    }

    pub(super) fn is_of(&self, process: &Arc<Process>) -> bool {
        Arc::ptr_eq(&self.process, process)
    }

    pub(super) fn waits_for(&self, process: &Arc<Process>) -> bool {
        self.is_of(process) && matches!(self.state, State::Waiting { .. })
    }

    pub(super) fn begins_by(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { until } => Some(until),
            State::Following { .. } => None,
        }
    }

    pub(super) fn token(&self) -> u64 {
        match self.state {
            State::Waiting { .. } => 0,
            State::Following { token, .. } => token,
        }
    }

    pub(super) fn last_bytes(&self) -> usize {
        match self.state {
            State::Waiting { .. } => 0,
            State::Following { last_bytes, .. } => last_bytes,
        }
    }

    pub(super) fn note_turn(&mut self, bytes: usize) {
        if let State::Following { last_bytes, .. } = &mut self.state {
            *last_bytes = bytes;
        }
    }

    pub(super) fn note_sent(&self, seq: Seq) {
        self.process.note_sent(seq);
    }

    /// An entry as it goes over the wire, written into `out`.
    pub(super) fn encode(&self, entry: Entry, binary: bool, mut out: Vec<u8>) -> Message {
        let State::Following { encoder, jsonrpc, .. } = &self.state else {
            unreachable!("only a lane that follows has a turn")
        };
        let process_id = self.process.wire_id.clone();
        match entry.body {
            EntryBody::Output { stream, bytes } => {
                let stream = convert::stream(stream);
                if binary {
                    let header = FrameHeader::Output { process_id: &process_id, seq: entry.seq, stream };
                    if binary::encode(&mut out, &header, &bytes).is_ok() {
                        return Message::Binary(Bytes::from(out));
                    }
                }
                encoder.encode(&mut out, entry.seq, stream, &bytes);
            }
            EntryBody::Exited(exit) => {
                let params = ExitedParams {
                    process_id,
                    seq: entry.seq,
                    exit_code: exit.shell_code(),
                    sandbox_denied: Some(false),
                    exit: Some(convert::exit(&exit)),
                };
                envelope::write_notification(&mut out, NotificationMethod::ProcessExited.name(), &params, *jsonrpc);
            }
            EntryBody::Closed => {
                let params = ClosedParams { process_id, seq: entry.seq };
                envelope::write_notification(&mut out, NotificationMethod::ProcessClosed.name(), &params, *jsonrpc);
            }
        }
        Message::Text(Bytes::from(out))
    }
}
