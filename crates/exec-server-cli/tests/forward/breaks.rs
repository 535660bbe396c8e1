//! Connections that break, and servers that are killed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use exec_testkit::proxy::CuttingProxy;
use exec_testkit::test_data::SeededBytes;

use crate::server::{Server, Transport};
use crate::{Forwarding, answering, ask};

/// More than all windows and the kernel's buffers hold.
const LARGE: usize = 24 << 20;

#[test]
fn what_is_carried_survives_connections_that_break() {
    let server = Server::start(Transport::WebSocket);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a test can make a runtime");
    let address = server.url.trim_start_matches("ws://").parse().expect("an address");
    let proxy = runtime.block_on(CuttingProxy::start(address));
    let far = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = far.local_addr().expect("it is bound").port();
    let pair = format!("0:{port}");
    let url = format!("ws://{}", proxy.address());
    let mut forwarding = Forwarding::start(&mut server.command(&["forward", "--connect", &url, &pair]));
    let mut near = TcpStream::connect(forwarding.listening()).expect("it listens");
    let (far, _) = far.accept().expect("it was carried there");
    let (ours, theirs) = (SeededBytes::new(1), SeededBytes::new(2));

    std::thread::scope(|scope| {
        let mut writing = near.try_clone().expect("it is a socket");
        scope.spawn(move || {
            writing.write_all(&ours.bytes(LARGE)).expect("it is connected");
            writing.shutdown(std::net::Shutdown::Write).expect("it is connected");
        });
        let mut far_writing = far.try_clone().expect("it is a socket");
        scope.spawn(move || {
            far_writing.write_all(&theirs.bytes(LARGE)).expect("it is connected");
            far_writing.shutdown(std::net::Shutdown::Write).expect("it is connected");
        });
        let heard = scope.spawn(move || read_all(far));
        // Five times in the middle of what is carried.
        let mut offset = 0;
        for _ in 0..5 {
            let mut received = vec![0; LARGE / 8];
            near.read_exact(&mut received).expect("it survives");
            assert_eq!(theirs.first_difference(offset, &received), None);
            offset += received.len() as u64;
            proxy.cut();
        }
        let rest = read_all(near);
        assert_eq!((rest.len(), theirs.first_difference(offset, &rest)), (LARGE - offset as usize, None));
        let heard = heard.join().expect("it does not panic");
        assert_eq!((heard.len(), ours.first_difference(0, &heard)), (LARGE, None));
    });
    assert!(proxy.counts().connections >= 3, "it was cut: {:?}", proxy.counts());
    assert_eq!(forwarding.end(), Some(0));
}

fn read_all(mut stream: TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).expect("an end, and no error");
    heard
}

#[test]
fn a_server_that_is_killed_takes_its_streams_with_it_and_its_listeners_come_back() {
    let mut server = Server::start_durable();
    let here = answering();
    let far = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let port = far.local_addr().expect("it is bound").port();
    let mut forwarding = Forwarding::to(&server, &[&format!("0:{port}"), "-R", &format!("0:{here}")]);
    let (forth, back) = (forwarding.listening(), forwarding.listening());
    let mut near = TcpStream::connect(&forth).expect("it listens");
    near.write_all(b"x").expect("it is connected");
    let (mut far_end, _) = far.accept().expect("it was carried there");
    far_end.read_exact(&mut [0]).expect("it was carried there");
    assert_eq!(ask(&back, b"hello").expect("both ends end well"), b"hello");

    server.crash_and_return();
    let error = near.read(&mut [0]).expect_err("nobody has sent an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    // In either order: what was carried is lost, the listener is lost, and it is back.
    let mut notes = Vec::new();
    while !notes.iter().any(|note: &String| note.contains(&format!("listening at {back} again"))) {
        let event = forwarding.event();
        notes.push(event["message"].as_str().unwrap_or_else(|| panic!("{event}")).to_owned());
    }
    assert!(notes.iter().any(|note| note.contains("cannot accept at") && note.contains("restarted")), "{notes:?}");
    assert_eq!(ask(&back, b"again").expect("both ends end well"), b"again");
    // And new connections are carried as before.
    let mut near = TcpStream::connect(&forth).expect("it still listens");
    near.write_all(b"y").expect("it is connected");
    let (mut far_end, _) = far.accept().expect("it was carried there");
    far_end.read_exact(&mut [0]).expect("it was carried there");
    let lost = |note: &String| note.contains("connection from") && note.contains("restarted");
    while !notes.iter().any(lost) {
        let event = forwarding.event();
        notes.push(event["message"].as_str().unwrap_or_else(|| panic!("{event}")).to_owned());
    }
    drop((near, far_end));
}
