//! Which servers a client trusts over `wss://`, and the certificate that it shows them.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme};

use super::{Fingerprint, TlsError, provider, read_certificates, read_key, read_roots};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    pub trust: TrustedServers,
    /// For servers that ask for one.
    pub certificate: Option<ClientCertificate>,
}

/// Which servers are trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TrustedServers {
    /// Those that the machine's own store trusts.
    #[default]
    System,
    /// Those with a certificate of these authorities, and no other: a PEM file.
    Ca(PathBuf),
    /// The one with this certificate. Nothing else is asked: neither its name nor its age nor who signed it.
    Fingerprint(Fingerprint),
}

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// How a client makes `wss://` connections; cheap to clone.
#[derive(Clone)]
pub struct ClientTls(pub(crate) Arc<ClientConfig>);

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls")
    }
}

impl From<Arc<ClientConfig>> for ClientTls {
    /// For callers that have a configuration of rustls already.
    fn from(config: Arc<ClientConfig>) -> Self {
        Self(config)
    }
}

impl ClientTls {
    /// Reads the files that the options name.
    pub fn load(options: &TlsOptions) -> Result<Self, TlsError> {
        let verifier: Arc<dyn ServerCertVerifier> = match &options.trust {
            TrustedServers::System => {
                let verifier = rustls_platform_verifier::Verifier::new(provider()).map_err(TlsError::SystemRoots)?;
                Arc::new(ExplainedVerifier(Arc::new(verifier)))
            }
            TrustedServers::Ca(path) => {
                let verifier = WebPkiServerVerifier::builder_with_provider(read_roots(path)?, provider()).build();
                let invalid = |problem: String| TlsError::InvalidCa { path: path.clone(), problem };
                Arc::new(ExplainedVerifier(verifier.map_err(|error| invalid(error.to_string()))?))
            }
            TrustedServers::Fingerprint(fingerprint) => {
                let algorithms = provider().signature_verification_algorithms;
                Arc::new(ExplainedVerifier(Arc::new(PinnedCertificate { fingerprint: *fingerprint, algorithms })))
            }
        };
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        // "Dangerous" are verifiers that accept what they should not. Ours only ever refuse more, or by another rule.
        let builder = builder.map_err(TlsError::Setup)?.dangerous().with_custom_certificate_verifier(verifier);
        let config = match &options.certificate {
            None => builder.with_no_client_auth(),
            Some(ClientCertificate { certificate, key }) => {
                let made = builder.with_client_auth_cert(read_certificates(certificate)?, read_key(key)?);
                made.map_err(|source| TlsError::Mismatch {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    source,
                })?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    /// What is used when the caller brings nothing. Loading a trust store takes milliseconds, and a client reconnects, so
    /// it is loaded once; a change of the store needs a restart.
    pub(crate) fn system() -> Result<Self, TlsError> {
        static LOADED: OnceLock<ClientTls> = OnceLock::new();
        match LOADED.get() {
            Some(loaded) => Ok(loaded.clone()),
            None => {
                let loaded = Self::load(&TlsOptions::default())?;
                Ok(LOADED.get_or_init(|| loaded).clone())
            }
        }
    }
}

/// Accepts one certificate, whoever signed it. That the server has its key is checked all the same.
#[derive(Debug)]
struct PinnedCertificate {
    fingerprint: Fingerprint,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if Fingerprint::of(end_entity) == self.fingerprint {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Says of a certificate that another verifier has refused which one it was, so that the user can compare and pin it.
#[derive(Debug)]
struct ExplainedVerifier(Arc<dyn ServerCertVerifier>);

impl ServerCertVerifier for ExplainedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        verified.map_err(|error| {
            let problem = match error {
                // What the verifier of pins says.
                rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                    "it is not the one whose fingerprint was given".to_owned()
                }
                rustls::Error::InvalidCertificate(problem) => problem.to_string(),
                other => other.to_string(),
            };
            let refused = RefusedCertificate { fingerprint: Fingerprint::of(end_entity), problem };
            CertificateError::Other(OtherError(Arc::new(refused))).into()
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "the server's certificate is not trusted ({problem}): give --tls-ca, or --tls-fingerprint {fingerprint} if that is \
     what the server printed when it started"
)]
struct RefusedCertificate {
    fingerprint: Fingerprint,
    problem: String,
}

/// Why TLS failed, in words that say what to do about it.
#[derive(Debug)]
pub(crate) enum TlsFailure {
    /// One side does not trust the other; trying again changes nothing.
    Certificate(String),
    Other(String),
}

impl TlsFailure {
    /// `None` if TLS has nothing to do with the error.
    pub(crate) fn find(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            // An I/O error names as its source not what it holds, but the source of that.
            let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            let error: &(dyn std::error::Error + 'static) = held.map_or(error, |held| held);
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Some(Self::explain(error));
            }
            next = error.source();
        }
        None
    }

    fn explain(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(refused))) => {
                Self::Certificate(refused.to_string())
            }
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
                let text = "the server asks for a certificate: give --tls-client-cert and --tls-client-key";
                Self::Certificate(text.to_owned())
            }
            rustls::Error::AlertReceived(
                AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::DecryptError,
            ) => Self::Certificate(format!(
                "the server does not accept our certificate ({error}): see --tls-client-cert"
            )),
            rustls::Error::InvalidMessage(_) => {
                Self::Other(format!("the server does not speak TLS there ({error}): is it ws://?"))
            }
            other => Self::Other(format!("TLS failed: {other}")),
        }
    }
}
