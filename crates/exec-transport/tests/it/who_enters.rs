//! Who gets in: every kind of listener against combinations of scheme, client certificate, Origin, Host, path and token.
//!
//! The oracle ([`may_enter`]) is written from SECURITY.md, not from the code. Whether somebody got in is asked of both
//! ends: the client has read a 101, and the listener has accepted a connection.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use exec_transport::token::{TokenClaims, TokenScope, create_secret_file, new_key_pair};
use exec_transport::{
    Auth, AuthMode, AuthSettings, CertificateSource, ListenOptions, ListenUrl, Listener, ServerTls, ServerTlsOptions,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;

use crate::support::within;

const CAPABILITY: &str = "an-open-sesame-of-many-letters";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    Plain,
    Tls,
    /// Clients need a certificate of our authority.
    MutualTls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    Capability,
    Scoped,
}

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Plain,
    Tls,
    TlsWithOurCertificate,
    TlsWithOthersCertificate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    None,
    Capability,
    /// The right one under another scheme of HTTP.
    CapabilityAsBasic,
    Wrong,
    Scoped,
    ScopedOfOtherKey,
    ScopedExpired,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    scheme: Scheme,
    origin: Option<&'static str>,
    /// `HERE` stands for the listener's address.
    hosts: &'static [&'static str],
    path: &'static str,
    token: Token,
}

const ORIGINS: [Option<&str>; 4] = [None, Some("null"), Some("http://localhost"), Some("https://evil.example")];
const HOSTS: [&[&str]; 6] =
    [&["HERE"], &["localhost:1"], &["evil.example"], &["localhost@evil.example"], &[], &["localhost", "evil.example"]];
const PATHS: [&str; 4] = ["/", "/?token=an-open-sesame-of-many-letters", "/readyz", "/exec"];
const SCHEMES: [Scheme; 4] =
    [Scheme::Plain, Scheme::Tls, Scheme::TlsWithOurCertificate, Scheme::TlsWithOthersCertificate];
const TOKENS: [Token; 7] = [
    Token::None,
    Token::Capability,
    Token::CapabilityAsBasic,
    Token::Wrong,
    Token::Scoped,
    Token::ScopedOfOtherKey,
    Token::ScopedExpired,
];

fn may_enter(encryption: Encryption, asked: Asked, attempt: &Attempt) -> bool {
    let speaks = match encryption {
        Encryption::Plain => attempt.scheme == Scheme::Plain,
        // A certificate that nobody asks for is not looked at.
        Encryption::Tls => attempt.scheme != Scheme::Plain,
        Encryption::MutualTls => attempt.scheme == Scheme::TlsWithOurCertificate,
    };
    let is_known = match asked {
        Asked::Nothing => true,
        Asked::Capability => attempt.token == Token::Capability,
        Asked::Scoped => attempt.token == Token::Scoped,
    };
    // A page in a browser cannot send a token, so whoever has one may call us what he likes.
    let is_no_trap = asked != Asked::Nothing || matches!(attempt.hosts, ["HERE"] | ["localhost:1"]);
    let is_the_door = attempt.path == "/" || attempt.path.starts_with("/?");
    speaks && is_known && is_no_trap && is_the_door && attempt.origin.is_none()
}

/// Attempts at one kind of listener: each Origin with each Host, by those who speak as they should, with this and that path
/// and token; each path; and each scheme with each token.
fn attempts(encryption: Encryption, asked: Asked) -> Vec<Attempt> {
    let good_scheme = match encryption {
        Encryption::Plain => Scheme::Plain,
        Encryption::Tls => Scheme::Tls,
        Encryption::MutualTls => Scheme::TlsWithOurCertificate,
    };
    let good_token = match asked {
        Asked::Nothing => Token::None,
        Asked::Capability => Token::Capability,
        Asked::Scoped => Token::Scoped,
    };
    let good = Attempt { scheme: good_scheme, origin: None, hosts: HOSTS[0], path: "/", token: good_token };
    let mut attempts = Vec::new();
    for (at, origin) in ORIGINS.into_iter().enumerate() {
        for (other, hosts) in HOSTS.into_iter().enumerate() {
            // Each pair of values meets each path and each token somewhere.
            let (path, token) = (PATHS[(at + other) % PATHS.len()], TOKENS[(at * 3 + other) % TOKENS.len()]);
            attempts.push(Attempt { origin, hosts, ..good });
            // What is said inside TLS is judged by the same code, and each handshake takes milliseconds.
            if encryption == Encryption::Plain {
                attempts.push(Attempt { origin, hosts, path, ..good });
                attempts.push(Attempt { origin, hosts, token, ..good });
            }
        }
    }
    attempts.extend(PATHS.map(|path| Attempt { path, ..good }));
    for scheme in SCHEMES {
        attempts.extend(TOKENS.map(|token| Attempt { scheme, token, ..good }));
    }
    attempts
}

