//! The certificate of a `wss://` listener: from files, or self-signed; and which client certificates it asks for.
//!
//! A self-signed certificate is worth what its fingerprint is: clients pin that, so it must outlive the server. Where there
//! is a folder to keep it in, certificate and key stay there, in one file of mode 0600, and are used again as they are.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use super::{Fingerprint, TlsError, provider, read_certificates, read_key, read_roots};
use crate::own_names::own_names;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTlsOptions {
    pub certificate: CertificateSource,
    /// PEM file of certificates; a client that has none of theirs is refused in the handshake. `None` asks for none.
    pub client_ca: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// PEM files: the certificate with the chain that leads to a root, and its key.
    Files { certificate: PathBuf, key: PathBuf },
    /// Made here for these addresses, `localhost` and the machine's own names.
    SelfSigned {
        addresses: Vec<IpAddr>,
        /// The file that keeps certificate and key. Without it each start makes new ones.
        kept_in: Option<PathBuf>,
    },
}

/// What a `wss://` listener shows to its clients and asks of them.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    asks_for_certificates: bool,
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads the files that the options name, and makes what they ask for.
    pub fn load(options: &ServerTlsOptions) -> Result<Self, TlsError> {
        let (chain, key) = match &options.certificate {
            CertificateSource::Files { certificate, key } => (read_certificates(certificate)?, read_key(key)?),
            CertificateSource::SelfSigned { addresses, kept_in } => self_signed(addresses, kept_in.as_deref())?,
        };
        let fingerprint = Fingerprint::of(chain.first().expect("a chain has a certificate, or it was refused above"));
        let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(TlsError::Setup)?;
        let builder = match &options.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(read_roots(path)?, provider()).build();
                let invalid = |problem: String| TlsError::InvalidCa { path: path.clone(), problem };
                builder.with_client_cert_verifier(verifier.map_err(|error| invalid(error.to_string()))?)
            }
        };
        let config = builder.with_single_cert(chain, key).map_err(|source| match &options.certificate {
            CertificateSource::Files { certificate, key } => {
                TlsError::Mismatch { certificate: certificate.clone(), key: key.clone(), source }
            }
            CertificateSource::SelfSigned { .. } => TlsError::Setup(source),
        })?;
        Ok(Self { config: Arc::new(config), fingerprint, asks_for_certificates: options.client_ca.is_some() })
    }

    /// What clients pin.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Whether a client needs a certificate to get in.
    pub fn asks_for_certificates(&self) -> bool {
        self.asks_for_certificates
    }

    pub(crate) fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        Arc::clone(&self.config).into()
    }
}

type CertifiedKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn self_signed(addresses: &[IpAddr], kept_in: Option<&Path>) -> Result<CertifiedKey, TlsError> {
    if let Some(path) = kept_in
        && path.exists()
    {
        return Ok((read_certificates(path)?, read_key(path)?));
    }
    let pem = generate(addresses).map_err(TlsError::Generate)?;
    if let Some(path) = kept_in {
        keep(path, &pem).map_err(|source| TlsError::Keep { path: path.to_owned(), source })?;
    }
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).expect("it was written above");
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("it was written above");
    Ok((vec![certificate], key))
}

/// A new certificate and its key, as PEM.
fn generate(addresses: &[IpAddr]) -> Result<String, rcgen::Error> {
    // Nobody connects to `0.0.0.0`; who listens there is reached on the loopback, too.
    let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
    let reachable = addresses.iter().copied().filter(|address| !address.is_unspecified());
    let mut names: Vec<String> = reachable.chain(loopback).map(|address| address.to_string()).collect();
    names.push("localhost".to_owned());
    // A host name may have characters that a certificate cannot carry.
    let is_plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    names.extend(own_names().into_iter().filter(is_plain));
    names.sort();
    names.dedup();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "exec-server");
    let key = KeyPair::generate()?;
    Ok(params.self_signed(&key)?.pem() + &key.serialize_pem())
}

/// Writes beside the file and renames, so that a server that is killed leaves no half of a key.
fn keep(path: &Path, pem: &str) -> io::Result<()> {
    let mut beside = path.to_owned().into_os_string();
    beside.push(".new");
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(pem.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}
