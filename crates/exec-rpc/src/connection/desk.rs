//! What the requests of a connection share: the way to its writer, and its bounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use exec_transport::Peer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::belongings::Belongings;
use crate::limits::LARGE_ANSWER_BYTES;
use crate::mailroom::{Post, PostBox};
use crate::server::Server;
use crate::session::{ConnectionId, Session};

/// What the requests of a connection share.
pub(crate) struct Desk {
    pub(super) id: ConnectionId,
    pub(super) server: Arc<Server>,
    pub(super) peer: Peer,
    pub(super) posts: PostBox,
    /// Requests that run at once.
    pub(super) turns: Arc<Semaphore>,
    /// Bytes of large answers in memory.
    pub(super) room: Arc<Semaphore>,
    pub(super) jsonrpc: AtomicBool,
    /// Whether the transport can carry binary frames, and whether the client has asked for them.
    pub(super) carries_binary: bool,
    pub(super) binary: AtomicBool,
    /// The client's own word for its requests; unset if it has none.
    pub(super) scope: OnceLock<Arc<str>>,
    pub(super) belongings: Belongings,
}

impl Desk {
    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Posts to the connection that has the session by now, if that is no longer this one.
    pub(crate) fn post_to_successor(&self, session: &Session, post: Post) {
        if let Some(successor) = session.holder().filter(|(holder, _)| *holder != self.id) {
            let _ = successor.1.send(post);
        }
    }

    /// The client's own word for its requests.
    pub(crate) fn scope(&self) -> Option<&Arc<str>> {
        self.scope.get()
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// What ends with this connection.
    pub(crate) fn belongings(&self) -> &Belongings {
        &self.belongings
    }

    /// Whether the peer writes `jsonrpc`.
    pub(crate) fn jsonrpc(&self) -> bool {
        self.jsonrpc.load(Ordering::Relaxed)
    }

    /// Whether blocks travel as raw bytes.
    pub(crate) fn binary(&self) -> bool {
        self.binary.load(Ordering::Relaxed)
    }

    /// Nobody takes posts any more once the connection is over; then they do not matter.
    pub(crate) fn post(&self, post: Post) {
        let _ = self.posts.send(post);
    }

    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().acquire_owned().await.ok()
    }

    /// Room for a large answer; waits until others are on their way.
    pub(crate) async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        // As base64 it takes a third more.
        let kib = (bytes / 3 * 4).min(LARGE_ANSWER_BYTES) >> 10;
        self.room.clone().acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX)).await.ok()
    }
}
