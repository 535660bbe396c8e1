//! The push of one process's output on one connection: whether it has begun, and how its entries are encoded.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use exec_core::{Entry, EntryBody};
use exec_env::BoxFuture;
use exec_env::process::LogFollower;
use exec_transport::Message;
use exec_wire::binary::{self, FrameHeader};
use exec_wire::envelope;
use exec_wire::method::NotificationMethod;
use exec_wire::output_codec::OutputEncoder;
use exec_wire::process::{ClosedParams, ExitedParams};

use crate::session::SessionProcess;

pub(super) struct OutputPush {
    pub(super) process: Arc<SessionProcess>,
    state: PushState,
}

enum PushState {
    /// After a resume, the client's first read says where the push begins.
    AwaitingFirstRead {
        until: Instant,
    },
    Following(FollowingPush),
}

/// A push that has begun.
pub(super) struct FollowingPush {
    generation: u64,
    encoder: OutputEncoder,
    jsonrpc: bool,
    /// What the push sent the last time it had its turn.
    pub(super) last_bytes: usize,
}

impl OutputPush {
    pub(super) fn awaiting_first_read(process: Arc<SessionProcess>, until: Instant) -> Self {
        Self { process, state: PushState::AwaitingFirstRead { until } }
    }

    pub(super) fn following(process: Arc<SessionProcess>, generation: u64, jsonrpc: bool) -> Self {
        let encoder = OutputEncoder::new(&process.wire_id, jsonrpc);
        let state = PushState::Following(FollowingPush { generation, encoder, jsonrpc, last_bytes: 0 });
        Self { process, state }
    }

    /// When the push begins even without a read; `None` if it has begun.
    pub(super) fn begins_by(&self) -> Option<Instant> {
        match self.state {
            PushState::AwaitingFirstRead { until } => Some(until),
            PushState::Following(_) => None,
        }
    }

    /// The push that this follower reads for; `None` if another has replaced it.
    pub(super) fn of_follower(&mut self, ready: &ReadyFollower) -> Option<(&SessionProcess, &mut FollowingPush)> {
        match &mut self.state {
            PushState::Following(push) if push.generation == ready.generation => Some((&self.process, push)),
            PushState::Following(_) | PushState::AwaitingFirstRead { .. } => None,
        }
    }
}

impl FollowingPush {
    /// Encodes an entry for the wire, into the memory of `out`.
    pub(super) fn encode(&self, process_id: &str, entry: Entry, binary: bool, mut out: Vec<u8>) -> Message {
        match entry.body {
            EntryBody::Output { stream, bytes } => {
                let stream = stream.into();
                if binary {
                    let header = FrameHeader::Output { process_id, seq: entry.seq, stream };
                    if binary::encode(&mut out, &header, &bytes).is_ok() {
                        return Message::Binary(Bytes::from(out));
                    }
                }
                self.encoder.encode(&mut out, entry.seq, stream, &bytes);
            }
            EntryBody::Exited(exit) => {
                let params = ExitedParams {
                    process_id: process_id.to_owned(),
                    seq: entry.seq,
                    exit_code: exit.shell_code(),
                    sandbox_denied: Some(false),
                    exit: Some(exit.into()),
                };
                envelope::write_notification(&mut out, NotificationMethod::ProcessExited.name(), &params, self.jsonrpc);
            }
            EntryBody::Closed => {
                let params = ClosedParams { process_id: process_id.to_owned(), seq: entry.seq };
                envelope::write_notification(&mut out, NotificationMethod::ProcessClosed.name(), &params, self.jsonrpc);
            }
        }
        Message::Text(Bytes::from(out))
    }
}

/// A follower that has entries to send. Its generation tells whether its push was replaced meanwhile.
pub(super) struct ReadyFollower {
    pub(super) wire_id: String,
    generation: u64,
    pub(super) follower: Box<dyn LogFollower>,
}

impl ReadyFollower {
    /// Resolves when the follower has entries to send.
    pub(super) fn wait(
        wire_id: String,
        generation: u64,
        mut follower: Box<dyn LogFollower>,
    ) -> BoxFuture<'static, Self> {
        Box::pin(async move {
            follower.ready().await;
            Self { wire_id, generation, follower }
        })
    }

    pub(super) fn wait_again(self) -> BoxFuture<'static, Self> {
        Self::wait(self.wire_id, self.generation, self.follower)
    }
}
