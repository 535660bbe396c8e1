//! TLS: the certificates that servers and clients show, and which of them are trusted.
//!
//! [`ServerTls`] is what a `wss://` listener needs, [`ClientTls`] what `connect` needs; both are loaded once, from files
//! or made here, and cannot fail later. All of it is rustls with the keys and ciphers of aws-lc-rs.
//!
//! Deliberately absent: revocation lists, renewal while we run, and any way to trust everybody.

mod client;
mod server;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};

pub use client::{ClientCertificate, ClientTls, TlsOptions, TrustedServers};
pub use server::{CertificateSource, ServerTls, ServerTlsOptions};

pub(crate) use client::TlsFailure;

/// The SHA-256 of a certificate as it goes over the wire (DER); what `openssl x509 -fingerprint -sha256` prints.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no fingerprint; expected `sha256:` and the 64 hex digits that `exec-server serve` prints")]
pub struct FingerprintError(String);

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// In either case, with or without the colons that openssl puts between bytes.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digest = || {
            let (name, digits) = text.split_once(':')?;
            let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
            let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
            if !name.eq_ignore_ascii_case("sha256") || !is_hex || digits.len() != 64 {
                return None;
            }
            let mut digest = [0; 32];
            for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
            }
            Some(Self(digest))
        };
        digest().ok_or_else(|| FingerprintError(text.to_owned()))
    }
}

/// Why certificates and keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read the {what} {}: {source}", path.display())]
    Unreadable { what: &'static str, path: PathBuf, source: io::Error },
    /// It is no PEM file, or has something else in it.
    #[error("there is no {what} in {}; expected a PEM file", path.display())]
    Missing { what: &'static str, path: PathBuf },
    #[error("the certificate {} and the key {} do not work together: {source}", certificate.display(), key.display())]
    Mismatch { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    #[error("the certificates in {} cannot be trusted by anybody: {problem}", path.display())]
    InvalidCa { path: PathBuf, problem: String },
    #[error("cannot make a certificate: {0}")]
    Generate(rcgen::Error),
    #[error("cannot keep the certificate in {}: {source}", path.display())]
    Keep { path: PathBuf, source: io::Error },
    /// The machine has no store of trusted certificates, or its format is unknown.
    #[error("cannot load the certificates that this machine trusts: {0}")]
    SystemRoots(rustls::Error),
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// The certificates in a PEM file, in their order; at least one.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificate";
    let text = std::fs::read(path).map_err(|source| TlsError::Unreadable { what, path: path.to_owned(), source })?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) | Err(_) => Err(TlsError::Missing { what, path: path.to_owned() }),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let what = "private key";
    let text = std::fs::read(path).map_err(|source| TlsError::Unreadable { what, path: path.to_owned(), source })?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::Missing { what, path: path.to_owned() })
}

fn read_roots(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| TlsError::InvalidCa { path: path.to_owned(), problem: error.to_string() })?;
    }
    Ok(Arc::new(roots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_we_and_as_openssl_print_it() {
        let printed = format!("sha256:{}", "0a".repeat(32));
        let fingerprint: Fingerprint = printed.parse().expect("as we print it");
        assert_eq!(fingerprint.to_string(), printed);
        assert_eq!(format!("SHA256:{}", ["0A"; 32].join(":")).parse(), Ok(fingerprint));
        for wrong in ["", "0a", &printed[7..], &printed[..70], &format!("{printed}0a"), &printed.replace('a', "g")] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(FingerprintError(wrong.to_owned())));
        }
    }
}
