//! One connection, carried: bytes in both directions, each with its own end.
//!
//! The end of a direction is passed on behind its last byte. If either side breaks off, so does the other: an end that nobody
//! has sent would make half a file look like a whole one.

use exec_env::streams::{ByteStream, StreamError};

/// How one direction ended.
enum Direction {
    Finished,
    /// Its source broke off.
    Broken(StreamError),
    /// Its destination takes no more. What comes from there may still be read.
    Refused(StreamError),
}

/// A stream whose other end sees a reset, unless it was carried to its end: also if whoever carries it is stopped.
pub(super) struct ResetUnlessWhole {
    stream: Box<dyn ByteStream>,
    is_whole: bool,
}

impl ResetUnlessWhole {
    pub(super) fn new(stream: Box<dyn ByteStream>) -> Self {
        Self { stream, is_whole: false }
    }
}

impl Drop for ResetUnlessWhole {
    fn drop(&mut self) {
        if !self.is_whole {
            self.stream.reset();
        }
    }
}

/// Carries until both directions have ended.
pub(super) async fn relay(mut one: ResetUnlessWhole, mut other: ResetUnlessWhole) -> Result<(), StreamError> {
    carry(&*one.stream, &*other.stream).await?;
    (one.is_whole, other.is_whole) = (true, true);
    Ok(())
}

async fn carry(one: &dyn ByteStream, other: &dyn ByteStream) -> Result<(), StreamError> {
    let forth = pump(one, other);
    let back = pump(other, one);
    tokio::pin!(forth, back);
    let (first, second) = tokio::select! {
        ended = &mut forth => match ended {
            Direction::Broken(error) => return Err(error),
            ended => (ended, back.await),
        },
        ended = &mut back => match ended {
            Direction::Broken(error) => return Err(error),
            ended => (ended, forth.await),
        },
    };
    for direction in [first, second] {
        if let Direction::Broken(error) | Direction::Refused(error) = direction {
            return Err(error);
        }
    }
    Ok(())
}

async fn pump(from: &dyn ByteStream, to: &dyn ByteStream) -> Direction {
    loop {
        let bytes = match from.read().await {
            Ok(bytes) => bytes,
            Err(error) => return Direction::Broken(error),
        };
        let is_end = bytes.is_empty();
        let passed_on = if is_end { to.finish().await } else { to.write(bytes).await };
        match passed_on {
            Err(error) => return Direction::Refused(error),
            Ok(()) if is_end => return Direction::Finished,
            Ok(()) => {}
        }
    }
}
