//! Environments at the far end of a connection.

pub use exec_client::{
    CallError, ConnectFailure, Dial, LinkMetrics, LinkState, Options, RemoteEnvironment, TargetDial, connect,
};
pub use exec_transport::{
    ClientCertificate, ClientTls, ConnectError, ConnectOptions, ConnectUrlError, Connection, Fingerprint, Program,
    Target, TlsError, TlsOptions, TrustedServers,
};

/// Why [`connect_url`] did not connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectByUrlError {
    /// The URL is none that can be connected to.
    #[error(transparent)]
    Url(#[from] ConnectUrlError),
    /// Nobody answers there, or the answer is no.
    #[error(transparent)]
    Failed(#[from] ConnectFailure),
}

/// Connects to a `ws://`, `wss://` or `unix://` URL with default options. Must be called inside a tokio runtime.
pub async fn connect_url(url: &str) -> Result<RemoteEnvironment, ConnectByUrlError> {
    Ok(connect(url.parse()?, ConnectOptions::default(), Options::default()).await?)
}
