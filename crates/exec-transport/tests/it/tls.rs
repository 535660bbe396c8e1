//! `wss://`: our client through a TLS end that forwards to our plain server, as a proxy would.

use std::net::SocketAddr;
use std::sync::Arc;

use exec_transport::{CloseReason, ConnectError, ConnectOptions, ConnectionEnd, ListenOptions, Target, connect};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{accept, closed, long_text, message, send, text, websocket_listener, within};

/// Both sides of a certificate for `localhost` that only they trust.
fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("key and certificate fit");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

/// Forwards one connection.
async fn proxy(listener: TcpListener, config: Arc<ServerConfig>, to: SocketAddr) {
    let (stream, _) = listener.accept().await.expect("a listener");
    // The client may refuse the certificate.
    let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await else { return };
    let mut inner = TcpStream::connect(to).await.expect("it listens");
    let _ = tokio::io::copy_bidirectional(&mut stream, &mut inner).await;
}

#[tokio::test]
async fn messages_go_both_ways_and_the_end_arrives() {
    let (server_config, client_config) = configs();
    let (mut listener, address) = websocket_listener(ListenOptions::default()).await;
    let front = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let port = front.local_addr().expect("bound").port();
    let proxy = tokio::spawn(proxy(front, server_config, address));
    let target: Target = format!("wss://localhost:{port}/").parse().expect("a URL");
    let options = ConnectOptions { tls: Some(client_config), ..ConnectOptions::default() };
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
    drop((server, client.receiver));
    within(proxy).await.expect("the proxy did not panic");
}

#[tokio::test]
async fn a_certificate_that_the_machine_does_not_trust_is_refused() {
    let (server_config, _) = configs();
    let front = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let address = front.local_addr().expect("bound");
    let proxy = tokio::spawn(proxy(front, server_config, address));
    let target: Target = format!("wss://localhost:{}/", address.port()).parse().expect("a URL");
    let error = within(connect(&target, &ConnectOptions::default())).await.expect_err("nobody knows this certificate");
    assert!(matches!(error, ConnectError::Tls { .. }), "{error}");
    within(proxy).await.expect("the proxy did not panic");
}
