//! Connections that the machine makes and accepts: every byte arrives once and in order, each direction ends for itself, and
//! nobody waits for a stream that is not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use exec_env::streams::{ByteStream, StreamAddress, StreamReason};
use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::TestEnvironment;
use crate::os_process::poll_pause;
use crate::test_data::SeededBytes;

const ECONNREFUSED: i32 = 111;
const ECONNRESET: i32 = 104;
const EADDRINUSE: i32 = 98;
const ENOENT: i32 = 2;

/// More than all windows together hold, so that both ends must go on reading.
const LARGE: usize = 6 << 20;

pub async fn what_is_sent_comes_back_byte_for_byte(env: &TestEnvironment) {
    let (far, stream) = connected(env).await;
    let (mut reader, mut writer) = far.into_split();
    let echo = tokio::spawn(async move { tokio::io::copy(&mut reader, &mut writer).await });
    for turn in 0..50 {
        let said = Bytes::from(format!("turn {turn}"));
        stream.write(said.clone()).await.expect("it is connected");
        assert_eq!(read_exactly(&*stream, said.len()).await, said);
    }
    stream.finish().await.expect("it is connected");
    assert_eq!(stream.read().await, Ok(Bytes::new()), "the echo ends when we do");
    assert_eq!(stream.read().await, Ok(Bytes::new()), "and stays ended");
    assert!(echo.await.expect("it does not panic").is_ok());
}

pub async fn an_end_in_one_direction_leaves_the_other_open(env: &TestEnvironment) {
    let (mut far, stream) = connected(env).await;
    far.shutdown().await.expect("it is connected");
    assert_eq!(stream.read().await, Ok(Bytes::new()));
    stream.write(Bytes::from_static(b"still here")).await.expect("only their direction has ended");
    stream.finish().await.expect("it is connected");
    let mut heard = String::new();
    far.read_to_string(&mut heard).await.expect("nobody has reset it");
    assert_eq!(heard, "still here");

    let (mut far, stream) = connected(env).await;
    stream.finish().await.expect("it is connected");
    assert_eq!(far.read(&mut [0; 8]).await.expect("nobody has reset it"), 0);
    far.write_all(b"so am I").await.expect("only our direction has ended");
    assert_eq!(read_exactly(&*stream, 7).await, "so am I");
}

pub async fn a_large_transfer_arrives_whole_in_both_directions_at_once(env: &TestEnvironment) {
    let (far, stream) = connected(env).await;
    let (theirs, ours) = (SeededBytes::new(1), SeededBytes::new(2));
    let (mut reader, mut writer) = far.into_split();
    let far_end = tokio::spawn(async move {
        let send = async {
            writer.write_all(&theirs.bytes(LARGE)).await.expect("it is connected");
            writer.shutdown().await.expect("it is connected");
        };
        let mut heard = Vec::new();
        let receive = async { reader.read_to_end(&mut heard).await.expect("nobody has reset it") };
        tokio::join!(send, receive);
        heard
    });
    let send = async {
        let bytes = Bytes::from(ours.bytes(LARGE));
        // In pieces of odd sizes, and one that is larger than a chunk.
        for (at, piece) in [(0, 1), (1, 4_095), (4_096, 700_000), (704_096, LARGE - 704_096)] {
            stream.write(bytes.slice(at..at + piece)).await.expect("it is connected");
        }
        stream.finish().await.expect("it is connected");
    };
    let ((), received) = tokio::join!(send, read_to_end(&*stream));
    let heard = far_end.await.expect("it does not panic");
    assert_eq!((received.len(), theirs.first_difference(0, &received)), (LARGE, None));
    assert_eq!((heard.len(), ours.first_difference(0, &heard)), (LARGE, None));
}

