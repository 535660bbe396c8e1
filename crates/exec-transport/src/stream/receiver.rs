//! Receives messages, and does what a connection does by itself: answers pings, sends pings, notices silence, closes in
//! good order. All of it is driven by [`StreamReceiver::next`].
//!
//! ```text
//! Open ──violation──► Closing(Malformed) ──► Over
//!   │ ───peer's close─► Closing(ByPeer) ───► Over
//!   └────end, error, silence, stall ───────► Over
//! ```
//!
//! Dropping the future of `next` loses nothing: what was read is in the decoder, and the progress of closing is in
//! `phase`.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::keepalive::{Keepalive, KeepaliveAction};
use crate::limits::{CLOSE_DEADLINE, Limits};
use crate::message::{CloseReason, ConnectionEnd, Received};

use super::ReadIo;
use super::decoder::{Decoder, DecoderEvent};
use super::sender::SharedWriter;

pub(crate) struct StreamReceiver {
    io: ReadIo,
    decoder: Box<dyn Decoder>,
    shared: Arc<SharedWriter>,
    /// WebSocket only; lines have no ping.
    keepalive: Option<Keepalive>,
    timer: Pin<Box<Sleep>>,
    write_deadline: Duration,
    /// We put a control frame into the queue, and it has not been written yet.
    owes_control: bool,
    phase: Phase,
}

enum Phase {
    Open,
    /// The close frame is being sent; then this is reported.
    Closing(Closing),
    /// `Some` is reported once; from then on, the end of the stream.
    Over(Option<ConnectionEnd>),
}

enum Closing {
    /// The peer sent a close frame; our own is being sent.
    ByPeer(CloseReason),
    /// The peer broke the protocol. What it still sends is read and dropped, because closing a
    /// socket with unread bytes resets it, and a reset may overtake our close frame.
    Violation(CloseReason),
}

enum Event {
    Read(io::Result<usize>),
    Control(io::Result<()>),
    Timer,
}

impl std::fmt::Debug for StreamReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamReceiver").field("decoder", &self.decoder).finish_non_exhaustive()
    }
}

impl StreamReceiver {
    pub(crate) fn new(
        io: ReadIo,
        decoder: Box<dyn Decoder>,
        pings: bool,
        shared: Arc<SharedWriter>,
        limits: &Limits,
    ) -> Self {
        let now = Instant::now();
        let keepalive = pings.then(|| Keepalive::new(limits.ping_interval, limits.silence_limit, now));
        let first_deadline = keepalive.as_ref().map_or(now + limits.ping_interval, Keepalive::next_deadline);
        Self {
            io,
            decoder,
            shared,
            keepalive,
            timer: Box::pin(sleep_until(first_deadline)),
            write_deadline: limits.write_deadline,
            owes_control: false,
            phase: Phase::Open,
        }
    }

    pub(crate) async fn next(&mut self) -> Received {
        loop {
            let outcome = match &mut self.phase {
                Phase::Over(closed) => return Received::Closed(closed.take().unwrap_or(ConnectionEnd::EndOfStream)),
                Phase::Open => match self.decoder.next() {
                    Ok(None) => None,
                    Ok(Some(incoming)) => match self.handle_decoded(incoming) {
                        // What the peer sent after a ping or a pong may be in the decoder already, and then the socket
                        // will not wake us. The pong is sent first, because we do not know when `next` is called again.
                        None if matches!(self.phase, Phase::Open) => {
                            poll_fn(|cx| self.try_send_control(cx)).await;
                            continue;
                        }
                        received => received,
                    },
                    Err(violation) => self.reject_peer(violation),
                },
                Phase::Closing(_) => None,
            };
            if let Some(received) = outcome {
                return received;
            }
            if matches!(self.phase, Phase::Over(_)) {
                continue;
            }
            let event = poll_fn(|cx| self.poll_event(cx)).await;
            let outcome = match self.phase {
                Phase::Closing(_) => self.handle_while_closing(event),
                _ => self.handle_while_open(event),
            };
            if let Some(received) = outcome {
                return received;
            }
        }
    }

    /// Sends pending control frames if the socket takes them now. Never waits: otherwise they are sent with the next event.
    fn try_send_control(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A broken write half is reported by the read half too.
        if self.owes_control && self.shared.writer().poll_control(cx).is_ready() {
            self.owes_control = false;
        }
        Poll::Ready(())
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if self.owes_control {
            let poll = self.shared.writer().poll_control(cx);
            match poll {
                Poll::Ready(result) => {
                    self.owes_control = false;
                    return Poll::Ready(Event::Control(result));
                }
                Poll::Pending => self.arm_stall_timer(),
            }
        }
        let mut space = self.decoder.space();
        if let Poll::Ready(result) = pin!(self.io.read_buf(&mut space)).poll(cx) {
            return Poll::Ready(Event::Read(result));
        }
        self.decoder.input().release_idle();
        // Lines have no pings; their timer matters only while closing.
        if self.keepalive.is_none() && matches!(self.phase, Phase::Open) {
            return Poll::Pending;
        }
        self.timer.as_mut().poll(cx).map(|()| Event::Timer)
    }

