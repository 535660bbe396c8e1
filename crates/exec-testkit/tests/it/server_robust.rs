//! What our server bears where the original does not (WIRE A.1): crowds, floods, clients that stop, and clients that lie.
//!
//! Nothing here is a matter of speed: an order of events, a count or a bound of memory decides.

mod client;
mod hostile_clients;

use serde_json::{Value, json};

use client::{Arrivals, Served, flood, in_time, shell};

/// Memory that the server may use, whatever its clients do.
const MEMORY_BYTES: u64 = 64 << 20;

#[tokio::test]
async fn a_chatty_process_and_a_thousand_pipelined_requests_are_all_answered() {
    const BYTES: u64 = 16 << 20;
    let served = Served::begin().await;
    let bell = served.bell("done");
    let mut client = served.client().await;
    client.sh("chatty", &flood(BYTES, 1, &bell)).await;
    let first = client.ask("environment/status", Value::Null).await;
    for _ in 1..999 {
        client.ask("process/read", json!({"processId": "chatty", "afterSeq": 0, "maxBytes": 1})).await;
    }
    let last = client.ask("environment/status", Value::Null).await;
    let mut arrivals = Arrivals::default();
    let mut unanswered: std::collections::BTreeSet<i64> = (first..=last).collect();
    in_time(async {
        while !unanswered.is_empty() || arrivals.closed() < 1 {
            let message = client.next().await;
            match message["id"].as_i64() {
                Some(id) => assert!(unanswered.remove(&id) && message["result"].is_object(), "{message}"),
                None => arrivals.take(&message, |_| 1),
            }
        }
    })
    .await;
    assert_eq!(arrivals.of("chatty").expect("it was heard").bytes, BYTES);
}

#[tokio::test]
async fn a_client_that_reads_misses_nothing_of_a_flood_many_times_the_spool() {
    const BYTES: u64 = 64 << 20;
    let served = Served::begin().await;
    let bell = served.bell("done");
    let mut client = served.client().await;
    let mut start = shell("flood", &format!("read go; {}", flood(BYTES, 1, &bell)), true);
    start["spoolBytes"] = json!(1 << 20);
    let started = client.call("process/start", start).await;
    assert_eq!(started["result"]["processId"], "flood");
    client.ask("process/write", json!({"processId": "flood", "writeId": "go", "chunk": "Z28K"})).await;
    let mut arrivals = Arrivals::default();
    in_time(async {
        while arrivals.closed() < 1 {
            arrivals.take(&client.next().await, |_| 1);
        }
    })
    .await;
    assert_eq!(arrivals.of("flood").expect("it was heard").bytes, BYTES);
}

#[tokio::test]
async fn terminate_does_not_wait_behind_a_long_poll() {
    let served = Served::begin().await;
    let mut client = served.client().await;
    client.sh("polled", "exec sleep 1000").await;
    client.sh("other", "exec sleep 1000").await;
    let poll = client.ask("process/read", json!({"processId": "polled", "waitMs": 20000})).await;
    let answer = client.call("process/terminate", json!({"processId": "other"})).await;
    assert_eq!(answer["result"]["running"], true);
    // The poll is still under way, and ends with its process.
    client.forget_heard();
    client.ask("process/terminate", json!({"processId": "polled"})).await;
    let answer = client.answer(poll).await;
    assert_eq!((&answer["result"]["exited"], &answer["result"]["exitCode"]), (&json!(true), &json!(137)));
}

#[tokio::test]
async fn an_echo_overtakes_four_floods_alone() {
    const ECHOES: u64 = 40;
    /// Between a keystroke and its echo there may be what lies in sockets already, and a turn of each flood; not what
    /// the floods have printed meanwhile.
    const BYTES_PER_ECHO: u64 = 16 << 20;
    let served = Served::begin().await;
    let mut client = served.client().await;
    for number in 0..4 {
        client.sh(&format!("flood {number}"), "exec yes flooding").await;
    }
    let started = client.call("process/start", shell("echo", "while read x; do echo $x; done", true)).await;
    assert_eq!(started["result"]["processId"], "echo");
    client.forget_heard();
    let mut flooded = 0;
    for number in 0..ECHOES {
        let chunk = base64_simd::STANDARD.encode_to_string(format!("{number}\n"));
        client.ask("process/write", json!({"processId": "echo", "writeId": number.to_string(), "chunk": chunk})).await;
        loop {
            let message = client.next().await;
            let params = &message["params"];
            if params["processId"] == "echo" {
                assert_eq!(params["chunk"], chunk, "{message}");
                break;
            }
            flooded += params["chunk"].as_str().map_or(0, |chunk| chunk.len() as u64 / 4 * 3);
        }
    }
    assert!(flooded > 0, "the floods had their turns too");
    assert!(flooded / ECHOES < BYTES_PER_ECHO, "{} bytes of floods for each echo", flooded / ECHOES);
}