pub async fn where_nobody_listens_the_connection_is_refused(env: &TestEnvironment) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
    let address = StreamAddress::loopback(listener.local_addr().expect("it is bound").port());
    drop(listener);
    let refused = env.environment.streams().connect(address.clone()).await.err().expect("nobody listens");
    assert_eq!((refused.reason.clone(), &refused.address), (StreamReason::Os(ECONNREFUSED), &address), "{refused}");
    let nowhere = StreamAddress::Unix { path: env.scratch().join("nobody.sock") };
    let refused = env.environment.streams().connect(nowhere).await.err().expect("there is no socket");
    assert_eq!(refused.reason, StreamReason::Os(ENOENT), "{refused}");
}

pub async fn what_is_no_address_is_refused(env: &TestEnvironment) {
    let streams = env.environment.streams();
    for host in ["", "a b", "x/../y", "%00", &"x".repeat(300)] {
        let refused = streams.connect(StreamAddress::Tcp { host: host.to_owned(), port: 1 }).await.err();
        let refused = refused.expect(host);
        assert!(matches!(refused.reason, StreamReason::UnknownHost { .. }), "{host:?}: {refused}");
    }
    let long = StreamAddress::Unix { path: env.scratch().join("x".repeat(200)) };
    let refused = streams.listen(long).await.err().expect("no socket has so long a path");
    assert!(matches!(refused.reason, StreamReason::BadPath { .. }), "{refused}");
}

pub async fn a_stream_that_nobody_reads_stops_its_sender_and_nobody_else(env: &TestEnvironment) {
    let (mut flooding, ignored) = connected(env).await;
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let flood = tokio::spawn(async move {
        let block = vec![7; 64 << 10];
        while let Ok(bytes) = flooding.write(&block).await {
            counted.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    });
    assert!(!ignored.read().await.expect("it is connected").is_empty());
    settled(&sent).await;
    // Whoever does not read his end stops our writer the same way.
    let (_deaf, unread) = connected(env).await;
    let taken = Arc::new(AtomicU64::new(0));
    let counted = taken.clone();
    let writing = tokio::spawn(async move {
        let block = Bytes::from(vec![7; 64 << 10]);
        while unread.write(block.clone()).await.is_ok() {
            counted.fetch_add(block.len() as u64, Ordering::Relaxed);
        }
    });
    settled(&taken).await;
    let (sent, taken) = (sent.load(Ordering::Relaxed), taken.load(Ordering::Relaxed));
    // Ours, and what the kernel's buffers have grown to.
    assert!(sent < 64 << 20 && taken < 64 << 20, "{sent} and {taken} bytes went somewhere");

    what_is_sent_comes_back_byte_for_byte(env).await;
    assert_eq!(env.run("p", "say meanwhile").await.stdout(), "meanwhile\n");
    flood.abort();
    writing.abort();
}

pub async fn a_hundred_streams_go_on_beside_each_other(env: &TestEnvironment) {
    let far_end = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
    let address = StreamAddress::loopback(far_end.local_addr().expect("it is bound").port());
    let far_end = tokio::spawn(async move {
        let mut echoes = tokio::task::JoinSet::new();
        while let Ok((socket, _)) = far_end.accept().await {
            echoes.spawn(async move {
                let (mut reader, mut writer) = socket.into_split();
                tokio::io::copy(&mut reader, &mut writer).await
            });
        }
    });
    let conversations = (0..100).map(|number: u64| {
        let address = address.clone();
        async move {
            let stream = env.environment.streams().connect(address).await.expect("somebody listens");
            let said = Bytes::from(SeededBytes::new(number).bytes(20_000));
            stream.write(said.clone()).await.expect("it is connected");
            stream.finish().await.expect("it is connected");
            assert!(read_to_end(&*stream).await == said, "stream {number} carries what it was given");
        }
    });
    join_all(conversations).await;
    far_end.abort();
}

pub async fn the_machine_listens_and_its_connections_arrive(env: &TestEnvironment) {
    let streams = env.environment.streams();
    let listener = streams.listen(StreamAddress::loopback(0)).await.expect("the loopback has a free port");
    let StreamAddress::Tcp { port, .. } = *listener.address() else { panic!("it was asked for a port") };
    assert_ne!(port, 0, "it says which port it got");
    for turn in 0..3 {
        let mut caller = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
        let accepted = listener.accept().await.expect("somebody connected");
        assert_eq!(accepted.peer, Some(caller.local_addr().expect("it is connected").to_string()));
        let said = format!("call {turn}");
        caller.write_all(said.as_bytes()).await.expect("it is connected");
        assert_eq!(read_exactly(&*accepted.stream, said.len()).await, said);
        accepted.stream.write(Bytes::from_static(b"heard")).await.expect("it is connected");
        drop(accepted);
        let mut heard = String::new();
        caller.read_to_string(&mut heard).await.expect("an end, and no error");
        assert_eq!(heard, "heard", "what was written before the end arrives");
    }
    let taken = streams.listen(StreamAddress::loopback(port)).await.err().expect("it is in use");
    assert_eq!(taken.reason, StreamReason::Os(EADDRINUSE), "{taken}");
    drop(listener);
    // When it is dropped, nobody waits for it to have stopped.
    while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
        poll_pause().await;
    }
}