    /// While a control frame of ours cannot be written, the timer also watches the write deadline.
    fn arm_stall_timer(&mut self) {
        let stalled_since = self.shared.writer().stalled_since;
        if let Some(since) = stalled_since
            && since + self.write_deadline < self.timer.deadline()
        {
            self.timer.as_mut().reset(since + self.write_deadline);
        }
    }

    fn handle_decoded(&mut self, incoming: DecoderEvent) -> Option<Received> {
        match incoming {
            DecoderEvent::Message(message) => Some(Received::Message(message)),
            DecoderEvent::Ping(payload) => {
                self.shared.writer().queue.pong(payload);
                self.owes_control = true;
                None
            }
            DecoderEvent::Pong => None,
            DecoderEvent::Close(reason) => {
                let answer = CloseReason::new(reason.code, "");
                self.begin_close(answer, Closing::ByPeer(reason));
                None
            }
        }
    }

    fn reject_peer(&mut self, reason: CloseReason) -> Option<Received> {
        self.decoder.discard();
        self.begin_close(reason.clone(), Closing::Violation(reason));
        // Lines have no close frame, so there is nothing to send and nothing to wait for.
        if self.keepalive.is_some() { None } else { self.finish_close() }
    }

    fn begin_close(&mut self, reason: CloseReason, closing: Closing) {
        self.shared.writer().queue.close(reason);
        self.owes_control = true;
        self.timer.as_mut().reset(Instant::now() + CLOSE_DEADLINE);
        self.phase = Phase::Closing(closing);
    }

    fn handle_while_open(&mut self, event: Event) -> Option<Received> {
        match event {
            Event::Read(Ok(0)) => self.handle_end_of_stream(),
            Event::Read(Ok(read_bytes)) => {
                self.decoder.input().filled(read_bytes);
                if let Some(keepalive) = &mut self.keepalive {
                    keepalive.record_activity(Instant::now());
                }
                None
            }
            // A broken write half is reported by the read half too, after what the peer sent last.
            Event::Control(_) => None,
            Event::Read(Err(error)) => self.finish(ConnectionEnd::Lost(error)),
            Event::Timer => self.on_timer(Instant::now()),
        }
    }

    fn on_timer(&mut self, now: Instant) -> Option<Received> {
        let (last_drained, stalled_since) = {
            let writer = self.shared.writer();
            (writer.last_drained, writer.stalled_since.filter(|_| !writer.sender_waits))
        };
        if self.owes_control && stalled_since.is_some_and(|since| now >= since + self.write_deadline) {
            return self.finish(ConnectionEnd::Stalled(self.write_deadline));
        }
        let keepalive = self.keepalive.as_mut()?;
        if let Some(drained) = last_drained {
            keepalive.record_activity(drained);
        }
        match keepalive.action_at(now) {
            KeepaliveAction::Gone(silent) => return self.finish(ConnectionEnd::Silent(silent)),
            KeepaliveAction::Ping => {
                self.shared.writer().queue.ping();
                self.owes_control = true;
            }
            KeepaliveAction::Wait => {}
        }
        let next = keepalive.next_deadline();
        self.timer.as_mut().reset(next);
        None
    }

    /// The stream ended: in good order between messages, and for lines also after a last one.
    fn handle_end_of_stream(&mut self) -> Option<Received> {
        match self.decoder.finish() {
            Ok(Some(incoming)) => self.handle_decoded(incoming),
            Ok(None) if self.decoder.at_boundary() => self.finish(ConnectionEnd::EndOfStream),
            Ok(None) => {
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the stream ended inside a message");
                self.finish(ConnectionEnd::Lost(error))
            }
            Err(violation) => self.reject_peer(violation),
        }
    }

    fn handle_while_closing(&mut self, event: Event) -> Option<Received> {
        match event {
            Event::Read(Ok(1..)) => {
                self.decoder.discard();
                None
            }
            // The peer half-closed; our close frame may still reach it. The read half has
            // ended, and polling it again would make a busy loop.
            Event::Read(_) if self.owes_control => {
                self.io = Box::new(PendingReader);
                None
            }
            Event::Control(Ok(())) if matches!(self.phase, Phase::Closing(Closing::Violation(_))) => {
                let mut writer = self.shared.writer();
                if !writer.sender_waits {
                    writer.shut_down_now();
                }
                None
            }
            Event::Read(_) | Event::Control(_) | Event::Timer => self.finish_close(),
        }
    }

    fn finish_close(&mut self) -> Option<Received> {
        match std::mem::replace(&mut self.phase, Phase::Over(None)) {
            Phase::Closing(Closing::ByPeer(reason)) => Some(Received::Closed(ConnectionEnd::ByPeer(reason))),
            Phase::Closing(Closing::Violation(reason)) => {
                let told = Received::Malformed { reason: reason.to_string() };
                self.phase = Phase::Over(Some(ConnectionEnd::Violation(reason)));
                Some(told)
            }
            other => {
                self.phase = other;
                None
            }
        }
    }

    fn finish(&mut self, end: ConnectionEnd) -> Option<Received> {
        self.phase = Phase::Over(None);
        Some(Received::Closed(end))
    }
}

/// A read half from which nothing comes any more.
struct PendingReader;

impl tokio::io::AsyncRead for PendingReader {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut tokio::io::ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}
