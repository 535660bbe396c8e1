//! `wss://`: our client and our server with TLS between them, whom either trusts, and through a proxy that ends TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use exec_transport::{
    CertificateSource, ClientCertificate, ClientTls, CloseReason, ConnectError, ConnectOptions, Connection,
    ConnectionEnd, Fingerprint, ListenOptions, ListenUrl, Listener, ServerTls, ServerTlsOptions, Target, TlsError,
    TlsOptions, TrustedServers, connect,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{accept, closed, long_text, message, send, text, websocket_listener, within};

/// PEM files of a certificate and its key.
fn write_pair(folder: &Path, name: &str, certificate: &str, key: &KeyPair) -> (PathBuf, PathBuf) {
    let paths = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
    std::fs::write(&paths.0, certificate).expect("a folder of our own");
    std::fs::write(&paths.1, key.serialize_pem()).expect("a folder of our own");
    paths
}

/// An authority; its own certificate is in `NAME-ca.crt`.
fn authority(folder: &Path, name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a certificate");
    std::fs::write(folder.join(format!("{name}-ca.crt")), issuer.pem()).expect("a folder of our own");
    issuer
}

/// A certificate that the authority has signed for `host`.
fn issued(folder: &Path, by: &CertifiedIssuer<'static, KeyPair>, host: &str) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![host.to_owned()]).expect("a name");
    write_pair(folder, host, &params.signed_by(&key, by).expect("a certificate").pem(), &key)
}

fn self_signed() -> CertificateSource {
    CertificateSource::SelfSigned { addresses: vec!["127.0.0.1".parse().expect("an address")], kept_in: None }
}

fn server_tls(certificate: CertificateSource, client_ca: Option<PathBuf>) -> ServerTls {
    ServerTls::load(&ServerTlsOptions { certificate, client_ca }).expect("valid options")
}

async fn secure_listener(tls: ServerTls, options: ListenOptions) -> (Listener, SocketAddr) {
    let any_port = ListenUrl::SecureWebSocket("127.0.0.1:0".parse().expect("a literal address"));
    let listener = Listener::bind(&any_port, ListenOptions { tls: Some(tls), ..options }).await;
    let listener = listener.expect("loopback has free ports");
    let address = listener.url().strip_prefix("wss://").expect("a secure listener").parse().expect("an address");
    (listener, address)
}

fn trusting(trust: TrustedServers) -> TlsOptions {
    TlsOptions { trust, certificate: None }
}

/// What a client with these options gets at `wss://HOST:PORT` of a listener.
async fn dial(listener: &mut Listener, host: &str, port: u16, tls: &TlsOptions) -> Result<Connection, ConnectError> {
    let target: Target = format!("wss://{host}:{port}/").parse().expect("a URL");
    let tls = Some(ClientTls::load(tls).expect("valid options"));
    let options = ConnectOptions { tls, ..ConnectOptions::default() };
    let serving = async {
        loop {
            drop(listener.accept().await);
        }
    };
    tokio::select! {
        connected = within(connect(&target, &options)) => connected,
        () = serving => unreachable!("it serves for ever"),
    }
}

#[tokio::test]
async fn messages_go_both_ways_and_the_end_arrives() {
    let tls = server_tls(self_signed(), None);
    let trust = trusting(TrustedServers::Fingerprint(tls.fingerprint()));
    let (mut listener, address) = secure_listener(tls, ListenOptions::default()).await;
    let target: Target = format!("wss://{address}").parse().expect("a URL");
    let tls = Some(ClientTls::load(&trust).expect("nothing to load"));
    let options = ConnectOptions { tls, ..ConnectOptions::default() };
    let (mut server, client) = tokio::join!(accept(&mut listener), within(connect(&target, &options)));
    let mut client = client.expect("it upgrades");
    for size in [1, 100_000, 5_000_000] {
        let content = text(long_text(size));
        let (received, ()) = tokio::join!(message(&mut server.receiver), send(&mut client, content.clone()));
        assert!(received == content, "changed at {size} bytes");
        let (received, ()) = tokio::join!(message(&mut client.receiver), send(&mut server, content.clone()));
        assert!(received == content, "changed at {size} bytes");
    }
    within(client.sender.close(CloseReason::normal())).await;
    assert!(
        matches!(closed(&mut server.receiver).await, ConnectionEnd::ByPeer(reason) if reason == CloseReason::normal())
    );
}

