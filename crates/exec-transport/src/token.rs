//! Tokens: how they are made, what they permit, and the files that keep them.
//!
//! A capability token is random and says nothing; whoever has it may do everything. A scoped token is a JWT that names a
//! subject, an end, and the methods that its connection may call; it is signed with an Ed25519 key, of which the server
//! needs the public half only. Whether a token is good is decided in `listen/auth`.

mod grant;
mod secret_file;

use std::path::{Path, PathBuf};

use base64_simd::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use grant::{Grant, MethodPattern, MethodPatternError, Root, RootError, WeakestSandbox, WeakestSandboxError};
pub use secret_file::{Exposure, SecretFile, SecretFileError, create_secret_file, read_secret_file};

/// How an Ed25519 public key in its container begins (RFC 8410); the 32 bytes of the key follow.
const ED25519_PREFIX: [u8; 12] = [0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The container of a private one without its public half: version 1, Ed25519.
const ED25519_CONTAINER: [u8; 12] = [0x30, 0x2E, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70];

/// How the private key in it begins, whatever the version.
const ED25519_PRIVATE: [u8; 4] = [0x04, 0x22, 0x04, 0x20];

/// The bytes of each half.
const ED25519_BYTES: usize = 32;

/// The bits of a capability token: nobody guesses half of them.
const TOKEN_BYTES: usize = 32;

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("the system gives us no random bytes")]
    NoRandomness,
    #[error("cannot make a key: {0}")]
    Generate(rcgen::Error),
    #[error(transparent)]
    File(#[from] SecretFileError),
    #[error("there is no Ed25519 {half} key in {}; `exec-server token keygen` makes a pair", path.display())]
    NoKey { half: &'static str, path: PathBuf },
    #[error("cannot make a key pair: the library made one of an unknown form")]
    OddKey,
    #[error("cannot sign the token: {0}")]
    Sign(jsonwebtoken::errors::Error),
    #[error("this is no signed token: {0}")]
    Unreadable(jsonwebtoken::errors::Error),
}

/// A new capability token of 256 random bits.
pub fn new_capability_token() -> Result<String, TokenError> {
    let mut bytes = [0; TOKEN_BYTES];
    let random = aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
    Ok(URL_SAFE_NO_PAD.encode_to_string(bytes))
}

/// A new key pair for scoped tokens, as PEM: the private half signs, the public half is for servers.
pub fn new_key_pair() -> Result<(String, String), TokenError> {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(TokenError::Generate)?;
    // What was generated has the public half in it, too, and OpenSSL refuses such a file; so the private half is written alone,
    // and whoever signs tokens by other means can do it with this key.
    let whole = pair.serialize_der();
    let at = whole.windows(ED25519_PRIVATE.len()).position(|window| window == ED25519_PRIVATE);
    let private = at.and_then(|at| whole.get(at..at + ED25519_PRIVATE.len() + ED25519_BYTES));
    let private = private.ok_or(TokenError::OddKey)?;
    let der = [&ED25519_CONTAINER[..], private].concat();
    let text = base64_simd::STANDARD.encode_to_string(der);
    Ok((format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n"), pair.public_key_pem()))
}

/// The claims of a signed token. Others are ignored, as JWTs have it; but nothing inside `scope` is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenClaims {
    /// From then on it is worth nothing; in seconds since 1970, as all times here.
    pub exp: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iss: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aud: Option<Audience>,
    #[serde(rename = "exec-server", default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<TokenScope>,
}

/// What a token permits. A member that this version does not know makes the whole token invalid: it may be a restriction.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenScope {
    /// Names of methods; one that ends with `*` stands for all that begin so.
    pub methods: Vec<MethodPattern>,
    /// Files below these paths only, to read and write; processes only in a sandbox that stays below them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<Vec<Root>>,
    /// Processes must ask for at least this sandbox, and file calls do no more than it allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weakest_sandbox: Option<WeakestSandbox>,
}

/// For whom a token is: one name or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    pub(crate) fn names(&self, wanted: &str) -> bool {
        match self {
            Self::One(name) => name == wanted,
            Self::Many(names) => names.iter().any(|name| name == wanted),
        }
    }
}

impl TokenClaims {
    /// Signs them with the private key in a PEM file that nobody else may read.
    pub fn sign(&self, key_file: &Path) -> Result<String, TokenError> {
        let pem = read_secret_file(key_file, Exposure::Refused)?.content;
        let no_key = || TokenError::NoKey { half: "private", path: key_file.to_owned() };
        let key = PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|_| no_key())?;
        let key = EncodingKey::from_ed_der(key.secret_pkcs8_der());
        jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), self, &key).map_err(TokenError::Sign)
    }

    /// What a signed token says, whoever signed it: for people, never for a decision.
    pub fn read_unverified(token: &str) -> Result<Self, TokenError> {
        jsonwebtoken::dangerous::insecure_decode_claims(token).map_err(TokenError::Unreadable)
    }
}

impl TokenClaims {
    /// What a token says that this public key has signed; `None` if it has not. Whether the token has expired is not asked.
    pub fn read_verified(token: &str, public_key_file: &Path) -> Result<Option<Self>, TokenError> {
        let key = DecodingKey::from_ed_der(&read_public_key(public_key_file)?);
        let mut signature_only = Validation::new(Algorithm::EdDSA);
        signature_only.required_spec_claims.clear();
        signature_only.validate_exp = false;
        signature_only.validate_aud = false;
        let token = jsonwebtoken::decode(token, &key, &signature_only).ok();
        Ok(token.filter(|token| is_understood(&token.header)).map(|token| token.claims))
    }
}

/// Whether a token asks for nothing by its header that we would have to know. What its signer calls critical may be a restriction,
/// so JWTs have it that who does not know it refuses the token; we know no such thing, and the library does not ask.
pub(crate) fn is_understood(header: &Header) -> bool {
    header.crit.is_none()
}

/// The SHA-256 of a capability token in hex, which a server may have instead of the token.
pub fn sha256_of_token(token: &str) -> String {
    Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The public key in a PEM file, as the 32 bytes that it is.
pub(crate) fn read_public_key(path: &Path) -> Result<[u8; 32], TokenError> {
    let no_key = || TokenError::NoKey { half: "public", path: path.to_owned() };
    let unreadable = |source| SecretFileError::Unreadable { path: path.to_owned(), source };
    let pem = std::fs::read(path).map_err(unreadable)?;
    let der = SubjectPublicKeyInfoDer::from_pem_slice(&pem).map_err(|_| no_key())?;
    let key = der.strip_prefix(&ED25519_PREFIX[..]).ok_or_else(no_key)?;
    key.try_into().map_err(|_| no_key())
}
