//! Messages in, and everything a connection does by itself: answering pings, pinging, noticing
//! silence, closing in good order. All of it is driven by [`StreamReceiver::next`].
//!
//! ```text
//! Open ──violation──► Parting(Malformed) ──► Over
//!   │ ───peer's close─► Parting(ByPeer) ───► Over
//!   └────end, error, silence, stall ───────► Over
//! ```
//!
//! Dropping the future of `next` loses nothing: what was read is in the decoder, and where we are
//! is in `phase`.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::keepalive::{Keepalive, Turn};
use crate::limits::{CLOSE_DEADLINE, Limits};
use crate::message::{CloseReason, Closed, Received};

use super::writer::Link;
use super::{Decoding, Incoming, ReadIo};

/// The receiving half over a byte stream.
pub(crate) struct StreamReceiver {
    io: ReadIo,
    decoding: Decoding,
    link: Arc<Link>,
    /// WebSocket only; lines have no ping.
    keepalive: Option<Keepalive>,
    timer: Pin<Box<Sleep>>,
    write_deadline: Duration,
    /// We put a control frame into the outbox and have not seen it leave.
    owes_control: bool,
    phase: Phase,
}

enum Phase {
    Open,
    /// The close frame leaves, then this is reported.
    Parting(Parting),
    /// `Some` is reported once; from then on, the end of the stream.
    Over(Option<Closed>),
}

enum Parting {
    /// The peer said goodbye; our answer is leaving.
    ByPeer(CloseReason),
    /// The peer is being cut off. What it still sends is read and dropped, because closing a
    /// socket with unread bytes resets it, and a reset may overtake our close frame.
    Violation(CloseReason),
}

/// The one thing that happened.
enum Event {
    Read(io::Result<usize>),
    Control(io::Result<()>),
    Timer,
}

impl std::fmt::Debug for StreamReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamReceiver").field("decoding", &self.decoding).finish_non_exhaustive()
    }
}

impl StreamReceiver {
    pub(crate) fn new(io: ReadIo, decoding: Decoding, link: Arc<Link>, limits: &Limits) -> Self {
        let now = Instant::now();
        let keepalive =
            decoding.is_websocket().then(|| Keepalive::new(limits.ping_interval, limits.silence_limit, now));
        let first_turn = keepalive.as_ref().map_or(now + limits.ping_interval, Keepalive::next_turn);
        Self {
            io,
            decoding,
            link,
            keepalive,
            timer: Box::pin(sleep_until(first_turn)),
            write_deadline: limits.write_deadline,
            owes_control: false,
            phase: Phase::Open,
        }
    }

    pub(crate) async fn next(&mut self) -> Received {
        loop {
            let outcome = match &mut self.phase {
                Phase::Over(closed) => return Received::Closed(closed.take().unwrap_or(Closed::EndOfStream)),
                Phase::Open => match self.decoding.next() {
                    Ok(None) => None,
                    Ok(Some(incoming)) => match self.understand(incoming) {
                        // What came behind a ping or a pong may be here already, and then the socket has nothing to
                        // wake us for. The pong leaves first: nobody knows when we are asked again.
                        None if matches!(self.phase, Phase::Open) => {
                            poll_fn(|cx| self.offer_control(cx)).await;
                            continue;
                        }
                        understood => understood,
                    },
                    Err(violation) => self.cut_off(violation),
                },
                Phase::Parting(_) => None,
            };
            if let Some(received) = outcome {
                return received;
            }
            if matches!(self.phase, Phase::Over(_)) {
                continue;
            }
            let event = poll_fn(|cx| self.poll_event(cx)).await;
            let outcome = match self.phase {
                Phase::Parting(_) => self.part(event),
                _ => self.handle(event),
            };
            if let Some(received) = outcome {
                return received;
            }
        }
    }

    /// Sends what is owed if the socket takes it now. Never waits: if not now, then with the next event.
    fn offer_control(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // A broken write half shows on the read half too.
        if self.owes_control && self.link.writer().poll_control(cx).is_ready() {
            self.owes_control = false;
        }
        Poll::Ready(())
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if self.owes_control {
            let poll = self.link.writer().poll_control(cx);
            match poll {
                Poll::Ready(result) => {
                    self.owes_control = false;
                    return Poll::Ready(Event::Control(result));
                }
                Poll::Pending => self.watch_the_stall(),
            }
        }
        let mut space = self.decoding.space();
        if let Poll::Ready(result) = pin!(self.io.read_buf(&mut space)).poll(cx) {
            return Poll::Ready(Event::Read(result));
        }
        self.decoding.rest();
        // Lines have no pings; their timer only matters for a farewell.
        if self.keepalive.is_none() && matches!(self.phase, Phase::Open) {
            return Poll::Pending;
        }
        self.timer.as_mut().poll(cx).map(|()| Event::Timer)
    }

    /// While a control frame of ours is stuck, the timer also watches the write deadline.
    fn watch_the_stall(&mut self) {
        let stalled_since = self.link.writer().stalled_since;
        if let Some(since) = stalled_since
            && since + self.write_deadline < self.timer.deadline()
        {
            self.timer.as_mut().reset(since + self.write_deadline);
        }
    }