pub async fn unix_sockets_do_the_same_and_leave_no_file(env: &TestEnvironment) {
    let (streams, scratch) = (env.environment.streams(), env.scratch());
    let far = UnixListener::bind(scratch.join("far.sock")).expect("the folder is ours");
    let stream = streams.connect(StreamAddress::Unix { path: scratch.join("far.sock") }).await.expect("it listens");
    let (mut far, _) = far.accept().await.expect("somebody connected");
    stream.write(Bytes::from_static(b"hello")).await.expect("it is connected");
    stream.finish().await.expect("it is connected");
    let mut heard = String::new();
    far.read_to_string(&mut heard).await.expect("nobody has reset it");
    assert_eq!(heard, "hello");

    let path = scratch.join("own.sock");
    let listener = streams.listen(StreamAddress::Unix { path: path.clone() }).await.expect("the folder is ours");
    let mut caller = UnixStream::connect(&path).await.expect("it listens");
    let accepted = listener.accept().await.expect("somebody connected");
    accepted.stream.write(Bytes::from_static(b"welcome")).await.expect("it is connected");
    let mut heard = [0; 7];
    caller.read_exact(&mut heard).await.expect("it was written");
    assert_eq!((&heard, accepted.peer), (b"welcome", None));
    let taken = streams.listen(StreamAddress::Unix { path: path.clone() }).await.err().expect("it is in use");
    assert_eq!(taken.reason, StreamReason::Os(EADDRINUSE), "{taken}");
    drop(listener);
    while path.exists() {
        poll_pause().await;
    }
}

pub async fn a_socket_that_its_listener_left_behind_is_replaced_and_a_file_is_not(env: &TestEnvironment) {
    let (streams, scratch) = (env.environment.streams(), env.scratch());
    let path = scratch.join("left.sock");
    // Without removing its file, as one that was killed.
    drop(UnixListener::bind(&path).expect("the folder is ours"));
    let listener = streams.listen(StreamAddress::Unix { path: path.clone() }).await.expect("nobody listens there");
    UnixStream::connect(&path).await.expect("now somebody does");
    drop(listener);
    let file = scratch.join("file");
    std::fs::write(&file, "precious").expect("the folder is ours");
    let taken = streams.listen(StreamAddress::Unix { path: file.clone() }).await.err().expect("it is a file");
    assert_eq!(taken.reason, StreamReason::Os(EADDRINUSE), "{taken}");
    assert_eq!(std::fs::read_to_string(&file).expect("it is still there"), "precious");
}

pub async fn a_reset_is_seen_as_one_at_the_other_end(env: &TestEnvironment) {
    let (mut far, stream) = connected(env).await;
    stream.write(Bytes::from_static(b"x")).await.expect("it is connected");
    far.read_exact(&mut [0]).await.expect("it was written");
    stream.reset();
    drop(stream);
    let error = far.read(&mut [0]).await.expect_err("it is no end");
    assert_eq!(error.raw_os_error(), Some(ECONNRESET));

    let (far, stream) = connected(env).await;
    far.set_zero_linger().expect("it is a socket");
    drop(far);
    let error = stream.read().await.expect_err("it is no end");
    assert_eq!(error.reason, StreamReason::RESET, "{error}");
    // A write may be taken before anybody knows; sooner or later one is not.
    while stream.write(Bytes::from_static(b"x")).await.is_ok() {
        poll_pause().await;
    }
}

