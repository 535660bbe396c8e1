//! Who may upgrade: everybody, whoever has a capability token, or a signed one: with a shared secret (HS256), or scoped (EdDSA).
//!
//! [`AuthSettings`] holds the flags; [`Auth::from_settings`] checks them once, at start, with Codex's error texts.
//! Afterwards [`Auth`] only accepts or refuses. Tokens are compared by their
//! digests in constant time; no token and no secret is ever logged or shown by `Debug`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::HeaderValue;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::connection::Identity;
use crate::token::{self, Exposure, Grant, SecretFileError, TokenClaims, TokenError};

/// Shorter secrets can be guessed from one signed token.
const SECRET_MIN_BYTES: usize = 32;

/// How far the clocks of signer and server may differ.
const CLOCK_SKEW_SECONDS: u64 = 30;

/// The authentication flags as they were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthSettings {
    /// `--ws-auth`
    pub mode: Option<AuthMode>,
    /// `--ws-token-file`
    pub token_file: Option<PathBuf>,
    /// `--ws-token-sha256`
    pub token_sha256: Option<String>,
    /// `--ws-shared-secret-file`
    pub shared_secret_file: Option<PathBuf>,
    /// `--ws-public-key`
    pub public_key_file: Option<PathBuf>,
    /// `--ws-issuer`
    pub issuer: Option<String>,
    /// `--ws-audience`
    pub audience: Option<String>,
    /// `--ws-max-clock-skew-seconds`
    pub max_clock_skew_seconds: Option<u64>,
}

/// The value of `--ws-auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// `capability-token`: whoever knows the token may enter.
    CapabilityToken,
    /// `signed-bearer-token`: a JWT signed with the shared secret.
    SignedBearerToken,
    /// `scoped-token`: a JWT signed with the private key, which says what its connection may do. Codex has no such mode.
    ScopedToken,
}

#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`")]
    ModeMissing,
    #[error("`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set")]
    TokenMissing,
    #[error("`--ws-token-file` and `--ws-token-sha256` are mutually exclusive")]
    TokenTwice,
    #[error("--ws-token-sha256 must be a 64-character hex SHA-256 digest")]
    DigestInvalid,
    #[error("`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set")]
    SecretMissing,
    #[error("signed websocket bearer secret {} must be at least 32 bytes", path.display())]
    SecretShort { path: PathBuf },
    /// The file has only white space.
    #[error("websocket auth secret {} must not be empty", path.display())]
    SecretEmpty { path: PathBuf },
    #[error("failed to read websocket auth secret {}: {source}", path.display())]
    SecretUnreadable { path: PathBuf, source: io::Error },
    #[error(transparent)]
    SecretExposed(SecretFileError),
    #[error("`--ws-public-key` is required when `--ws-auth scoped-token` is set")]
    PublicKeyMissing,
    #[error(transparent)]
    PublicKeyInvalid(TokenError),
    #[error("`--ws-public-key` requires `--ws-auth scoped-token`")]
    PublicKeyMisplaced,
    /// Flags of the signed mode in the capability mode.
    #[error(
        "`--ws-shared-secret-file`, `--ws-issuer`, `--ws-audience`, and `--ws-max-clock-skew-seconds` \
         require `--ws-auth signed-bearer-token`"
    )]
    SignedFlagsMisplaced,
    /// Flags of the other modes in the scoped mode.
    #[error(
        "`--ws-token-file`, `--ws-token-sha256` and `--ws-shared-secret-file` are of no use with `--ws-auth scoped-token`"
    )]
    SecretFlagsMisplaced,
    /// Flags of the capability mode in the signed mode.
    #[error(
        "`--ws-token-file` and `--ws-token-sha256` require `--ws-auth capability-token`, not `signed-bearer-token`"
    )]
    TokenFlagsMisplaced,
}

/// The check of the `Authorization` header that a listener makes before an upgrade.
#[derive(Clone)]
pub struct Auth {
    method: AuthMethod,
    /// The file of a secret that others can read.
    exposed: Option<PathBuf>,
}

#[derive(Clone)]
enum AuthMethod {
    Capability { sha256: [u8; 32] },
    Signed(Box<SignedTokens>),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.method {
            AuthMethod::Capability { .. } => "Auth(capability-token)",
            AuthMethod::Signed(tokens) => match tokens.kind {
                SignatureKind::SharedSecret => "Auth(signed-bearer-token)",
                SignatureKind::Scoped => "Auth(scoped-token)",
            },
        })
    }
}

