//! Followers: what is pushed, what is fetched, in order and once.

use std::time::Duration;

use bytes::Bytes;
use exec_client::Options;
use exec_client::inbox::InboxLimits;
use exec_core::{Entry, EntryBody, ExitStatus, Page, Seq};
use exec_env::Environment;
use exec_env::process::{LogFollower, ProcessError, ProcessReason, ProcessVerb, ReadQuery, WaitCondition, Waited};
use exec_transport::Message;
use futures_util::FutureExt;
use serde_json::{Value, json};

use crate::peer::{OURS, Peer, command, connect, options, process_id, within};

async fn started(environment: &exec_client::RemoteEnvironment, peer: &mut Peer) -> Box<dyn LogFollower> {
    let id = process_id();
    let (started, ()) = tokio::join!(environment.processes().start(&id, command()), peer.start());
    started.expect("it was started");
    environment.processes().follow(&id, 0).await.expect("it is known")
}

/// The next page as text: output as it is, `<code>` for exited, `.` for closed.
async fn next(follower: &mut Box<dyn LogFollower>) -> String {
    match within(follower.next(1000)).await.expect("readable") {
        Some(page) => row(&page),
        None => "over".to_owned(),
    }
}

fn row(page: &Page) -> String {
    let gap = page.gap.map(|gap| format!("[{}-{}]", gap.from_seq, gap.to_seq)).unwrap_or_default();
    let texts = page.entries.iter().map(|Entry { body, .. }| match body {
        EntryBody::Output { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
        EntryBody::Exited(exit) => format!("<{}>", exit.shell_code()),
        EntryBody::Closed => ".".to_owned(),
    });
    gap + &texts.collect::<String>()
}

fn chunk(seq: Seq, text: &str) -> Value {
    json!({ "seq": seq, "stream": "stdout", "chunk": exec_wire::base64::encode(text.as_bytes()) })
}

/// A page of a log that runs, as our server tells it.
fn page(chunks: Value, first_seq: Seq, next_seq: Seq, dropped_bytes: u64) -> Value {
    json!({
        "chunks": chunks, "nextSeq": next_seq, "exited": false, "exitCode": null, "closed": false,
        "failure": null, "sandboxDenied": false,
        "head": { "firstSeq": first_seq, "nextSeq": next_seq, "heldBytes": 0, "droppedBytes": dropped_bytes, "closed": false },
    })
}

#[tokio::test]
async fn what_is_pushed_is_read_without_asking() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let mut follower = started(&environment, &mut peer).await;
    peer.push(1, "one ").await;
    assert_eq!(next(&mut follower).await, "one ");
    peer.push(2, "two ").await;
    peer.push_end(3, 7).await;
    let mut rest = String::new();
    while !rest.ends_with('.') {
        rest += &next(&mut follower).await;
    }
    assert_eq!(rest, "two <7>.");
    assert_eq!(next(&mut follower).await, "over");
    assert_eq!(environment.metrics().fetches, 0);
}

#[tokio::test]
async fn raw_frames_are_read_like_the_others() {
    let (environment, _stage, mut peer) = connect(OURS, Options { binary_frames: true, ..options() }).await;
    let mut follower = started(&environment, &mut peer).await;
    let header =
        exec_wire::binary::FrameHeader::Output { process_id: "p", seq: 1, stream: exec_wire::process::Stream::Pty };
    let mut frame = Vec::new();
    exec_wire::binary::encode(&mut frame, &header, b"\xff raw").expect("a short id");
    peer.send_raw(Message::Binary(frame.into())).await;
    let page = within(follower.next(1000)).await.expect("readable").expect("not over");
    let body = EntryBody::Output { stream: exec_core::Stream::Pty, bytes: Bytes::from_static(b"\xff raw") };
    assert_eq!(page.entries, [Entry { seq: 1, body }]);
}

#[tokio::test]
async fn output_before_the_answer_to_its_start_is_kept() {
    let (environment, _stage, mut peer) = connect(&[], options()).await;
    let id = process_id();
    let serve = async {
        let (start, _) = peer.expect("process/start").await;
        peer.push(1, "early ").await;
        peer.reply(&start, json!({ "processId": "p" })).await;
        peer.push(2, "late").await;
    };
    let (started, ()) = tokio::join!(environment.processes().start(&id, command()), serve);
    started.expect("it was started");
    let mut follower = environment.processes().follow(&id, 0).await.expect("it is known");
    let mut text = next(&mut follower).await;
    while text != "early late" {
        text += &next(&mut follower).await;
    }
}