#[tokio::test]
async fn a_proxy_may_end_tls_before_a_plain_listener() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (certificate, _) = write_pair(folder.path(), "front", &certified.cert.pem(), &certified.signing_key);
    let chain = vec![certified.cert.der().clone()];
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("TLS 1.3").with_no_client_auth().with_single_cert(chain, key).expect("they fit");
    let (mut listener, inner) = websocket_listener(ListenOptions::default()).await;
    let front = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let port = front.local_addr().expect("bound").port();
    let proxy = tokio::spawn(async move {
        let (stream, _) = front.accept().await.expect("a listener");
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.expect("it is trusted");
        let mut inner = TcpStream::connect(inner).await.expect("it listens");
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut inner).await;
    });
    let connected = dial(&mut listener, "localhost", port, &trusting(TrustedServers::Ca(certificate))).await;
    drop(connected.expect("it upgrades"));
    within(proxy).await.expect("the proxy did not panic");
}

/// Which servers each kind of trust accepts, and what the user of the others is told.
#[tokio::test]
async fn a_server_is_trusted_by_its_authority_or_its_fingerprint_and_by_nothing_else() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let (ours, others) = (authority(folder, "our"), authority(folder, "other"));
    let (certificate, key) = issued(folder, &ours, "localhost");
    drop(others);
    let tls = server_tls(CertificateSource::Files { certificate, key }, None);
    let fingerprint = tls.fingerprint();
    let other_fingerprint: Fingerprint = format!("sha256:{}", "00".repeat(32)).parse().expect("64 digits");
    let (mut listener, address) = secure_listener(tls, ListenOptions::default()).await;
    let port = address.port();
    let ca = |name: &str| TrustedServers::Ca(folder.join(name));
    for (host, trust, refused) in [
        ("localhost", ca("our-ca.crt"), None),
        ("localhost", TrustedServers::Fingerprint(fingerprint), None),
        // With a pin nothing else is asked, not even the name.
        ("127.0.0.1", TrustedServers::Fingerprint(fingerprint), None),
        ("127.0.0.1", ca("our-ca.crt"), Some("not valid for name")),
        ("localhost", ca("other-ca.crt"), Some("is not trusted")),
        ("localhost", TrustedServers::System, Some("is not trusted")),
        (
            "localhost",
            TrustedServers::Fingerprint(other_fingerprint),
            Some("it is not the one whose fingerprint was given"),
        ),
    ] {
        let told = dial(&mut listener, host, port, &trusting(trust.clone())).await;
        match (told, refused) {
            (Ok(_), None) => {}
            (Err(error @ ConnectError::Certificate { .. }), Some(words)) => {
                let error = error.to_string();
                let advice = format!("give --tls-ca, or --tls-fingerprint {fingerprint} if that is what");
                assert!(error.contains(words) && error.contains(&advice), "{host} {trust:?}: {error}");
            }
            (told, _) => panic!("{host} {trust:?}: {told:?}"),
        }
    }
}

#[tokio::test]
async fn without_a_certificate_of_the_authority_a_client_is_refused_in_the_handshake() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    let (ours, others) = (authority(folder, "our"), authority(folder, "other"));
    let tls = server_tls(self_signed(), Some(folder.join("our-ca.crt")));
    let trust = TrustedServers::Fingerprint(tls.fingerprint());
    let (mut listener, address) = secure_listener(tls, ListenOptions::default()).await;
    let pair = |(certificate, key)| Some(ClientCertificate { certificate, key });
    let asked = "the server asks for a certificate: give --tls-client-cert and --tls-client-key";
    for (certificate, refused) in [
        (pair(issued(folder, &ours, "alice")), None),
        (None, Some(asked)),
        (pair(issued(folder, &others, "mallory")), Some("the server does not accept our certificate")),
    ] {
        let options = TlsOptions { trust: trust.clone(), certificate };
        match (dial(&mut listener, "127.0.0.1", address.port(), &options).await, refused) {
            (Ok(_), None) => {}
            (Err(error @ ConnectError::Certificate { .. }), Some(words)) => {
                assert!(error.to_string().contains(words), "{error}");
            }
            (told, _) => panic!("{options:?}: {told:?}"),
        }
    }
    // Whoever asks for certificates knows who comes, so no token is needed where others can reach it.
    let url: ListenUrl = "wss://0.0.0.0:0".parse().expect("a URL");
    for (client_ca, may_listen) in [(Some(folder.join("our-ca.crt")), true), (None, false)] {
        let options = ListenOptions { tls: Some(server_tls(self_signed(), client_ca)), ..ListenOptions::default() };
        assert_eq!(Listener::bind(&url, options).await.is_ok(), may_listen);
    }
}

