//! TLS for `wss://`: the machine's own trust store, rustls with aws-lc.

use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_platform_verifier::BuilderVerifierExt;

/// The configuration used when the caller brings none. Loading a trust store takes milliseconds,
/// and a client reconnects, so it is loaded once; a change of the store needs a restart.
pub(crate) fn platform_config() -> Result<Arc<ClientConfig>, rustls::Error> {
    static LOADED: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = LOADED.get() {
        return Ok(Arc::clone(config));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    Ok(Arc::clone(LOADED.get_or_init(|| Arc::new(config))))
}
