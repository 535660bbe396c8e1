//! Scoped tokens: who made them, what they say, and what a server makes of it.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use exec_transport::token::{
    Audience, TokenClaims, TokenScope, WeakestSandbox, create_secret_file, new_capability_token, new_key_pair,
};
use exec_transport::{
    Auth, AuthMode, AuthSettings, ConnectError, ConnectOptions, Grant, ListenOptions, Target, connect,
};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::support::{websocket_listener, within};

/// The files of a new key pair: the private half, the public half.
fn key_pair(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (private, public) = new_key_pair().expect("a key pair");
    let paths = (folder.join(name), folder.join(format!("{name}.pub")));
    create_secret_file(&paths.0, &private).expect("the folder is ours");
    std::fs::write(&paths.1, public).expect("the folder is ours");
    paths
}

fn in_an_hour() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_secs()).expect("before the end of time") + 3600
}

fn claims() -> TokenClaims {
    let methods = ["process/*", "fs/readFile"].map(|pattern| pattern.parse().expect("a pattern")).to_vec();
    TokenClaims {
        exp: in_an_hour(),
        sub: Some("alice".to_owned()),
        scope: Some(TokenScope { methods, ..TokenScope::default() }),
        ..TokenClaims::default()
    }
}

fn settings(public: &Path, audience: Option<&str>) -> AuthSettings {
    AuthSettings {
        mode: Some(AuthMode::ScopedToken),
        public_key_file: Some(public.to_owned()),
        audience: audience.map(str::to_owned),
        ..AuthSettings::default()
    }
}

/// The identity that a server gives to a token, or the text of its refusal.
async fn judge(settings: &AuthSettings, token: &str) -> Result<exec_transport::Identity, String> {
    let auth = Auth::from_settings(settings).expect("valid settings");
    let (mut listener, address) = websocket_listener(ListenOptions { auth, ..ListenOptions::default() }).await;
    let target: Target = format!("ws://{address}").parse().expect("a URL");
    let options = ConnectOptions { bearer_token: Some(token.to_owned()), ..ConnectOptions::default() };
    let connecting = async {
        match within(connect(&target, &options)).await {
            // The connection is what `accept` returns, too.
            Ok(client) => {
                std::future::pending::<()>().await;
                drop(client);
                unreachable!("it waits for ever")
            }
            Err(ConnectError::Refused { status: 401, body, .. }) => body,
            Err(error) => panic!("{error}"),
        }
    };
    tokio::select! {
        accepted = within(listener.accept()) => Ok(accepted.expect("the listener works").identity),
        refused = connecting => Err(refused),
    }
}

#[tokio::test]
async fn a_scoped_token_gives_its_connection_a_subject_an_end_and_its_methods() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (private, public) = key_pair(folder.path(), "key");
    let token = claims().sign(&private).expect("it can be signed");
    assert_eq!(TokenClaims::read_unverified(&token).expect("it is ours"), claims());
    let identity = judge(&settings(&public, None), &token).await.expect("it is good");
    assert_eq!(identity.subject.as_deref(), Some("alice"));
    let end = UNIX_EPOCH + std::time::Duration::from_secs(u64::try_from(claims().exp).expect("after 1970") + 31);
    assert_eq!(identity.expires, Some(end));
    assert_eq!(identity.grant, Grant::Scope(claims().scope.expect("it has one")));
}

#[tokio::test]
async fn what_is_not_signed_by_the_key_or_cannot_be_enforced_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (private, public) = key_pair(folder.path(), "key");
    let (other, _) = key_pair(folder.path(), "other");
    let sign = |claims: &TokenClaims| claims.sign(&private).expect("it can be signed");
    let scope = |change: &dyn Fn(&mut TokenScope)| {
        let mut changed = claims();
        change(changed.scope.as_mut().expect("it has one"));
        sign(&changed)
    };
    // Whoever has the public key must not be able to sign with it as if it were a shared secret.
    let as_secret = EncodingKey::from_secret(&std::fs::read(&public).expect("it was made"));
    let confused =
        jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims(), &as_secret).expect("it can be signed");
    let unsigned = {
        let part = |value: Value| base64_simd::URL_SAFE_NO_PAD.encode_to_string(value.to_string());
        let body = serde_json::to_value(claims()).expect("claims are JSON");
        format!("{}.{}.", part(json!({"alg": "none", "typ": "JWT"})), part(body))
    };
    let signed_with = |header: &Header, body: &Value| {
        let pem = std::fs::read_to_string(&private).expect("it was made");
        let der = rustls::pki_types::pem::PemObject::from_pem_slice(pem.as_bytes()).expect("a key");
        let der: rustls::pki_types::PrivatePkcs8KeyDer<'_> = der;
        let key = EncodingKey::from_ed_der(der.secret_pkcs8_der());
        jsonwebtoken::encode(header, body, &key).expect("it can be signed")
    };
    let odd_scope = |member: &str, value: Value| {
        let mut body = serde_json::to_value(claims()).expect("claims are JSON");
        body["exec-server"][member] = value;
        signed_with(&Header::new(Algorithm::EdDSA), &body)
    };
    let critical = {
        let header = Header { crit: Some(vec!["onlyOnSundays".to_owned()]), ..Header::new(Algorithm::EdDSA) };
        signed_with(&header, &serde_json::to_value(claims()).expect("claims are JSON"))
    };
    assert_eq!(TokenClaims::read_verified(&critical, &public).expect("there is a key"), None);
    let build = Some(Audience::Many(vec!["build".to_owned(), "ci".to_owned()]));
    let for_build = sign(&TokenClaims { aud: build, ..claims() });
    let plain = settings(&public, None);
    for (token, settings, refused) in [
        (claims().sign(&other).expect("it can be signed"), plain.clone(), Some("invalid websocket jwt")),
        (confused, plain.clone(), Some("invalid websocket jwt")),
        (unsigned, plain.clone(), Some("invalid websocket jwt")),
        (odd_scope("onlyOnSundays", json!(true)), plain.clone(), Some("invalid websocket jwt")),
        (critical, plain.clone(), Some("invalid websocket jwt")),
        (sign(&TokenClaims { exp: 1, ..claims() }), plain.clone(), Some("expired websocket jwt")),
        (sign(&TokenClaims { scope: None, ..claims() }), plain.clone(), Some("websocket jwt has no scope")),
        (scope(&|scope| scope.roots = Some(vec!["/w".parse().expect("a root")])), plain.clone(), None),
        (scope(&|scope| scope.weakest_sandbox = Some(WeakestSandbox::ReadOnly)), plain.clone(), None),
        (scope(&|scope| scope.roots = Some(Vec::new())), plain.clone(), Some("the scope of this token has no roots")),
        (
            scope(&|scope| scope.weakest_sandbox = Some(WeakestSandbox::WorkspaceWrite)),
            plain.clone(),
            Some("this token asks for workspace-write and does not say by its roots where the workspace is"),
        ),
        (odd_scope("roots", json!(["w"])), plain.clone(), Some("invalid websocket jwt")),
        (odd_scope("roots", json!(["/w/../etc"])), plain.clone(), Some("invalid websocket jwt")),
        (odd_scope("weakestSandbox", json!("none")), plain.clone(), Some("invalid websocket jwt")),
        (for_build.clone(), plain, Some("websocket jwt audience mismatch")),
        (for_build.clone(), settings(&public, Some("prod")), Some("websocket jwt audience mismatch")),
        (for_build, settings(&public, Some("ci")), None),
    ] {
        assert_eq!(judge(&settings, &token).await.err().as_deref(), refused, "{token}");
    }
}

