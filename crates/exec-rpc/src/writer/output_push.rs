//! The push of one process's output on one connection: whether it has begun, and how its entries are encoded.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use exec_core::{EntryBody, Entry};
use exec_env::BoxFuture;
use exec_env::process::LogFollower;
use exec_transport::Message;
use exec_wire::binary::{self, FrameHeader};
use exec_wire::envelope;
use exec_wire::output_codec::OutputEncoder;
use exec_wire::method::NotificationMethod;
use exec_wire::process::{ClosedParams, ExitedParams};

use crate::convert;
use crate::session::SessionProcess;

pub(super) struct OutputPush {
    process: Arc<SessionProcess>,
    state: PushState,
}

enum PushState {
    /// After a resume, the client's first read says where the push begins.
    AwaitingFirstRead {
        until: Instant,
    },
    Following {
        generation: u64,
        encoder: OutputEncoder,
        jsonrpc: bool,
        last_bytes: usize,
    },
}

/// A follower that has entries to send. `generation` tells whether its push was replaced meanwhile.
pub(super) struct ReadyFollower {
    pub(super) wire_id: String,
    pub(super) generation: u64,
    pub(super) follower: Box<dyn LogFollower>,
}

impl ReadyFollower {
    /// Resolves when the follower has entries to send.
    pub(super) fn wait(wire_id: String, generation: u64, mut follower: Box<dyn LogFollower>) -> BoxFuture<'static, Self> {
        Box::pin(async move {
            follower.ready().await;
            Self { wire_id, generation, follower }
        })
    }
}

impl OutputPush {
    pub(super) fn awaiting_first_read(process: Arc<SessionProcess>, until: Instant) -> Self {
        Self { process, state: PushState::AwaitingFirstRead { until } }
    }

    pub(super) fn following(process: Arc<SessionProcess>, generation: u64, jsonrpc: bool) -> Self {
        let encoder = OutputEncoder::new(&process.wire_id, jsonrpc);
        Self { process, state: PushState::Following { generation, encoder, jsonrpc, last_bytes: 0 } }
    }

    pub(super) fn process(&self) -> &Arc<SessionProcess> {
        &self.process
    }

    pub(super) fn is_of(&self, process: &Arc<SessionProcess>) -> bool {
        Arc::ptr_eq(&self.process, process)
    }

    /// When the push begins even without a read; `None` if it has begun.
    pub(super) fn begins_by(&self) -> Option<Instant> {
        match self.state {
            PushState::AwaitingFirstRead { until } => Some(until),
            PushState::Following { .. } => None,
        }
    }

    /// 0 before it begins, which is no follower's.
    pub(super) fn generation(&self) -> u64 {
        match self.state {
            PushState::AwaitingFirstRead { .. } => 0,
            PushState::Following { generation, .. } => generation,
        }
    }

    pub(super) fn last_bytes(&self) -> usize {
        match self.state {
            PushState::AwaitingFirstRead { .. } => 0,
            PushState::Following { last_bytes, .. } => last_bytes,
        }
    }

    pub(super) fn set_last_bytes(&mut self, bytes: usize) {
        if let PushState::Following { last_bytes, .. } = &mut self.state {
            *last_bytes = bytes;
        }
    }

    /// Encodes an entry for the wire, into the memory of `out`.
    pub(super) fn encode(&self, entry: Entry, binary: bool, mut out: Vec<u8>) -> Message {
        let PushState::Following { encoder, jsonrpc, .. } = &self.state else {
            unreachable!("only a push that follows its process has entries")
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