/// All that both sides need.
struct World {
    folder: tempfile::TempDir,
    server_certificate: PathBuf,
    scoped: [String; 3],
    public_key: PathBuf,
    tls: [Arc<ClientConfig>; 3],
    /// The next client's own address, so that none waits for the wrong tokens of another.
    next_client: AtomicU32,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let server_certificate = folder.path().join("server.pem");
        let source = CertificateSource::SelfSigned { addresses: Vec::new(), kept_in: Some(server_certificate.clone()) };
        ServerTls::load(&ServerTlsOptions { certificate: source, client_ca: None }).expect("nothing to read");
        let (ours, others) = (authority(), authority());
        std::fs::write(folder.path().join("ca.pem"), ours.pem()).expect("the folder is ours");
        let config = |client: Option<&CertifiedIssuer<'static, KeyPair>>| client_config(&server_certificate, client);
        let tls = [config(None), config(Some(&ours)), config(Some(&others))];
        let key = |name: &str| {
            let (private, public) = new_key_pair().expect("a key pair");
            let paths = (folder.path().join(name), folder.path().join(format!("{name}.pub")));
            create_secret_file(&paths.0, &private).expect("the folder is ours");
            std::fs::write(&paths.1, public).expect("the folder is ours");
            paths
        };
        let ((private, public_key), (other, _)) = (key("key"), key("other"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let claims = |exp: u64| TokenClaims {
            exp: i64::try_from(exp).expect("before the end of time"),
            scope: Some(TokenScope { methods: vec!["*".parse().expect("a pattern")], ..TokenScope::default() }),
            ..TokenClaims::default()
        };
        let sign = |exp, key: &Path| claims(exp).sign(key).expect("it can be signed");
        let scoped = [sign(now + 600, &private), sign(now + 600, &other), sign(now - 600, &private)];
        Self { folder, server_certificate, scoped, public_key, tls, next_client: AtomicU32::new(0x7F01_0001) }
    }

    async fn listen(&self, encryption: Encryption, asked: Asked) -> Listener {
        let settings = match asked {
            Asked::Nothing => AuthSettings::default(),
            Asked::Capability => AuthSettings {
                mode: Some(AuthMode::CapabilityToken),
                token_sha256: Some(exec_transport::token::sha256_of_token(CAPABILITY)),
                ..AuthSettings::default()
            },
            Asked::Scoped => AuthSettings {
                mode: Some(AuthMode::ScopedToken),
                public_key_file: Some(self.public_key.clone()),
                ..AuthSettings::default()
            },
        };
        let auth = Auth::from_settings(&settings).expect("valid settings");
        let kept_in = Some(self.server_certificate.clone());
        let certificate = CertificateSource::SelfSigned { addresses: Vec::new(), kept_in };
        let client_ca = (encryption == Encryption::MutualTls).then(|| self.folder.path().join("ca.pem"));
        let tls = ServerTls::load(&ServerTlsOptions { certificate, client_ca }).expect("they were made above");
        let (scheme, tls) = if encryption == Encryption::Plain { ("ws", None) } else { ("wss", Some(tls)) };
        let any_port: ListenUrl = format!("{scheme}://127.0.0.1:0").parse().expect("a URL");
        let options = ListenOptions { auth, tls, ..ListenOptions::default() };
        Listener::bind(&any_port, options).await.expect("loopback has free ports")
    }

    /// Whether the client was let in.
    async fn try_to_enter(&self, address: SocketAddr, attempt: &Attempt) -> bool {
        let socket = TcpSocket::new_v4().expect("a socket");
        let own = self.next_client.fetch_add(1, Ordering::Relaxed);
        socket.bind(SocketAddr::from((own.to_be_bytes(), 0))).expect("all of 127.0.0.0/8 is ours");
        // Otherwise the kernel keeps the request back until the end of the handshake was acknowledged.
        socket.set_nodelay(true).expect("an option of TCP");
        let stream = socket.connect(address).await.expect("it listens");
        let request = self.request(address, attempt);
        let tls = match attempt.scheme {
            Scheme::Plain => return is_welcome(stream, &request).await,
            Scheme::Tls => &self.tls[0],
            Scheme::TlsWithOurCertificate => &self.tls[1],
            Scheme::TlsWithOthersCertificate => &self.tls[2],
        };
        let name = ServerName::try_from("localhost").expect("a name");
        match TlsConnector::from(Arc::clone(tls)).connect(name, stream).await {
            Ok(stream) => is_welcome(stream, &request).await,
            Err(_) => false,
        }
    }

    fn request(&self, address: SocketAddr, attempt: &Attempt) -> String {
        let authorization = match attempt.token {
            Token::None => None,
            Token::Capability => Some(format!("Bearer {CAPABILITY}")),
            Token::CapabilityAsBasic => Some(format!("Basic {CAPABILITY}")),
            Token::Wrong => Some("Bearer wrong".to_owned()),
            Token::Scoped => Some(format!("Bearer {}", self.scoped[0])),
            Token::ScopedOfOtherKey => Some(format!("Bearer {}", self.scoped[1])),
            Token::ScopedExpired => Some(format!("Bearer {}", self.scoped[2])),
        };
        let mut request = format!("GET {} HTTP/1.1\r\n", attempt.path);
        for host in attempt.hosts {
            request += &format!("host: {}\r\n", host.replace("HERE", &address.to_string()));
        }
        for (name, value) in [("origin", attempt.origin), ("authorization", authorization.as_deref())] {
            if let Some(value) = value {
                request += &format!("{name}: {value}\r\n");
            }
        }
        request
            + "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
               sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate")
}

/// A client that trusts our server and shows a certificate of `issuer`.
fn client_config(server: &Path, issuer: Option<&CertifiedIssuer<'static, KeyPair>>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(server).expect("it was made")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.expect("TLS 1.3").with_root_certificates(roots);
    Arc::new(match issuer {
        None => builder.with_no_client_auth(),
        Some(issuer) => {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec!["client".to_owned()]).expect("a name");
            let certificate = params.signed_by(&key, issuer).expect("a certificate").der().clone();
            let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
            builder.with_client_auth_cert(vec![certificate], key).expect("they fit")
        }
    })
}

/// Sends a request; whether the answer is the one that lets in. Whatever else happens does not.
async fn is_welcome(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> bool {
    const WELCOME: &[u8] = b"HTTP/1.1 101 ";
    if stream.write_all(request.as_bytes()).await.is_err() || stream.flush().await.is_err() {
        return false;
    }
    let mut answer = [0; WELCOME.len()];
    stream.read_exact(&mut answer).await.is_ok() && answer == *WELCOME
}

#[tokio::test]
async fn nobody_enters_who_should_not_and_everybody_who_should() {
    let world = World::new();
    let (mut tried, mut entered, mut mistakes) = (0, 0, Vec::new());
    for encryption in [Encryption::Plain, Encryption::Tls, Encryption::MutualTls] {
        for asked in [Asked::Nothing, Asked::Capability, Asked::Scoped] {
            let mut listener = world.listen(encryption, asked).await;
            let address = listener.url().split_once("://").expect("a URL").1.parse().expect("an address");
            let accepted = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&accepted);
            let serving = tokio::spawn(async move {
                while listener.accept().await.is_ok() {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut expected = 0;
            for attempt in attempts(encryption, asked) {
                let should = may_enter(encryption, asked, &attempt);
                let did = within(world.try_to_enter(address, &attempt)).await;
                if did != should {
                    mistakes.push(format!("{encryption:?} {asked:?} {attempt:?}: should {should}, did {did}"));
                }
                (tried, expected) = (tried + 1, expected + usize::from(should));
            }
            // A listener accepts after its answer was sent; the last one may still be on its way.
            let all_accepted = async {
                while accepted.load(Ordering::Relaxed) < expected {
                    tokio::task::yield_now().await;
                }
            };
            within(all_accepted).await;
            assert_eq!(accepted.load(Ordering::Relaxed), expected, "{encryption:?} {asked:?}");
            entered += expected;
            serving.abort();
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(tried >= 200 && entered >= 30, "{tried} were tried, {entered} of them let in");
}

/// A session of TLS that is resumed proves whose certificate it was, and nothing about a token.
#[tokio::test]
async fn a_resumed_tls_session_asks_for_the_token_again() {
    let world = World::new();
    let mut listener = world.listen(Encryption::MutualTls, Asked::Capability).await;
    let address = listener.url()["wss://".len()..].parse().expect("an address");
    let serving = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let scheme = Scheme::TlsWithOurCertificate;
    for (token, welcome) in [(Token::Capability, true), (Token::None, false), (Token::Capability, true)] {
        let attempt = Attempt { scheme, origin: None, hosts: HOSTS[0], path: "/", token };
        assert_eq!(within(world.try_to_enter(address, &attempt)).await, welcome, "{token:?}");
    }
    serving.abort();
}