impl Auth {
    /// Checks the flags and reads the files they name. `None` if no flag asks for authentication.
    pub fn from_settings(settings: &AuthSettings) -> Result<Option<Self>, AuthError> {
        let token_flags = settings.token_file.is_some() || settings.token_sha256.is_some();
        let claim_flags =
            settings.issuer.is_some() || settings.audience.is_some() || settings.max_clock_skew_seconds.is_some();
        let signed_flags = settings.shared_secret_file.is_some() || claim_flags;
        if settings.public_key_file.is_some() && settings.mode != Some(AuthMode::ScopedToken) {
            return Err(AuthError::PublicKeyMisplaced);
        }
        match settings.mode {
            None if token_flags || signed_flags => Err(AuthError::ModeMissing),
            None => Ok(None),
            Some(AuthMode::CapabilityToken) if signed_flags => Err(AuthError::SignedFlagsMisplaced),
            Some(AuthMode::SignedBearerToken) if token_flags => Err(AuthError::TokenFlagsMisplaced),
            Some(AuthMode::ScopedToken) if token_flags || settings.shared_secret_file.is_some() => {
                Err(AuthError::SecretFlagsMisplaced)
            }
            Some(AuthMode::CapabilityToken) => {
                let (sha256, exposed) = match (&settings.token_file, &settings.token_sha256) {
                    (None, None) => return Err(AuthError::TokenMissing),
                    (Some(_), Some(_)) => return Err(AuthError::TokenTwice),
                    (Some(path), None) => {
                        let (token, exposed) = read_secret(path)?;
                        (digest(&token), exposed)
                    }
                    (None, Some(hex)) => (parse_digest(hex.trim())?, None),
                };
                Ok(Some(Self { method: AuthMethod::Capability { sha256 }, exposed }))
            }
            Some(AuthMode::SignedBearerToken) => {
                let path = settings.shared_secret_file.as_ref().ok_or(AuthError::SecretMissing)?;
                let (secret, exposed) = read_secret(path)?;
                if secret.len() < SECRET_MIN_BYTES {
                    return Err(AuthError::SecretShort { path: path.clone() });
                }
                let key = DecodingKey::from_secret(&secret);
                Ok(Some(Self { method: SignedTokens::method(key, SignatureKind::SharedSecret, settings), exposed }))
            }
            Some(AuthMode::ScopedToken) => {
                let path = settings.public_key_file.as_ref().ok_or(AuthError::PublicKeyMissing)?;
                let key = token::read_public_key(path).map_err(AuthError::PublicKeyInvalid)?;
                let key = DecodingKey::from_ed_der(&key);
                Ok(Some(Self { method: SignedTokens::method(key, SignatureKind::Scoped, settings), exposed: None }))
            }
        }
    }

    /// Says so if others can read the secret. Not while the flags are checked, because then there may be no server yet.
    pub(crate) fn warn_if_exposed(&self) {
        if let Some(path) = &self.exposed {
            let path = path.display();
            tracing::warn!(
                "other users can read the secret in {path}, and so get in here: chmod 600 it, and make a new one"
            );
        }
    }

    /// Checks the `Authorization` header of an upgrade. The error is the body of the 401.
    pub(crate) fn check(&self, header: Option<&HeaderValue>, now: SystemTime) -> Result<Identity, &'static str> {
        let token = bearer(header)?;
        match &self.method {
            AuthMethod::Capability { sha256 } => {
                if digest(token.as_bytes()).ct_eq(sha256).into() {
                    Ok(Identity::default())
                } else {
                    Err("invalid websocket bearer token")
                }
            }
            AuthMethod::Signed(tokens) => tokens.check(token, now),
        }
    }
}

/// What a flag names; white space around it is not meant, and white space alone names nothing.
fn named(value: Option<&str>) -> Option<String> {
    value.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
}

#[derive(Clone)]
struct SignedTokens {
    key: DecodingKey,
    kind: SignatureKind,
    issuer: Option<String>,
    audience: Option<String>,
    skew_seconds: i64,
}

/// What signs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignatureKind {
    /// HS256. A token need not have a scope.
    SharedSecret,
    /// EdDSA. A token must have a scope, and is for nobody else if it names an audience.
    Scoped,
}

