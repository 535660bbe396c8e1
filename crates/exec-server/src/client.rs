//! Environments at the far end of a connection.

pub use exec_client::bootstrap::{
    BootstrapDial, BootstrapOptions, BootstrapTarget, BootstrapTargetError, Progress, ProgressSink,
};
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
    /// The URL names no machine, container or pod.
    #[error(transparent)]
    BootstrapTarget(#[from] BootstrapTargetError),
    /// Nobody answers there, or the answer is no.
    #[error(transparent)]
    Failed(#[from] ConnectFailure),
}

/// Connects to a `ws://`, `wss://` or `unix://` URL with default options. Must be called inside a tokio runtime.
///
/// With `ssh://[USER@]HOST[:PORT]`, `docker://NAME`, `podman://NAME` or `kubectl://POD`, exec-server is brought there if need
/// be, and the durable server of the account there is used: see [`BootstrapOptions`] for which binary that is.
pub async fn connect_url(url: &str) -> Result<RemoteEnvironment, ConnectByUrlError> {
    connect_url_with(url, ConnectOptions::default(), BootstrapOptions::default(), Options::default()).await
}

/// The same with options: a bearer token (which places that ssh and its like lead to do not need), the binary that is brought
/// there (which only they need), a session to resume, time limits.
pub async fn connect_url_with(
    url: &str,
    transport: ConnectOptions,
    bootstrap: BootstrapOptions,
    options: Options,
) -> Result<RemoteEnvironment, ConnectByUrlError> {
    if BootstrapTarget::is_meant_by(url) {
        let dial = BootstrapDial::new(url.parse()?, bootstrap);
        return Ok(RemoteEnvironment::open(std::sync::Arc::new(dial), options).await?);
    }
    Ok(connect(url.parse()?, transport, options).await?)
}
