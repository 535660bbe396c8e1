//! The push of one process's output on one connection: whether it has begun, and how its entries are encoded.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use exec_core::{Entry, EntryBody, Seq};
use exec_env::BoxFuture;
use exec_env::process::{LogFollower, ProcessError};
use exec_transport::Message;
use exec_wire::binary::{self, FrameHeader};
use exec_wire::envelope;
use exec_wire::method::NotificationMethod;
use exec_wire::output_codec::OutputEncoder;
use exec_wire::process::{ClosedParams, Exit, ExitedParams};

use crate::limits::{ACKNOWLEDGED_TOGETHER_BYTES, PUSH_COST_BYTES};
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
    pub(super) unacknowledged: Unacknowledged,
    /// What the push does while the client's window is full.
    pub(super) when_full: WhenFull,
}

/// The position of a push whose window is full.
pub(super) enum WhenFull {
    /// Nobody at the client reads the process, or it has not said so yet. The push gives its position up, so that the
    /// child does not wait for it, and begins anew when somebody reads.
    GiveUp,
    GaveUp,
    /// The push waits for the client to acknowledge what it was sent before.
    Wait,
    Waiting(ReadyFollower),
}

/// What was sent to a client that acknowledges, and was not acknowledged yet. Pure.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    /// The last entry that was sent, or after which the push began.
    pub(super) last_sent: Seq,
    /// The last entry of each page, and what the page costs the client.
    pages: VecDeque<(Seq, usize)>,
    cost_bytes: usize,
}

impl Unacknowledged {
    pub(super) fn after(last_sent: Seq) -> Self {
        Self { last_sent, pages: VecDeque::new(), cost_bytes: 0 }
    }

    /// Whether one more page fits the window. One always does if there is nothing else.
    pub(super) fn leaves_room(&self, window: usize) -> bool {
        self.pages.is_empty() || self.cost_bytes + PUSH_COST_BYTES <= window
    }

    pub(super) fn add(&mut self, last: Seq, cost_bytes: usize) {
        self.last_sent = last;
        self.cost_bytes += cost_bytes;
        match self.pages.back_mut() {
            Some((seq, cost)) if *cost + cost_bytes <= ACKNOWLEDGED_TOGETHER_BYTES => {
                (*seq, *cost) = (last, *cost + cost_bytes);
            }
            _ => self.pages.push_back((last, cost_bytes)),
        }
    }

    pub(super) fn acknowledge(&mut self, upto: Seq) {
        while let Some((_, cost)) = self.pages.pop_front_if(|(last, _)| *last <= upto) {
            self.cost_bytes -= cost;
        }
    }
}

impl OutputPush {
    pub(super) fn awaiting_first_read(process: Arc<SessionProcess>, until: Instant) -> Self {
        Self { process, state: PushState::AwaitingFirstRead { until } }
    }

    pub(super) fn following(process: Arc<SessionProcess>, after: Seq, generation: u64, jsonrpc: bool) -> Self {
        let encoder = OutputEncoder::new(&process.wire_id, jsonrpc);
        let unacknowledged = Unacknowledged::after(after);
        let push =
            FollowingPush { generation, encoder, jsonrpc, last_bytes: 0, unacknowledged, when_full: WhenFull::GiveUp };
        Self { process, state: PushState::Following(push) }
    }

    /// The push, if it has begun.
    pub(super) fn begun(&mut self) -> Option<&mut FollowingPush> {
        match &mut self.state {
            PushState::Following(push) => Some(push),
            PushState::AwaitingFirstRead { .. } => None,
        }
    }

    /// When the push begins even without a read; `None` if it has begun.
    pub(super) fn begins_by(&self) -> Option<Instant> {
        match self.state {
            PushState::AwaitingFirstRead { until } => Some(until),
            PushState::Following(_) => None,
        }
    }

    pub(super) fn is_of_generation(&self, generation: u64) -> bool {
        matches!(&self.state, PushState::Following(push) if push.generation == generation)
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
    pub(super) fn encode(&self, process: &SessionProcess, entry: Entry, binary: bool, mut out: Vec<u8>) -> Message {
        let process_id = process.wire_id.as_str();
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
                    sandbox_denied: Some(process.denial().is_some()),
                    exit: Some(Exit { denial: process.denial(), ..exit.into() }),
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

/// What the writer has waited for without waiting itself: a far environment may take its time.
pub(super) enum Awaited {
    Ready(ReadyFollower),
    /// There is no follower for this push.
    NoFollower {
        wire_id: String,
        generation: u64,
        error: ProcessError,
    },
    /// Whether there is a follower that can hold a position for the client.
    HoldFollower {
        process: Arc<SessionProcess>,
        upto: Seq,
        follower: Option<Box<dyn LogFollower>>,
    },
}

/// A follower that has entries to send. Its generation tells whether its push was replaced meanwhile.
pub(super) struct ReadyFollower {
    pub(super) wire_id: String,
    pub(super) generation: u64,
    pub(super) follower: Box<dyn LogFollower>,
}

impl ReadyFollower {
    /// Resolves when the follower has entries to send again.
    pub(super) fn wait_again(mut self) -> BoxFuture<'static, Awaited> {
        Box::pin(async move {
            self.follower.ready().await;
            Awaited::Ready(self)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_goes_on_when_enough_of_its_window_is_acknowledged() {
        let window = PUSH_COST_BYTES * 2;
        let mut sent = Unacknowledged::after(10);
        assert!(sent.leaves_room(0), "a first page always fits");
        sent.add(12, PUSH_COST_BYTES);
        assert!(sent.leaves_room(window) && !sent.leaves_room(window - 1));
        sent.add(20, 1);
        assert!(!sent.leaves_room(window));
        sent.acknowledge(11);
        assert!(!sent.leaves_room(window), "half of a page is no page");
        sent.acknowledge(12);
        assert!(sent.leaves_room(window));
        sent.acknowledge(20);
        assert_eq!((sent.cost_bytes, sent.last_sent, sent.pages.len()), (0, 20, 0));
    }

    #[test]
    fn many_small_pages_cost_little_memory() {
        let mut sent = Unacknowledged::after(0);
        for seq in 1..=100_000 {
            sent.add(seq, 97);
        }
        assert!(sent.pages.len() <= 100_000 * 97 / (ACKNOWLEDGED_TOGETHER_BYTES / 2));
        sent.acknowledge(100_000);
        assert_eq!((sent.cost_bytes, sent.pages.len()), (0, 0));
    }
}