    fn understand(&mut self, incoming: Incoming) -> Option<Received> {
        match incoming {
            Incoming::Message(message) => Some(Received::Message(message)),
            Incoming::Ping(payload) => {
                self.link.writer().outbox.pong(payload);
                self.owes_control = true;
                None
            }
            Incoming::Pong => None,
            Incoming::Close(reason) => {
                let answer = CloseReason::new(reason.code, "");
                self.begin_parting(answer, Parting::ByPeer(reason));
                None
            }
        }
    }

    fn cut_off(&mut self, reason: CloseReason) -> Option<Received> {
        self.decoding.discard();
        self.begin_parting(reason.clone(), Parting::Violation(reason));
        // Lines have no close frame, so there is nobody to tell and nothing to wait for.
        if self.decoding.is_websocket() { None } else { self.finish_parting() }
    }

    fn begin_parting(&mut self, say: CloseReason, parting: Parting) {
        self.link.writer().outbox.close(say);
        self.owes_control = true;
        self.timer.as_mut().reset(Instant::now() + CLOSE_DEADLINE);
        self.phase = Phase::Parting(parting);
    }

    /// One event of an open connection.
    fn handle(&mut self, event: Event) -> Option<Received> {
        match event {
            Event::Read(Ok(0)) => self.ended(),
            Event::Read(Ok(read_bytes)) => {
                self.decoding.filled(read_bytes);
                if let Some(keepalive) = &mut self.keepalive {
                    keepalive.heard(Instant::now());
                }
                None
            }
            // A broken write half shows on the read half too, with whatever the peer said last.
            Event::Control(_) => None,
            Event::Read(Err(error)) => self.over(Closed::Lost(error)),
            Event::Timer => self.take_turn(Instant::now()),
        }
    }

    fn take_turn(&mut self, now: Instant) -> Option<Received> {
        let (last_drained, stalled_since) = {
            let writer = self.link.writer();
            (writer.last_drained, writer.stalled_since.filter(|_| !writer.sender_waits))
        };
        if self.owes_control && stalled_since.is_some_and(|since| now >= since + self.write_deadline) {
            return self.over(Closed::Stalled(self.write_deadline));
        }
        let keepalive = self.keepalive.as_mut()?;
        if let Some(drained) = last_drained {
            keepalive.heard(drained);
        }
        match keepalive.turn(now) {
            Turn::Gone(silent) => return self.over(Closed::Silent(silent)),
            Turn::Ping => {
                self.link.writer().outbox.ping();
                self.owes_control = true;
            }
            Turn::Rest => {}
        }
        let next = keepalive.next_turn();
        self.timer.as_mut().reset(next);
        None
    }

    /// The stream ended: in good order between messages, and for lines also after a last one.
    fn ended(&mut self) -> Option<Received> {
        match &mut self.decoding {
            Decoding::WebSocket(decoder) if decoder.at_boundary() => self.over(Closed::EndOfStream),
            Decoding::WebSocket(_) => {
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the stream ended inside a message");
                self.over(Closed::Lost(error))
            }
            Decoding::Lines(decoder) => match decoder.finish() {
                Ok(Some(incoming)) => self.understand(incoming),
                Ok(None) => self.over(Closed::EndOfStream),
                Err(violation) => self.cut_off(violation),
            },
        }
    }

    /// One event while we part.
    fn part(&mut self, event: Event) -> Option<Received> {
        match event {
            Event::Read(Ok(1..)) => {
                self.decoding.discard();
                None
            }
            // The peer half-closed; our close frame may still reach it. The read half has nothing
            // more to give, and must not be polled in a circle.
            Event::Read(_) if self.owes_control => {
                self.io = Box::new(Silence);
                None
            }
            Event::Control(Ok(())) if matches!(self.phase, Phase::Parting(Parting::Violation(_))) => {
                let mut writer = self.link.writer();
                if !writer.sender_waits {
                    writer.abandon();
                }
                None
            }
            Event::Read(_) | Event::Control(_) | Event::Timer => self.finish_parting(),
        }
    }

    fn finish_parting(&mut self) -> Option<Received> {
        match std::mem::replace(&mut self.phase, Phase::Over(None)) {
            Phase::Parting(Parting::ByPeer(reason)) => Some(Received::Closed(Closed::ByPeer(reason))),
            Phase::Parting(Parting::Violation(reason)) => {
                let told = Received::Malformed { reason: reason.to_string() };
                self.phase = Phase::Over(Some(Closed::Violation(reason)));
                Some(told)
            }
            other => {
                self.phase = other;
                None
            }
        }
    }

    fn over(&mut self, closed: Closed) -> Option<Received> {
        self.phase = Phase::Over(None);
        Some(Received::Closed(closed))
    }
}

/// A read half that never says anything again.
struct Silence;

impl tokio::io::AsyncRead for Silence {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut tokio::io::ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}