#[tokio::test]
async fn what_comes_twice_or_out_of_order_is_read_once_and_in_order() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let mut follower = started(&environment, &mut peer).await;
    peer.push(1, "a").await;
    peer.push(1, "a").await;
    peer.push(3, "c").await;
    let serve = async {
        // The hole is fetched, because nobody knows whether it will be pushed.
        let (read, params) = peer.expect("process/read").await;
        assert_eq!(params["afterSeq"], 1);
        peer.push(2, "b").await;
        peer.reply(&read, page(json!([chunk(2, "b"), chunk(3, "c")]), 1, 4, 0)).await;
        peer.push(2, "b").await;
        peer.push(4, "d").await;
    };
    let read = async {
        let mut text = String::new();
        while text.len() < 4 {
            text += &next(&mut follower).await;
        }
        text
    };
    let (text, ()) = tokio::join!(read, serve);
    assert_eq!(text, "abcd");
}

/// A server pushes from such followers, and whatever else it has to write waits while it waits for a page.
#[tokio::test]
async fn a_follower_is_ready_only_while_a_page_can_be_had_without_waiting() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let mut follower = started(&environment, &mut peer).await;
    let at_once = |follower: &mut Box<dyn LogFollower>| {
        let page = follower.next(2).now_or_never().expect("it was ready").expect("readable");
        page.as_ref().map(row)
    };
    peer.push(3, "c").await;
    let serve = async {
        let chunks = json!([chunk(1, "a"), chunk(2, "b"), chunk(3, "c")]);
        peer.answer("process/read", page(chunks, 1, 4, 0)).await;
    };
    tokio::join!(within(follower.ready()), serve);
    assert_eq!(at_once(&mut follower).as_deref(), Some("ab"));
    within(follower.ready()).await;
    assert_eq!(at_once(&mut follower).as_deref(), Some("c"));
    assert!(follower.ready().now_or_never().is_none(), "all that was fetched is read");
    peer.push(4, "d").await;
    within(follower.ready()).await;
    assert_eq!(at_once(&mut follower).as_deref(), Some("d"));
    assert!(follower.ready().now_or_never().is_none(), "all that was pushed is read");
    peer.push_end(5, 0).await;
    let mut rest = String::new();
    while !rest.ends_with("over") {
        within(follower.ready()).await;
        rest += &at_once(&mut follower).unwrap_or_else(|| "over".to_owned());
    }
    assert_eq!(rest, "<0>.over");
}

#[tokio::test]
async fn a_log_that_forgot_its_oldest_entries_is_a_gap_with_numbers() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let mut follower = started(&environment, &mut peer).await;
    peer.push(9, "i").await;
    let serve = async {
        peer.answer("process/read", page(json!([chunk(8, "h"), chunk(9, "i")]), 8, 10, 700)).await;
    };
    let (page, ()) = tokio::join!(within(follower.next(1000)), serve);
    let page = page.expect("readable").expect("not over");
    assert_eq!(row(&page), "[1-7]hi");
    assert_eq!(page.gap.map(|gap| gap.dropped_bytes), Some(700));
    assert_eq!((page.head.first_seq, page.head.next_seq), (8, 10));
}

#[tokio::test]
async fn a_full_window_lets_go_of_what_comes_and_fetches_it_later() {
    let inbox_limits = InboxLimits { window_bytes: 1000, total_bytes: 5000 };
    let (environment, _stage, mut peer) = connect(OURS, Options { inbox_limits, ..options() }).await;
    let mut follower = started(&environment, &mut peer).await;
    for seq in 1..=50 {
        peer.push(seq, &format!("{seq:_>100}")).await;
    }
    // Meanwhile other calls are answered, and memory stays within its limits.
    let serve = async {
        peer.answer("environment/status", json!({ "status": "ready" })).await;
    };
    let (status, ()) = tokio::join!(environment.link().call(exec_wire::environment::StatusParams {}), serve);
    status.expect("answered");
    assert!(environment.metrics().held_bytes <= 1000, "{:?}", environment.metrics());
    assert_eq!(environment.metrics().lag_entries, 50);

    let serve = async {
        let (read, params) = peer.expect("process/read").await;
        let after = params["afterSeq"].as_u64().expect("a number");
        assert!(after > 0, "what was held is read first");
        let chunks: Vec<Value> = (after + 1..=50).map(|seq| chunk(seq, &format!("{seq:_>100}"))).collect();
        peer.reply(&read, page(chunks.into(), 1, 51, 0)).await;
    };
    let read = async {
        let mut text = String::new();
        while text.len() < 5000 {
            text += &next(&mut follower).await;
        }
        text
    };
    let (text, ()) = tokio::join!(read, serve);
    let expected: String = (1..=50).map(|seq| format!("{seq:_>100}")).collect();
    assert_eq!(text, expected);
    assert_eq!(environment.metrics().lag_entries, 0);
}

