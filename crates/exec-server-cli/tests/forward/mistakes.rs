//! What goes wrong, and what is said about it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::server::{Server, Transport};
use crate::support;
use crate::{Forwarding, answering, ask, free_port};

#[test]
fn a_port_that_refuses_there_resets_here_and_the_user_is_told() {
    let server = Server::start(Transport::WebSocket);
    let nobody = free_port();
    let mut forwarding = Forwarding::to(&server, &[&format!("0:{nobody}")]);
    let address = forwarding.listening();
    let mut caller = TcpStream::connect(&address).expect("it listens");
    let error = caller.read(&mut [0]).expect_err("nobody has sent an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    let own = caller.local_addr().expect("it was connected").to_string();
    forwarding.note(&[&own, &format!("cannot connect to localhost:{nobody}"), "connection refused"]);
}

#[test]
fn a_reset_is_passed_on_in_both_directions() {
    let server = Server::start(Transport::WebSocket);
    let far = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = far.local_addr().expect("it is bound").port();
    let mut forwarding = Forwarding::to(&server, &[&format!("0:{port}")]);
    let address = forwarding.listening();
    let mut near = TcpStream::connect(&address).expect("it listens");
    let (far_end, _) = far.accept().expect("it was carried there");
    reset(far_end);
    let error = near.read(&mut [0]).expect_err("nobody has sent an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);

    let mut near = TcpStream::connect(&address).expect("it listens");
    near.write_all(b"x").expect("it is connected");
    let (mut far_end, _) = far.accept().expect("it was carried there");
    far_end.read_exact(&mut [0]).expect("it was carried there");
    reset(near);
    let error = far_end.read(&mut [0]).expect_err("nobody has sent an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Closes it so that the other end sees an error.
fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).expect("it is a socket");
}

#[test]
fn an_address_that_cannot_be_listened_at_says_what_to_do() {
    let server = Server::start(Transport::Unix);
    let taken = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let taken = taken.local_addr().expect("it is bound").port();
    for (pair, words) in [
        (vec![format!("{taken}:80")], "the address is in use: end what listens there, or choose another"),
        (
            vec!["-R".to_owned(), format!("{taken}:80")],
            "the address is in use: end what listens there, or choose another",
        ),
        (vec!["192.0.2.1:0:80".to_owned()], "the machine has no such address"),
        (vec!["no such host:1:80".to_owned()], "is neither a name nor an address"),
        (vec!["/nonexistent/x.sock:80".to_owned()], "no such file or directory"),
        (vec![format!("/{}:80", "x".repeat(200))], "the path of a socket may have 107 bytes"),
    ] {
        let pair: Vec<&str> = pair.iter().map(String::as_str).collect();
        let output = server.finish(&[&["forward", "--connect", &server.url], &pair[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{pair:?}: {said}");
        assert!(said.contains(words), "{pair:?}: {said}");
    }
}

#[test]
fn a_command_line_that_means_nothing_is_refused() {
    let server = Server::start(Transport::Unix);
    for (args, code) in [
        (&["x:y"][..], 2),
        (&["1:2:3:4:5"], 2),
        (&["80:70000"], 2),
        (&["relative/path:80"], 2),
        (&["--preview", "0.0.0.0:0"], 2),
        (&["--open", "0"], 2),
        (&[], 1),
        (&["80:80", "build:"], 1),
    ] {
        let output = server.finish(&[&["forward", "--connect", &server.url], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn an_address_of_this_machine_is_not_forwarded_to_itself() {
    for args in [
        &["8080"][..],
        &["8080:127.0.0.1:8080"],
        &["0.0.0.0:8080:localhost:8080"],
        &["0.0.0.0:8080:127.9.9.9:8080"],
        &["127.0.0.1:8080:0.0.0.0:8080"],
        &["127.0.0.1:8080:localhost:8080"],
        &["/x.sock:/x.sock"],
        &["-R", "9:9"],
    ] {
        let mut forward = support::exec_server(&["forward", "--environment", "local"]);
        let output = support::finish(forward.args(args));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("forwarded to itself") && said.contains("`build:`"), "{args:?}: {said}");
    }
}

#[test]
fn what_listens_on_another_address_with_the_same_port_is_forwarded_to() {
    let there = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = there.local_addr().expect("it is bound").port();
    let mut forward = support::exec_server(&["forward", "--environment", "local"]);
    let mut forwarding = Forwarding::start(forward.arg(format!("127.0.0.2:{port}:localhost:{port}")));
    let _client = std::net::TcpStream::connect(forwarding.listening()).expect("it listens");
    there.accept().expect("the connection is carried");
}

#[test]
fn a_server_is_not_reached_through_its_own_streams() {
    let server = Server::start(Transport::WebSocket);
    let port = server.url.rsplit(':').next().expect("it has a port");
    let mut forwarding = Forwarding::to(&server, &[&format!("0:{port}")]);
    let url = format!("ws://{}", forwarding.listening());
    let output = server.finish(&["run", "--connect", &url, "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("HTTP 403"), "{said}");
    assert_eq!(server.run(&["--", "true"]).status.code(), Some(0), "others are served");
}

#[test]
fn what_a_ceiling_forbids_is_not_carried_and_the_audit_tells_what_is() {
    let home = tempfile::tempdir().expect("a folder can be made");
    let policy = home.path().join("policy.toml");
    std::fs::write(&policy, "network = false\n").expect("the folder is ours");
    let server = Server::start_with(&["--policy", &policy.display().to_string()]);
    let port = answering();
    for args in [&["-R", "0:80"][..], &["--open", &port.to_string()]] {
        let output = server.finish(&[&["forward", "--connect", &server.url], args].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("permits no network"), "{said}");
    }
    drop(server);

    let audit = home.path().join("audit/log");
    let server = Server::start_with(&["--audit", &audit.display().to_string()]);
    let mut forwarding = Forwarding::to(&server, &[&format!("0:{port}"), "-R", &format!("0:{port}")]);
    let address = forwarding.listening();
    assert_eq!(ask(&address, b"hello").expect("both ends end well"), b"hello");
    assert_eq!(forwarding.end(), Some(0));
    drop(server);
    let told = std::fs::read_to_string(&audit).expect("it was written");
    let lines: Vec<serde_json::Value> = told
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &serde_json::Value| line["event"] == "streamOpened")
        .collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line["method"].as_str(), line["address"].as_str(), line["outcome"].as_str()))
        .collect();
    let connected = format!("localhost:{port}");
    assert_eq!(
        told,
        [
            (Some("net/listen"), Some("127.0.0.1:0"), Some("done")),
            (Some("net/open"), Some(connected.as_str()), Some("done")),
        ]
    );
}