#[tokio::test]
async fn an_echo_overtakes_a_file_on_the_same_connection_alone() {
    const BLOCK_BYTES: u64 = 1 << 20;
    const BLOCKS: u64 = 64;
    const ECHOES: u64 = 2;
    let served = Served::begin().await;
    let file = served.folder.path().join("file");
    std::fs::write(&file, vec![b'x'; (BLOCKS * BLOCK_BYTES) as usize]).expect("the folder is ours");
    let mut client = served.client().await;
    let started = client.call("process/start", shell("echo", "while read x; do echo $x; done", true)).await;
    assert_eq!(started["result"]["processId"], "echo");
    let path = format!("file://{}", file.display());
    let opened = client.call("fs/open", json!({"handleId": "h", "path": path})).await;
    assert_eq!(opened["result"]["handleId"], "h", "{opened}");
    let mut overtaken = 0;
    for number in 0..ECHOES {
        client.forget_heard();
        let mut blocks = std::collections::BTreeSet::new();
        for block in 0..BLOCKS {
            let params = json!({"handleId": "h", "offset": block * BLOCK_BYTES, "len": BLOCK_BYTES});
            blocks.insert(client.ask("fs/readBlock", params).await);
        }
        let chunk = base64_simd::STANDARD.encode_to_string(format!("{number}\n"));
        client.ask("process/write", json!({"processId": "echo", "writeId": number.to_string(), "chunk": chunk})).await;
        in_time(async {
            while !blocks.is_empty() {
                let message = client.next().await;
                match message["id"].as_i64() {
                    Some(id) => drop(blocks.remove(&id)),
                    None if message["params"]["chunk"] == chunk => overtaken += blocks.len() as u64,
                    None => {}
                }
            }
        })
        .await;
    }
    // Before it are those that lay in sockets already, or left while the shell woke up; behind it, most of the file.
    assert!(overtaken / ECHOES > BLOCKS / 2, "an echo overtook {} of {BLOCKS} blocks", overtaken / ECHOES);
}

#[tokio::test]
async fn a_client_that_stops_reading_costs_little_and_loses_nothing_alone() {
    const FLOODS: u64 = 20;
    const BYTES: u64 = 8 << 20;
    let served = Served::begin().await;
    let bell = served.bell("done");
    let mut frozen = served.client().await;
    for seed in 0..FLOODS {
        frozen.ask("process/start", shell(&seed.to_string(), &flood(BYTES, seed, &bell), false)).await;
    }
    // The children are not held up by a client that does not read.
    in_time(bell.rung(FLOODS as usize)).await;
    let used = served.resident_bytes();
    assert!(used < MEMORY_BYTES, "{used} bytes");
    let mut other = served.client().await;
    assert_eq!(other.call("environment/status", json!({})).await["result"]["status"], "ready");
    other.sh("p", "echo served").await;
    // It reads again.
    let mut arrivals = Arrivals::default();
    in_time(async {
        while arrivals.closed() < FLOODS as usize {
            arrivals.take(&frozen.next().await, |process| process.parse().expect("processes are called by their seed"));
        }
    })
    .await;
    for seed in 0..FLOODS {
        assert_eq!(arrivals.of(&seed.to_string()).map(|arrived| arrived.bytes), Some(BYTES));
    }
}

#[tokio::test]
async fn a_half_open_link_is_taken_over_at_once() {
    let served = Served::begin().await;
    let mut old = served.client().await;
    old.sh("p", "while :; do sleep 1000; done").await;
    // Nothing tells the server that the old link is dead: it is just silent.
    let mut new = served.resume(&old.session.clone()).await;
    let answer = new.call("process/terminate", json!({"processId": "p"})).await;
    assert_eq!(answer["result"]["running"], true);
    let told = old.next().await;
    assert_eq!((&told["method"], &told["params"]["sessionId"]), (&json!("session/takenOver"), &json!(old.session)));
    assert_eq!(old.receive().await, None);
}