pub async fn a_stream_that_is_dropped_ends_at_the_other_end(env: &TestEnvironment) {
    let (mut far, stream) = connected(env).await;
    let said = SeededBytes::new(3).bytes(300_000);
    stream.write(Bytes::from(said.clone())).await.expect("it is connected");
    drop(stream);
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).await.expect("an end, and no error");
    assert!(heard == said, "what was written before it was dropped arrives");
}

pub async fn whoever_gives_up_waiting_loses_no_connection(env: &TestEnvironment) {
    let streams = env.environment.streams();
    let listener = streams.listen(StreamAddress::loopback(0)).await.expect("the loopback has a free port");
    let StreamAddress::Tcp { port, .. } = *listener.address() else { panic!("it was asked for a port") };
    // More often than a server lets requests wait.
    for _ in 0..1_500 {
        assert!(listener.accept().now_or_never().is_none(), "nobody has connected");
    }
    let mut caller = TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
    caller.write_all(b"here").await.expect("it is connected");
    let accepted = listener.accept().await.expect("somebody connected");
    for _ in 0..10 {
        let read = accepted.stream.read().now_or_never();
        if let Some(read) = read {
            assert_eq!(read, Ok(Bytes::from_static(b"here")));
            return;
        }
    }
    assert_eq!(read_exactly(&*accepted.stream, 4).await, "here");
}

pub async fn streams_that_were_dropped_make_room_for_others(env: &TestEnvironment) {
    let far = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
    let address = StreamAddress::loopback(far.local_addr().expect("it is bound").port());
    // More than a session may have at once.
    for _ in 0..300 {
        let stream = loop {
            match env.environment.streams().connect(address.clone()).await {
                Ok(stream) => break stream,
                // It may not know yet that the last ones were dropped.
                Err(error) => assert!(matches!(error.reason, StreamReason::TooMany { .. }), "{error}"),
            }
            poll_pause().await;
        };
        let (mut far_end, _) = far.accept().await.expect("somebody connected");
        drop(stream);
        assert_eq!(far_end.read(&mut [0]).await.expect("an end, and no error"), 0);
    }
}

/// A stream of the environment, and its other end.
async fn connected(env: &TestEnvironment) -> (TcpStream, Box<dyn ByteStream>) {
    let far = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
    let address = StreamAddress::loopback(far.local_addr().expect("it is bound").port());
    let stream = env.environment.streams().connect(address).await.expect("somebody listens");
    (far.accept().await.expect("somebody connected").0, stream)
}

async fn read_exactly(stream: &dyn ByteStream, length: usize) -> Bytes {
    let mut found = Vec::new();
    while found.len() < length {
        let bytes = stream.read().await.expect("it is connected");
        assert!(!bytes.is_empty(), "it ended after {} of {length} bytes", found.len());
        found.extend_from_slice(&bytes);
    }
    found.into()
}

async fn read_to_end(stream: &dyn ByteStream) -> Bytes {
    let mut found = Vec::new();
    loop {
        match stream.read().await.expect("it is connected") {
            bytes if bytes.is_empty() => return found.into(),
            bytes => found.extend_from_slice(&bytes),
        }
    }
}

/// Waits until a number has not grown for a while. On a slow machine it may grow on, to the same bound.
async fn settled(number: &AtomicU64) {
    let mut last = 0;
    let mut quiet = 0;
    while quiet < 10 {
        // not a wait: what has stopped sends no event
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = number.load(Ordering::Relaxed);
        quiet = if now == last && now > 0 { quiet + 1 } else { 0 };
        last = now;
    }
}