impl SignedTokens {
    fn method(key: DecodingKey, kind: SignatureKind, settings: &AuthSettings) -> AuthMethod {
        let skew_seconds = settings.max_clock_skew_seconds.unwrap_or(CLOCK_SKEW_SECONDS);
        AuthMethod::Signed(Box::new(Self {
            key,
            kind,
            issuer: named(settings.issuer.as_deref()),
            audience: named(settings.audience.as_deref()),
            skew_seconds: i64::try_from(skew_seconds).unwrap_or(i64::MAX),
        }))
    }

    fn check(&self, token: &str, now: SystemTime) -> Result<Identity, &'static str> {
        // The library checks algorithm and signature. We check the claims, because each failure has its own text and
        // `exp` must be an integer.
        let algorithm = match self.kind {
            SignatureKind::SharedSecret => Algorithm::HS256,
            SignatureKind::Scoped => Algorithm::EdDSA,
        };
        let mut signature_only = Validation::new(algorithm);
        signature_only.required_spec_claims.clear();
        signature_only.validate_exp = false;
        signature_only.validate_aud = false;
        let claims: TokenClaims = match jsonwebtoken::decode(token, &self.key, &signature_only) {
            Ok(token) if token::is_understood(&token.header) => token.claims,
            Ok(_) | Err(_) => return Err("invalid websocket jwt"),
        };
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
        let end = claims.exp.saturating_add(self.skew_seconds);
        if now > end {
            return Err("expired websocket jwt");
        }
        if claims.nbf.is_some_and(|nbf| now < nbf.saturating_sub(self.skew_seconds)) {
            return Err("websocket jwt is not valid yet");
        }
        if self.issuer.is_some() && claims.iss != self.issuer {
            return Err("websocket jwt issuer mismatch");
        }
        let is_addressed = match (&self.audience, &claims.aud) {
            (Some(wanted), audience) => audience.as_ref().is_some_and(|audience| audience.names(wanted)),
            // As JWTs have it. Codex's server does not ask who is meant unless it was told who it is.
            (None, Some(_)) => self.kind == SignatureKind::SharedSecret,
            (None, None) => true,
        };
        if !is_addressed {
            return Err("websocket jwt audience mismatch");
        }
        let grant = match (&claims.scope, self.kind) {
            (Some(scope), _) => Grant::from_scope(scope)?,
            (None, SignatureKind::SharedSecret) => Grant::Everything,
            (None, SignatureKind::Scoped) => return Err("websocket jwt has no scope"),
        };
        // The last second counts. A time beyond what the clock can say is no end.
        let end =
            u64::try_from(end).ok().and_then(|end| UNIX_EPOCH.checked_add(Duration::from_secs(end.checked_add(1)?)));
        Ok(Identity { subject: Some(claims.sub.unwrap_or_default()), expires: end, grant })
    }
}

fn bearer(header: Option<&HeaderValue>) -> Result<&str, &'static str> {
    let header = header.ok_or("missing websocket bearer token")?;
    let invalid = "invalid authorization header";
    let text = header.to_str().map_err(|_| invalid)?.trim();
    let (scheme, token) = text.split_once(' ').ok_or(invalid)?;
    let token = token.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() { Ok(token) } else { Err(invalid) }
}

/// A secret, and its path if others can read it.
fn read_secret(path: &Path) -> Result<(Vec<u8>, Option<PathBuf>), AuthError> {
    let file = token::read_secret_file(path, Exposure::Reported).map_err(|error| match error {
        SecretFileError::Unreadable { path, source } => AuthError::SecretUnreadable { path, source },
        exposed => AuthError::SecretExposed(exposed),
    })?;
    // White space around a secret is no part of it, which can be said of text only; and a token that is no text nobody could send.
    if std::str::from_utf8(&file.content).is_err() {
        let source = io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8");
        return Err(AuthError::SecretUnreadable { path: path.to_owned(), source });
    }
    match file.content.is_empty() {
        true => Err(AuthError::SecretEmpty { path: path.to_owned() }),
        false => Ok((file.content, file.is_exposed.then(|| path.to_owned()))),
    }
}

fn parse_digest(hex: &str) -> Result<[u8; 32], AuthError> {
    let mut digest = [0; 32];
    let digits: Option<Vec<u8>> = hex.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let digits = digits.filter(|digits| digits.len() == 64).ok_or(AuthError::DigestInvalid)?;
    for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    Ok(digest)
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}