#[tokio::test]
async fn after_a_break_the_push_goes_on_where_it_was_without_fetching() {
    let (environment, mut server, mut peer) = connect(OURS, options()).await;
    let mut follower = started(&environment, &mut peer).await;
    peer.push(1, "a").await;
    assert_eq!(next(&mut follower).await, "a");
    peer.cut();
    let mut peer = server.next().await;
    let (hello, params) = peer.expect("initialize").await;
    assert_eq!(params["resumeFrom"], json!({ "p": 1 }));
    peer.reply(&hello, json!({ "sessionId": "s", "resumeFrom": { "p": 1 } })).await;
    peer.initialized().await;
    peer.push(2, "b").await;
    assert_eq!(next(&mut follower).await, "b");
    assert_eq!(environment.metrics().fetches, 0);
}

#[tokio::test]
async fn a_plain_server_is_asked_for_what_was_missed() {
    let (environment, mut server, mut peer) = connect(&[], options()).await;
    let mut follower = started(&environment, &mut peer).await;
    peer.push(1, "a").await;
    assert_eq!(next(&mut follower).await, "a");
    peer.cut();
    let serve = async {
        let mut peer = server.accept(&[]).await;
        let (read, params) = peer.expect("process/read").await;
        assert_eq!(params, json!({ "processId": "p", "afterSeq": 1, "maxBytes": null, "waitMs": null }));
        // Two chunks; their seqs tell where exited and closed are.
        let result = json!({
            "chunks": [chunk(2, "b"), chunk(4, "d")], "nextSeq": 6, "exited": true, "exitCode": 3, "closed": true,
            "failure": null, "sandboxDenied": false,
        });
        peer.reply(&read, result).await;
        peer
    };
    let (page, _peer) = tokio::join!(within(follower.next(1000)), serve);
    assert_eq!(row(&page.expect("readable").expect("not over")), "b<3>d.");
    assert_eq!(next(&mut follower).await, "over");
}

#[tokio::test]
async fn a_process_nobody_here_has_started_is_asked_for_first() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let id = process_id();
    let serve = async {
        peer.reject("process/read", json!({ "code": -32600, "message": "unknown process id p" })).await;
    };
    let (follower, ()) = tokio::join!(environment.processes().follow(&id, 0), serve);
    assert_eq!(follower.err(), Some(ProcessError::new(ProcessVerb::Follow, &id, ProcessReason::UnknownProcess)));
    let serve = async {
        peer.answer("process/read", page(json!([chunk(1, "a")]), 1, 3, 0)).await;
        peer.answer("process/read", page(json!([chunk(1, "a"), chunk(2, "b")]), 1, 3, 0)).await;
        peer.push(3, "c").await;
    };
    let follow = async {
        let mut follower = environment.processes().follow(&id, 0).await.expect("it is there");
        let mut text = String::new();
        while text.len() < 3 {
            text += &next(&mut follower).await;
        }
        text
    };
    let (text, ()) = tokio::join!(follow, serve);
    assert_eq!(text, "abc");
}

#[tokio::test]
async fn several_followers_see_the_same_and_a_gone_one_holds_nothing() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let mut first = started(&environment, &mut peer).await;
    let mut second = environment.processes().follow(&process_id(), 0).await.expect("it is known");
    peer.push(1, "a").await;
    assert_eq!(next(&mut first).await, "a");
    assert!(environment.metrics().held_bytes > 0, "the second has not read it");
    assert_eq!(next(&mut second).await, "a");
    assert_eq!(environment.metrics().held_bytes, 0);
    drop(first);
    peer.push(2, "b").await;
    assert_eq!(next(&mut second).await, "b");
    drop(second);
    assert_eq!(environment.metrics().lag_entries, 0);
}

