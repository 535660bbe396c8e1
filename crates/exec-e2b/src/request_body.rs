//! Bodies of requests, bounded in size, in time and in what all of them together may hold.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Code, ServiceError};
use crate::limits::{BODY_IDLE_TIMEOUT, MESSAGE_BYTES, MESSAGES_BYTES};

pub(crate) use exec_http_body::RequestBody;

/// What requests that are held whole may take together, in bytes.
#[derive(Clone)]
pub(crate) struct MessageBudget(Arc<Semaphore>);

/// A body that was read whole; it counts as long as this lives.
pub(crate) struct HeldMessage {
    pub(crate) bytes: Bytes,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Default for MessageBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MESSAGES_BYTES)))
    }
}

impl MessageBudget {
    /// Reads the whole body.
    pub(crate) async fn read(&self, body: RequestBody) -> Result<HeldMessage, ServiceError> {
        let mut pieces = BodyPieces::new(body);
        let mut bytes = BytesMut::new();
        let mut permit: Option<OwnedSemaphorePermit> = None;
        while let Some(piece) = pieces.next().await? {
            if bytes.len() + piece.len() > MESSAGE_BYTES {
                return Err(too_large());
            }
            self.take(&mut permit, piece.len())?;
            bytes.extend_from_slice(&piece);
        }
        Ok(HeldMessage { bytes: bytes.freeze(), _permit: permit })
    }

    /// Counts `more` bytes; a request that finds no space is refused rather than kept waiting with what it holds.
    pub(crate) fn take(&self, permit: &mut Option<OwnedSemaphorePermit>, more: usize) -> Result<(), ServiceError> {
        let more = u32::try_from(more).map_err(|_| too_large())?;
        let taken = Arc::clone(&self.0).try_acquire_many_owned(more).map_err(|_| {
            ServiceError::new(Code::ResourceExhausted, "too many large requests at once: send them one after another")
        })?;
        match permit {
            Some(permit) => permit.merge(taken),
            None => *permit = Some(taken),
        }
        Ok(())
    }
}

fn too_large() -> ServiceError {
    let message = format!("a message of more than {MESSAGE_BYTES} bytes is refused: stream it, or send it in parts");
    ServiceError::new(Code::ResourceExhausted, message)
}

/// The pieces of a body as they come.
pub(crate) struct BodyPieces {
    body: RequestBody,
    patient: bool,
}

impl BodyPieces {
    pub(crate) fn new(body: RequestBody) -> Self {
        Self { body, patient: false }
    }

    /// Of a body whose pieces may be long in coming.
    pub(crate) fn patient(body: RequestBody) -> Self {
        Self { body, patient: true }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ServiceError> {
        loop {
            let frame = match self.patient {
                true => self.body.frame().await,
                false => tokio::time::timeout(BODY_IDLE_TIMEOUT, self.body.frame()).await.map_err(|_| {
                    let message = format!("nothing of the body came for {} s", BODY_IDLE_TIMEOUT.as_secs());
                    ServiceError::new(Code::DeadlineExceeded, message)
                })?,
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(ServiceError::invalid(format!("the body broke off: {error}"))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                    _ => {}
                },
            }
        }
    }
}
