//! What the requests of one connection share: its writer, its bounds, and what was agreed in the handshake.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use exec_env::Files;
use exec_transport::Peer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ceiling::Permissions;
use crate::limits::{LARGE_RESPONSE_BYTES, UNCOUNTED_BYTES};
use crate::network::Questions;
use crate::resources::ConnectionResources;
use crate::routing::NamedEnvironment;
use crate::server::Server;
use crate::session::{ConnectionId, Session};
use crate::writer::{Coalesced, WriterCommand, WriterHandle};

pub(crate) struct ConnectionShared {
    pub(super) id: ConnectionId,
    pub(crate) server: Arc<Server>,
    pub(crate) peer: Peer,
    /// Whom its token names; `None` if it needed none.
    pub(crate) subject: Option<String>,
    /// What the server and the token of the connection permit.
    pub(crate) permissions: Permissions,
    /// The files of each environment as far as the permissions go, with a share of its own in what they can do at once; from
    /// the first call on.
    pub(super) files: Mutex<Vec<(NamedEnvironment, Arc<dyn Files>)>>,
    pub(super) writer: WriterHandle,
    /// What the writer is told of which only the last state counts.
    pub(crate) news: Arc<Coalesced>,
    /// One permit per request that may run at the same time.
    pub(super) run_permits: Arc<Semaphore>,
    /// One permit per KiB of large responses that may be in memory.
    pub(super) response_memory: Arc<Semaphore>,
    /// One permit per byte of HTTP bodies that are being read whole, which may take as long as their sender wants.
    pub(super) body_memory: Arc<Semaphore>,
    pub(super) jsonrpc: AtomicBool,
    /// Whether the transport can carry binary frames.
    pub(super) carries_binary: bool,
    /// Whether the transport can carry binary frames and the client has asked for them.
    pub(super) binary_frames: AtomicBool,
    /// The scope in which this client's request ids are unique; unset if it named none.
    pub(super) request_scope: OnceLock<Arc<str>>,
    pub(crate) resources: ConnectionResources,
    /// What we ask the client.
    pub(crate) questions: Questions,
}

impl std::fmt::Debug for ConnectionShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConnectionShared({:?})", self.id)
    }
}

impl ConnectionShared {
    pub(crate) fn files(&self, environment: &NamedEnvironment) -> Arc<dyn Files> {
        let mut known = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, files)) = known.iter().find(|(of, _)| of.is_same(environment)) {
            return files.clone();
        }
        let ceilings = self.permissions.file_ceilings();
        let files = environment.environment.files_for_caller();
        let files = ceilings.into_iter().fold(files, |files, ceiling| files.under_ceiling(Arc::new(ceiling)));
        // An id may mean another environment by now, whose files take the place of the old ones.
        known.retain(|(of, _)| of.id != environment.id);
        known.push((environment.clone(), files.clone()));
        files
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.id
    }

    pub(crate) fn writer(&self) -> (ConnectionId, &WriterHandle) {
        (self.id, &self.writer)
    }

    /// Whether its client drives the session, and may change something.
    pub(crate) fn drives(&self) -> bool {
        self.news.drives()
    }

    pub(crate) fn set_drives(&self, drives: bool) {
        if self.news.set_drives(drives) {
            self.send(WriterCommand::RoleChanged);
        }
    }

    /// Sends to the writer of the connection that has taken over the session, if there is one.
    pub(crate) fn send_to_successor(&self, session: &Session, command: WriterCommand) {
        if let Some((_, successor)) = session.current_writer().filter(|(current, _)| *current != self.id) {
            let _ = successor.send(command);
        }
    }

    pub(crate) fn request_scope(&self) -> Option<&Arc<str>> {
        self.request_scope.get()
    }

    /// Whether the peer writes the member `jsonrpc`; then so do we.
    pub(crate) fn jsonrpc(&self) -> bool {
        self.jsonrpc.load(Ordering::Relaxed)
    }

    pub(crate) fn uses_binary_frames(&self) -> bool {
        self.binary_frames.load(Ordering::Relaxed)
    }

    /// Hands a command to the writer. When the writer has ended, so has the connection, and nobody misses the command.
    pub(crate) fn send(&self, command: WriterCommand) {
        let _ = self.writer.send(command);
    }

    pub(crate) async fn acquire_run_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.run_permits.clone().acquire_owned().await.ok()
    }

    /// Memory for a piece of an HTTP body that is read as a whole; `None` if other bodies take it all.
    pub(crate) fn try_reserve_body_memory(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.body_memory.clone().try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }

    /// Reserves memory for a response, unless it is small.
    pub(crate) async fn reserve_if_large(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes > UNCOUNTED_BYTES { self.reserve_response_memory(bytes).await } else { None }
    }

    /// Reserves memory for a large response; waits until enough earlier ones were sent.
    pub(crate) async fn reserve_response_memory(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        // As base64 it takes a third more.
        self.reserve_encoded(bytes.saturating_add(bytes / 3)).await
    }

    /// Reserves memory for a response that is a message of so many bytes. The largest takes all there is.
    pub(crate) async fn reserve_encoded(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kib = bytes.min(LARGE_RESPONSE_BYTES).div_ceil(1 << 10);
        self.response_memory.clone().acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX)).await.ok()
    }
}