#[tokio::test]
async fn a_forgotten_process_wakes_its_followers() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let mut follower = started(&environment, &mut peer).await;
    let id = process_id();
    let serve = async {
        peer.answer("process/forget", json!({})).await;
    };
    let (page, forgotten, ()) = tokio::join!(within(follower.next(1)), environment.processes().forget(&id), serve);
    assert_eq!(forgotten, Ok(()));
    assert_eq!(page, Err(ProcessError::new(ProcessVerb::Follow, &id, ProcessReason::UnknownProcess)));
}

#[tokio::test]
async fn a_server_that_cannot_wait_is_waited_for_here() {
    let (environment, _stage, mut peer) = connect(&[], options()).await;
    let _follower = started(&environment, &mut peer).await;
    let id = process_id();
    let processes = environment.processes();
    peer.push(1, "list").await;
    peer.push(2, "ening").await;
    let until = WaitCondition::Output { regex: "listen(ing)?".into(), after: 0 };
    let serve = async {
        // The window may have dropped what the other follower has read; then it is fetched.
        loop {
            let (read, params) = peer.expect("process/read").await;
            let after = params["afterSeq"].as_u64().expect("a number");
            let all = [chunk(1, "list"), chunk(2, "ening")];
            let result = json!({
                "chunks": all[after as usize..], "nextSeq": 3, "exited": false, "exitCode": null, "closed": false,
                "failure": null, "sandboxDenied": false,
            });
            peer.reply(&read, result).await;
        }
    };
    let output = |regex: &str, after| WaitCondition::Output { regex: regex.into(), after };
    let waiting = async {
        let waited = within(processes.wait(&id, until, None)).await;
        let text = Bytes::from_static(b"list");
        // `listen` spans two entries; the shorter match is not there before the second.
        assert!(
            matches!(&waited, Ok(Waited::Matched { seq: 2, text: found }) if found.starts_with(&text)),
            "{waited:?}"
        );
        // It may begin before the place that is waited from, but not end there.
        let waited = within(processes.wait(&id, output("listen", 1), None)).await;
        assert_eq!(waited, Ok(Waited::Matched { seq: 2, text: Bytes::from_static(b"listen") }));
        let early = processes.wait(&id, output("listen", 2), Some(Duration::from_millis(100))).await;
        assert_eq!(early, Ok(Waited::DeadlinePassed));
    };
    tokio::select! {
        () = waiting => {}
        () = serve => unreachable!("it serves for ever"),
    }
    peer.push_end(3, 1).await;
    let serve = async {
        loop {
            let (read, params) = peer.expect("process/read").await;
            let after = params["afterSeq"].as_u64().expect("a number");
            let all = [chunk(1, "list"), chunk(2, "ening")];
            let result = json!({
                "chunks": all[(after as usize).min(2)..], "nextSeq": 5, "exited": true, "exitCode": 1, "closed": true,
                "failure": null, "sandboxDenied": false,
            });
            peer.reply(&read, result).await;
        }
    };
    let ended = tokio::select! {
        ended = within(processes.wait(&id, output("never", 2), None)) => ended,
        () = serve => unreachable!("it serves for ever"),
    };
    let Err(ProcessError { reason: ProcessReason::Ended { exit }, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(exit.status, ExitStatus::Code(1));
}

#[tokio::test]
async fn a_look_tells_the_whole_head_whatever_its_budget() {
    let (environment, _stage, mut peer) = connect(OURS, options()).await;
    let id = process_id();
    let serve = async {
        let (read, params) = peer.expect("process/read").await;
        assert_eq!(params, json!({ "processId": "p", "afterSeq": 0, "maxBytes": 1, "waitMs": 1500 }));
        let result = json!({
            "chunks": [chunk(1, "out")], "nextSeq": 2, "exited": true, "exitCode": 3, "closed": true,
            "failure": null, "sandboxDenied": false,
            "exit": { "kind": "exited", "code": 3 },
            "head": {
                "firstSeq": 1, "nextSeq": 5, "heldBytes": 7, "droppedBytes": 0, "exitSeq": 3, "closed": true,
                "stalled": false,
            },
        });
        peer.reply(&read, result).await;
    };
    let wait = std::time::Duration::from_millis(1500);
    let query = ReadQuery { after: 0, max_bytes: Some(1), wait };
    let (page, ()) = tokio::join!(environment.processes().read(&id, query), serve);
    let page = page.expect("readable");
    assert_eq!(row(&page), "out");
    let head = page.head;
    assert_eq!((head.first_seq, head.next_seq, head.held_bytes, head.closed), (1, 5, 7, true));
    assert_eq!(head.exit.map(|(seq, exit)| (seq, exit.status)), Some((3, ExitStatus::Code(3))));
}
