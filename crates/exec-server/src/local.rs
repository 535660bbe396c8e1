//! This machine as an environment, inside your own program.

pub use exec_local::{KeeperChoice, LocalEnvironment, LocalOptions, OpenError, descriptors};

/// Opens this machine with default [`LocalOptions`]. Must be called inside a tokio runtime.
///
/// Everything that is started ends with [`LocalEnvironment::end`], and at the latest with this program.
pub async fn open_local() -> Result<LocalEnvironment, OpenError> {
    LocalEnvironment::open(LocalOptions::default()).await
}