#[tokio::test]
async fn a_self_signed_certificate_is_for_every_name_of_the_machine_and_survives_its_server() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let kept = folder.path().join("tls.pem");
    let addresses = vec!["127.0.0.7".parse().expect("an address")];
    let source = || CertificateSource::SelfSigned { addresses: addresses.clone(), kept_in: Some(kept.clone()) };
    let first = server_tls(source(), None);
    let mode = std::fs::metadata(&kept).expect("it was made").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let second = server_tls(source(), None);
    assert_eq!(second.fingerprint(), first.fingerprint());
    assert_ne!(server_tls(self_signed(), None).fingerprint(), first.fingerprint());
    let (mut listener, address) = secure_listener(second, ListenOptions::default()).await;
    // The file with both serves as the authority; nobody but us can read it, so a real client would get a copy.
    let trust = trusting(TrustedServers::Ca(kept.clone()));
    for host in ["localhost", "127.0.0.1"] {
        dial(&mut listener, host, address.port(), &trust).await.expect("the certificate names it");
    }
}

#[tokio::test]
async fn each_end_is_told_when_the_other_speaks_no_tls() {
    let (mut plain, address) = websocket_listener(ListenOptions::default()).await;
    let error = dial(&mut plain, "127.0.0.1", address.port(), &TlsOptions::default()).await.expect_err("no TLS");
    assert!(error.to_string().contains("the server does not speak TLS there"), "{error}");

    let (mut secure, address) = secure_listener(server_tls(self_signed(), None), ListenOptions::default()).await;
    let asking = async {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it reads");
        let mut answer = Vec::new();
        // However it ends, it ends.
        let _ = stream.read_to_end(&mut answer).await;
        answer
    };
    let answer = tokio::select! {
        accepted = secure.accept() => panic!("nothing was to be accepted: {accepted:?}"),
        answer = within(asking) => answer,
    };
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
}

#[tokio::test]
async fn a_handshake_that_stops_halfway_is_cut_off_as_a_slow_head_is() {
    let options = ListenOptions { header_timeout: Duration::from_millis(100), ..ListenOptions::default() };
    let (mut listener, address) = secure_listener(server_tls(self_signed(), None), options).await;
    let asking = async {
        // Nothing at all, and the beginning of a TLS record.
        for begun in [&b""[..], &b"\x16\x03\x01\x02\x00\x01"[..]] {
            let mut slow = TcpStream::connect(address).await.expect("it listens");
            slow.write_all(begun).await.expect("it reads");
            let mut rest = Vec::new();
            let _ = slow.read_to_end(&mut rest).await;
        }
    };
    tokio::select! {
        accepted = listener.accept() => panic!("nothing was to be accepted: {accepted:?}"),
        () = within(asking) => {}
    }
}

#[tokio::test]
async fn a_secure_listener_needs_a_certificate_and_a_plain_one_refuses_it() {
    let bind = async |url: &str, tls| {
        let url: ListenUrl = url.parse().expect("a URL");
        let error = Listener::bind(&url, ListenOptions { tls, ..ListenOptions::default() }).await;
        error.expect_err("refused").to_string()
    };
    let missing = "unsupported --listen URL `wss://127.0.0.1:0` without a certificate: give --tls-cert and --tls-key, \
                   or --tls-self-signed";
    assert_eq!(bind("wss://127.0.0.1:0", None).await, missing);
    let unused =
        "a certificate is of use to `wss://` listeners only, not to ws://127.0.0.1:0: listen on `wss://IP:PORT`";
    assert_eq!(bind("ws://127.0.0.1:0", Some(server_tls(self_signed(), None))).await, unused);
}

#[test]
fn files_that_are_no_certificates_are_named_in_the_error() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (certificate, key) = issued(folder.path(), &authority(folder.path(), "our"), "one");
    let (_, other_key) = issued(folder.path(), &authority(folder.path(), "our"), "two");
    let missing = folder.path().join("missing");
    let load = |certificate: &Path, key: &Path| {
        let certificate = CertificateSource::Files { certificate: certificate.into(), key: key.into() };
        ServerTls::load(&ServerTlsOptions { certificate, client_ca: None }).expect_err("refused")
    };
    let error = load(&missing, &key).to_string();
    assert!(error.starts_with(&format!("cannot read the certificate {}: ", missing.display())), "{error}");
    let expected = format!("there is no certificate in {}; expected a PEM file", key.display());
    assert_eq!(load(&key, &key).to_string(), expected);
    let expected = format!("there is no private key in {}; expected a PEM file", certificate.display());
    assert_eq!(load(&certificate, &certificate).to_string(), expected);
    assert!(matches!(load(&certificate, &other_key), TlsError::Mismatch { .. }));
}