#[tokio::test]
async fn a_start_that_outlives_its_connection_is_heard_on_the_next() {
    let served = Served::begin().await;
    let mut old = served.client().await;
    // A keeper that stands still makes a start that takes as long as we like.
    let keeper = served.keeper();
    rustix::process::kill_process(keeper, rustix::process::Signal::STOP).expect("it is our child's child");
    old.ask("process/start", shell("slow", "echo heard", false)).await;
    // Answered behind the start, so the start is under way.
    old.call("environment/status", json!({})).await;
    let mut new = served.resume(&old.session.clone()).await;
    rustix::process::kill_process(keeper, rustix::process::Signal::CONT).expect("it is our child's child");
    let mut output = String::new();
    loop {
        let notice = new.next().await;
        match notice["method"].as_str() {
            Some("process/output") => output.push_str(notice["params"]["chunk"].as_str().expect("base64")),
            Some("process/closed") => break,
            _ => {}
        }
    }
    assert_eq!(output, base64_simd::STANDARD.encode_to_string("heard\n"));
}

#[tokio::test]
async fn output_never_precedes_the_reply_to_its_start() {
    const STARTS: usize = 200;
    let served = Served::begin().await;
    let mut client = served.client().await;
    let mut starts = Vec::new();
    for number in 0..STARTS {
        let name = number.to_string();
        starts.push((client.ask("process/start", shell(&name, "echo quick", false)).await, name));
    }
    let mut closed = 0;
    let mut replied = std::collections::HashSet::new();
    in_time(async {
        while closed < STARTS {
            let message = client.next().await;
            if let Some(id) = message["id"].as_i64() {
                let (_, name) = starts.iter().find(|(start, _)| *start == id).expect("only starts were asked for");
                assert_eq!(message["result"]["processId"], **name, "{message}");
                replied.insert(name.clone());
                continue;
            }
            let process = message["params"]["processId"].as_str().expect("a notice of a process");
            assert!(replied.contains(process), "{message} came before the reply");
            closed += usize::from(message["method"] == "process/closed");
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_printed_without_a_connection_arrives_whole_after_a_resume_alone() {
    const BYTES: u64 = 100_000_000;
    const PAGE_BYTES: u64 = 32 << 20;
    let served = Served::begin().await;
    let (go, done) = (served.bell("go"), served.bell("done"));
    let mut client = served.client().await;
    client.sh("p", &format!("read x < {}; {}", go.path(), flood(BYTES, 7, &done))).await;
    let session = client.session.clone();
    drop(client);
    std::fs::write(go.path(), "\n").expect("the child reads");
    in_time(done.rung(1)).await;
    let mut client = served.resume(&session).await;
    let mut arrivals = Arrivals::default();
    let page = client.call("process/read", json!({"processId": "p", "afterSeq": 0})).await;
    let page = &page["result"];
    arrivals.take_page("p", page, 7);
    let read = arrivals.of("p").expect("a page came");
    assert!(read.bytes <= PAGE_BYTES && read.bytes > PAGE_BYTES / 2, "{} bytes in one page", read.bytes);
    assert_eq!(page["nextSeq"], read.seq + 1);
    // The rest is pushed, so that the page must not tell of the end yet.
    assert_eq!((&page["exited"], &page["exitCode"], &page["closed"]), (&json!(false), &Value::Null, &json!(false)));
    in_time(async {
        while arrivals.closed() < 1 {
            arrivals.take(&client.next().await, |_| 7);
        }
    })
    .await;
    let arrived = arrivals.of("p").expect("it was heard");
    assert_eq!((arrived.bytes, arrived.exited), (BYTES, true));
    let used = served.resident_bytes();
    assert!(used < 4 * MEMORY_BYTES, "{used} bytes");
}

#[tokio::test]
async fn pages_of_a_limited_size_add_up_to_everything() {
    const BYTES: u64 = 3 << 20;
    let served = Served::begin().await;
    let bell = served.bell("done");
    let mut client = served.client().await;
    client.sh("p", &flood(BYTES, 9, &bell)).await;
    in_time(bell.rung(1)).await;
    let mut arrivals = Arrivals::default();
    let mut after = 0;
    loop {
        let params = json!({"processId": "p", "afterSeq": after, "maxBytes": 100_000, "waitMs": 20000});
        let page = client.call("process/read", params).await;
        let page = &page["result"];
        arrivals.take_page("p", page, 9);
        let next = page["nextSeq"].as_u64().expect("a page has a next seq");
        if page["chunks"].as_array().is_some_and(Vec::is_empty) {
            break;
        }
        assert_eq!(next, arrivals.of("p").expect("a page came").seq + 1);
        after = next - 1;
    }
    assert_eq!(arrivals.of("p").map(|arrived| arrived.bytes), Some(BYTES));
}
