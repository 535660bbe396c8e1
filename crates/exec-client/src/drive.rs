//! Who is attached to the session, and who drives it.
//!
//! A session has one driver and any number of observers ([`crate::Options::role`]). An observer's environment reads, lists and
//! follows as any other; whatever would change something is refused by the server. Both are told who is attached as a state
//! that changes ([`RemoteEnvironment::attendance`]): a slow watcher misses steps in between, never the present.

use exec_wire::session::DriveParams;
pub use exec_wire::session::{AttachedClient, AttachedParams as Attendance, DriveStatus, Role};
use tokio::sync::watch;

use crate::environment::RemoteEnvironment;
use crate::error::CallError;

impl RemoteEnvironment {
    /// Who is attached, and every change of it. `None` until the server has told it; it never does to a client whose options
    /// name no role.
    pub fn attendance(&self) -> watch::Receiver<Option<Attendance>> {
        self.link().shared().attendance.subscribe()
    }

    /// What this client is to the session now; `None` if its options name no role.
    pub fn role(&self) -> Option<Role> {
        self.link().shared().lock().role
    }

    /// Asks the driver for the drive and waits for its answer. If nobody drives, it is granted at once.
    pub async fn ask_for_drive(&self) -> Result<DriveStatus, CallError> {
        self.drive(DriveParams::default()).await
    }

    /// Takes the drive from whoever has it. That client observes then, or loses its connection if it knows of no observers.
    pub async fn take_drive(&self) -> Result<DriveStatus, CallError> {
        self.drive(DriveParams { force: true, ..DriveParams::default() }).await
    }

    /// Hands our drive over to an observer, by its id in the attendance; we observe then.
    pub async fn hand_over_drive(&self, to: u64) -> Result<DriveStatus, CallError> {
        self.drive(DriveParams { to: Some(to), ..DriveParams::default() }).await
    }

    /// Keeps our drive, and tells so an observer that asks for it.
    pub async fn refuse_drive(&self, observer: u64) -> Result<DriveStatus, CallError> {
        self.drive(DriveParams { refuse: Some(observer), ..DriveParams::default() }).await
    }

    async fn drive(&self, params: DriveParams) -> Result<DriveStatus, CallError> {
        self.link().call(params).await.map(|result| result.status)
    }
}