#[tokio::test]
async fn a_scope_counts_in_a_token_with_a_shared_secret_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("secret");
    let secret = new_capability_token().expect("random bytes");
    create_secret_file(&path, &secret).expect("the folder is ours");
    let settings = AuthSettings {
        mode: Some(AuthMode::SignedBearerToken),
        shared_secret_file: Some(path),
        ..AuthSettings::default()
    };
    let key = EncodingKey::from_secret(secret.as_bytes());
    let sign = |claims| jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).expect("it can be signed");
    let scoped = judge(&settings, &sign(claims())).await.expect("it is good");
    assert_eq!(scoped.grant, Grant::Scope(claims().scope.expect("it has one")));
    let plain = judge(&settings, &sign(TokenClaims { scope: None, ..claims() })).await.expect("it is good");
    assert_eq!(plain.grant, Grant::Everything);
}

#[test]
fn keys_that_others_could_read_and_files_that_are_no_keys_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (private, public) = key_pair(folder.path(), "key");
    let told = |settings: AuthSettings| Auth::from_settings(&settings).expect_err("refused").to_string();
    let no_key =
        format!("there is no Ed25519 public key in {}; `exec-server token keygen` makes a pair", private.display());
    assert_eq!(told(settings(&private, None)), no_key);
    let flag = AuthSettings { mode: Some(AuthMode::CapabilityToken), ..settings(&public, None) };
    assert_eq!(told(flag), "`--ws-public-key` requires `--ws-auth scoped-token`");
    let missing = AuthSettings { public_key_file: None, ..settings(&public, None) };
    assert_eq!(told(missing), "`--ws-public-key` is required when `--ws-auth scoped-token` is set");
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    let exposed = claims().sign(&private).expect_err("others can read it").to_string();
    assert!(exposed.contains("(mode 0644): chmod 600 it"), "{exposed}");
}

/// OpenSSL 3 reads no private key that has the public one in it.
#[test]
fn a_private_key_is_in_the_form_that_everybody_reads() {
    let (private, _) = new_key_pair().expect("a key pair");
    let lines: Vec<&str> = private.lines().collect();
    let ["-----BEGIN PRIVATE KEY-----", text, "-----END PRIVATE KEY-----"] = lines.as_slice() else {
        panic!("it is PEM of one line");
    };
    let der = base64_simd::STANDARD.decode_to_vec(text).expect("it is base64");
    // Version 1 of PKCS #8, with nothing behind the key.
    assert_eq!((der.len(), der[..5].to_vec()), (48, vec![0x30, 0x2E, 0x02, 0x01, 0x00]));
}

#[test]
fn capability_tokens_are_long_and_never_the_same() {
    let (first, second) =
        (new_capability_token().expect("random bytes"), new_capability_token().expect("random bytes"));
    assert_ne!(first, second);
    // 256 bits, at six a letter.
    assert_eq!((first.len(), second.len()), (43, 43));
}

/// Codex's server does not look at the mode of such a file, and files of mode 0644 are in use; but one that others can
/// change is as good as no secret.
#[test]
fn a_secret_that_others_can_change_is_refused_and_one_that_they_can_read_still_works() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("token");
    create_secret_file(&path, "open sesame").expect("the folder is ours");
    let settings = AuthSettings {
        mode: Some(AuthMode::CapabilityToken),
        token_file: Some(path.clone()),
        ..AuthSettings::default()
    };
    for (mode, works) in [(0o600, true), (0o644, true), (0o664, false), (0o666, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
        assert_eq!(Auth::from_settings(&settings).is_ok(), works, "{mode:o}");
    }
}
