//! What our server survives where Codex's does not (WIRE A.1): many clients, floods, clients that stop reading, and
//! clients that break the protocol.
//!
//! No test here measures time: an order of events, a count or a bound of memory decides.

mod client;
mod hostile_clients;
mod hostile_memory;
mod idle;
mod odd_places;
mod once;
mod open_files;
mod starvation;
mod survivors;

use serde_json::{Value, json};

use client::{Client, ReceivedLogs, ServerFixture, flood, shell, with_deadline};

/// Memory that the server may use, whatever its clients do.
const MEMORY_BYTES: u64 = 64 << 20;

#[tokio::test]
async fn a_chatty_process_and_a_thousand_pipelined_requests_are_all_answered() {
    const BYTES: u64 = 16 << 20;
    let server = ServerFixture::start().await;
    let done = server.semaphore("done");
    let mut client = server.client().await;
    client.sh("chatty", &flood(BYTES, 1, &done)).await;
    let first = client.request("environment/status", Value::Null).await;
    for _ in 1..999 {
        client.request("process/read", json!({"processId": "chatty", "afterSeq": 0, "maxBytes": 1})).await;
    }
    let last = client.request("environment/status", Value::Null).await;
    let mut logs = ReceivedLogs::default();
    let mut unanswered: std::collections::BTreeSet<i64> = (first..=last).collect();
    with_deadline(async {
        while !unanswered.is_empty() || logs.closed() < 1 {
            let message = client.next().await;
            match message["id"].as_i64() {
                Some(id) => assert!(unanswered.remove(&id) && message["result"].is_object(), "{message}"),
                None => logs.add_notification(&message, |_| 1),
            }
        }
    })
    .await;
    assert_eq!(logs.of("chatty").expect("it has a log").bytes, BYTES);
}

#[tokio::test]
async fn waits_for_an_expensive_expression_in_a_long_log_delay_no_other_client() {
    const WAITS: usize = 20;
    let server = ServerFixture::start().await;
    let mut searcher = server.client().await;
    // Words that are not ASCII, whose boundaries only the slowest of the engines finds; the match is at their end.
    let line = "größe länge über maß ".repeat(40);
    searcher.sh("long", &format!("yes '{line}' | head -n 150; echo Z123; exec sleep 1000")).await;
    let until = |regex: &str| json!({"processId": "long", "until": {"kind": "output", "regex": regex, "afterSeq": 0}});
    let written = searcher.call("process/wait", until("Z123")).await;
    assert!(written["result"].is_object(), "{written}");
    let mut waits = std::collections::BTreeSet::new();
    for _ in 0..WAITS {
        waits.insert(searcher.request("process/wait", until(r"(\b\w+\b ?)+ü\bx|\bZ\d{3}\b")).await);
    }
    let all_waits_end = async {
        while !waits.is_empty() {
            let message = searcher.next().await;
            if let Some(id) = message["id"].as_i64() {
                assert!(waits.remove(&id) && message["result"].is_object(), "{message}");
            }
        }
    };
    let mut other = server.client().await;
    let mut answered = 0;
    let other_goes_on = async {
        loop {
            assert_eq!(other.call("environment/status", json!({})).await["result"]["status"], "ready");
            answered += 1;
        }
    };
    with_deadline(async {
        tokio::select! {
            () = all_waits_end => {}
            () = other_goes_on => {}
        }
    })
    .await;
    // If searches kept others waiting, there would be a call or two behind each.
    assert!(answered > 4 * WAITS, "{answered} calls during {WAITS} searches");
}

#[tokio::test]
async fn a_client_that_reads_misses_nothing_of_a_flood_many_times_the_spool() {
    const BYTES: u64 = 64 << 20;
    let server = ServerFixture::start().await;
    let done = server.semaphore("done");
    let mut client = server.client().await;
    let mut start = shell("flood", &format!("read go; {}", flood(BYTES, 1, &done)), true);
    start["spoolBytes"] = json!(1 << 20);
    let started = client.call("process/start", start).await;
    assert_eq!(started["result"]["processId"], "flood");
    client.request("process/write", json!({"processId": "flood", "writeId": "go", "chunk": "Z28K"})).await;
    let mut logs = ReceivedLogs::default();
    logs.read_until_closed(&mut client, 1, |_| 1).await;
    assert_eq!(logs.of("flood").expect("it has a log").bytes, BYTES);
}

#[tokio::test]
async fn terminate_does_not_wait_behind_a_long_poll() {
    let server = ServerFixture::start().await;
    let mut client = server.client().await;
    client.sh("polled", "exec sleep 1000").await;
    client.sh("other", "exec sleep 1000").await;
    let poll = client.request("process/read", json!({"processId": "polled", "waitMs": 20000})).await;
    let answer = client.call("process/terminate", json!({"processId": "other"})).await;
    assert_eq!(answer["result"]["running"], true);
    // The poll is still under way, and ends with its process.
    client.drop_unread();
    client.request("process/terminate", json!({"processId": "polled"})).await;
    let answer = client.response(poll).await;
    assert_eq!((&answer["result"]["exited"], &answer["result"]["exitCode"]), (&json!(true), &json!(137)));
}

#[tokio::test]
async fn an_echo_overtakes_four_floods_alone() {
    const ECHOES: u64 = 40;
    /// An echo may wait for what is in socket buffers already and for one page of each flood, but not for all that the
    /// floods have printed meanwhile.
    const BYTES_PER_ECHO: u64 = 16 << 20;
    let server = ServerFixture::start().await;
    let mut client = server.client().await;
    for number in 0..4 {
        client.sh(&format!("flood {number}"), "exec yes flooding").await;
    }
    let started = client.call("process/start", shell("echo", "while read x; do echo $x; done", true)).await;
    assert_eq!(started["result"]["processId"], "echo");
    // On a busy machine it may take a while until all of them run.
    let mut flooding = std::collections::BTreeSet::new();
    while flooding.len() < 4 {
        flooding.extend(client.next().await["params"]["processId"].as_str().map(str::to_owned));
    }
    client.drop_unread();
    let mut flooded = 0;
    for number in 0..ECHOES {
        let chunk = base64_simd::STANDARD.encode_to_string(format!("{number}\n"));
        client
            .request("process/write", json!({"processId": "echo", "writeId": number.to_string(), "chunk": chunk}))
            .await;
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
    let server = ServerFixture::start().await;
    let file = server.directory.path().join("file");
    std::fs::write(&file, vec![b'x'; (BLOCKS * BLOCK_BYTES) as usize]).expect("the folder is ours");
    let mut client = server.client().await;
    let started = client.call("process/start", shell("echo", "while read x; do echo $x; done", true)).await;
    assert_eq!(started["result"]["processId"], "echo");
    let path = format!("file://{}", file.display());
    let opened = client.call("fs/open", json!({"handleId": "h", "path": path})).await;
    assert_eq!(opened["result"]["handleId"], "h", "{opened}");
    let mut overtaken = 0;
    for number in 0..ECHOES {
        client.drop_unread();
        let mut blocks = std::collections::BTreeSet::new();
        for block in 0..BLOCKS {
            let params = json!({"handleId": "h", "offset": block * BLOCK_BYTES, "len": BLOCK_BYTES});
            blocks.insert(client.request("fs/readBlock", params).await);
        }
        let chunk = base64_simd::STANDARD.encode_to_string(format!("{number}\n"));
        client
            .request("process/write", json!({"processId": "echo", "writeId": number.to_string(), "chunk": chunk}))
            .await;
        with_deadline(async {
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
    // Blocks in socket buffers, or sent while the shell woke up, come before the echo; most of the file comes after it.
    assert!(overtaken / ECHOES > BLOCKS / 2, "an echo overtook {} of {BLOCKS} blocks", overtaken / ECHOES);
}

#[tokio::test]
async fn a_client_that_stops_reading_costs_little_and_loses_nothing_alone() {
    const FLOODS: u64 = 20;
    const BYTES: u64 = 8 << 20;
    let server = ServerFixture::start().await;
    let done = server.semaphore("done");
    let mut frozen = server.client().await;
    for seed in 0..FLOODS {
        frozen.request("process/start", shell(&seed.to_string(), &flood(BYTES, seed, &done), false)).await;
    }
    // The children are not held up by a client that does not read.
    with_deadline(done.acquire_many(FLOODS as usize)).await;
    let used = server.used_bytes();
    assert!(used < MEMORY_BYTES / 2, "{used} bytes");
    let mut other = server.client().await;
    assert_eq!(other.call("environment/status", json!({})).await["result"]["status"], "ready");
    other.sh("p", "echo served").await;
    let mut logs = ReceivedLogs::default();
    let seed_of = |process: &str| process.parse().expect("processes are called by their seed");
    logs.read_until_closed(&mut frozen, FLOODS as usize, seed_of).await;
    for seed in 0..FLOODS {
        assert_eq!(logs.of(&seed.to_string()).map(|log| log.bytes), Some(BYTES));
    }
}

#[tokio::test]
async fn a_half_open_link_is_taken_over_at_once() {
    let server = ServerFixture::start().await;
    let mut old = server.client().await;
    old.sh("p", "while :; do sleep 1000; done").await;
    // The server cannot know that the old connection is dead, because it is only silent.
    let mut new = server.resume(&old.session.clone()).await;
    let answer = new.call("process/terminate", json!({"processId": "p"})).await;
    assert_eq!(answer["result"]["running"], true);
    let told = old.next().await;
    assert_eq!((&told["method"], &told["params"]["sessionId"]), (&json!("session/takenOver"), &json!(old.session)));
    assert_eq!(old.receive().await, None);
}

#[tokio::test]
async fn a_start_that_outlives_its_connection_is_heard_on_the_next() {
    let server = ServerFixture::start().await;
    let mut old = server.client().await;
    // While the keeper is stopped, a start takes as long as we like.
    let keeper = server.keeper();
    keeper.signal(rustix::process::Signal::STOP);
    old.request("process/start", shell("slow", "echo heard", false)).await;
    // This is answered after the start was accepted, so the start is under way.
    old.call("environment/status", json!({})).await;
    let mut new = server.resume(&old.session.clone()).await;
    keeper.signal(rustix::process::Signal::CONT);
    let mut output = String::new();
    loop {
        let notification = new.next().await;
        match notification["method"].as_str() {
            Some("process/output") => output.push_str(notification["params"]["chunk"].as_str().expect("base64")),
            Some("process/closed") => break,
            _ => {}
        }
    }
    assert_eq!(output, base64_simd::STANDARD.encode_to_string("heard\n"));
}

#[tokio::test]
async fn a_server_stops_though_its_keeper_does_not_answer() {
    let mut server = ServerFixture::start().await;
    let mut client = server.client().await;
    client.sh("p", "while :; do sleep 1000; done").await;
    let keeper = server.keeper();
    keeper.signal(rustix::process::Signal::STOP);
    let pid = rustix::process::Pid::from_raw(server.pid() as i32).expect("it runs");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
    let ended = with_deadline(server.process.child.wait()).await.expect("it is ours");
    keeper.signal(rustix::process::Signal::CONT);
    assert!(ended.success(), "{ended}");
}

/// A client that lost count, or whose process has the id of an earlier one.
#[tokio::test]
async fn a_client_that_claims_to_have_read_what_is_not_there_yet_hears_of_all_that_comes() {
    let server = ServerFixture::start().await;
    for resumes in [false, true] {
        let mut client = Client::connect(&server.process.address).await;
        client.initialize(json!({"clientName": "robust", "outputWindowBytes": 1 << 20})).await;
        client.call("process/start", shell("p", "read line; echo heard", true)).await;
        if resumes {
            let session = client.session.clone();
            client = Client::connect(&server.process.address).await;
            let from = json!({"p": u64::MAX});
            client.initialize(json!({"clientName": "robust", "resumeSessionId": session, "resumeFrom": from})).await;
        } else {
            let claim = json!({"processId": "p", "seq": u64::MAX});
            client.connection.send(&json!({"method": "process/acknowledge", "params": claim}).to_string()).await;
        }
        // Once this is answered, the claim was heard.
        client.call("environment/status", json!({})).await;
        let line = json!({"processId": "p", "writeId": "1", "chunk": base64_simd::STANDARD.encode_to_string("x\n")});
        client.call("process/write", line).await;
        let mut told = Vec::new();
        while !told.contains(&json!("process/closed")) {
            told.push(with_deadline(client.next()).await["method"].clone());
        }
        assert_eq!(told, ["process/output", "process/exited", "process/closed"]);
    }
}

#[tokio::test]
async fn output_never_precedes_the_reply_to_its_start() {
    const STARTS: usize = 200;
    let server = ServerFixture::start().await;
    let mut client = server.client().await;
    let mut starts = Vec::new();
    for number in 0..STARTS {
        let name = number.to_string();
        starts.push((client.request("process/start", shell(&name, "echo quick", false)).await, name));
    }
    let mut closed = 0;
    let mut replied = std::collections::HashSet::new();
    with_deadline(async {
        while closed < STARTS {
            let message = client.next().await;
            if let Some(id) = message["id"].as_i64() {
                let (_, name) = starts.iter().find(|(start, _)| *start == id).expect("only starts were asked for");
                assert_eq!(message["result"]["processId"], **name, "{message}");
                replied.insert(name.clone());
                continue;
            }
            let process = message["params"]["processId"].as_str().expect("a notification of a process");
            assert!(replied.contains(process), "{message} came before the reply");
            closed += usize::from(message["method"] == "process/closed");
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_printed_without_a_connection_arrives_whole_after_a_resume_alone() {
    const BYTES: u64 = 100_000_000;
    const PAGE_BYTES: u64 = 2 << 20;
    let server = ServerFixture::start().await;
    let (go, done) = (server.semaphore("go"), server.semaphore("done"));
    let mut client = server.client().await;
    client.sh("p", &format!("read x < {}; {}", go.path().display(), flood(BYTES, 7, &done))).await;
    let session = client.session.clone();
    drop(client);
    std::fs::write(go.path(), "\n").expect("the child reads");
    with_deadline(done.acquire_many(1)).await;
    let mut client = server.resume(&session).await;
    let mut logs = ReceivedLogs::default();
    let page = client.call("process/read", json!({"processId": "p", "afterSeq": 0})).await;
    let page = &page["result"];
    logs.add_page("p", page, 7);
    let read = logs.of("p").expect("a page came");
    assert!(read.bytes <= PAGE_BYTES && read.bytes > PAGE_BYTES / 2, "{} bytes in one page", read.bytes);
    assert_eq!(page["nextSeq"], read.seq + 1);
    // The rest is pushed, so the page must not report the end yet.
    assert_eq!((&page["exited"], &page["exitCode"], &page["closed"]), (&json!(false), &Value::Null, &json!(false)));
    logs.read_until_closed(&mut client, 1, |_| 7).await;
    let log = logs.of("p").expect("it has a log");
    assert_eq!((log.bytes, log.exited), (BYTES, true));
    let used = server.used_bytes();
    assert!(used < 4 * MEMORY_BYTES, "{used} bytes");
}

#[tokio::test]
async fn pages_of_a_limited_size_add_up_to_everything() {
    const BYTES: u64 = 3 << 20;
    let server = ServerFixture::start().await;
    let done = server.semaphore("done");
    let mut client = server.client().await;
    client.sh("p", &flood(BYTES, 9, &done)).await;
    with_deadline(done.acquire_many(1)).await;
    let mut logs = ReceivedLogs::default();
    let mut after = 0;
    loop {
        let params = json!({"processId": "p", "afterSeq": after, "maxBytes": 100_000, "waitMs": 20000});
        let page = client.call("process/read", params).await;
        let page = &page["result"];
        logs.add_page("p", page, 9);
        let next = page["nextSeq"].as_u64().expect("a page has a next seq");
        if page["chunks"].as_array().is_some_and(Vec::is_empty) {
            break;
        }
        assert_eq!(next, logs.of("p").expect("a page came").seq + 1);
        after = next - 1;
    }
    assert_eq!(logs.of("p").map(|log| log.bytes), Some(BYTES));
}

#[tokio::test]
async fn a_configuration_within_its_bound_is_read_and_beyond_it_an_error_says_so() {
    let server = ServerFixture::start().await;
    let home = server.directory.path();
    let project = home.join("project");
    std::fs::create_dir_all(project.join(".git")).expect("the folder is ours");
    let trust = format!("[projects.{project:?}]\ntrust_level = 'trusted'\n");
    std::fs::write(home.join(".codex/config.toml"), trust).expect("the folder is ours");
    let mut cwd = project.clone();
    // Eight mebibytes, of which the system's and the user's file may have one each.
    for _ in 0..6 {
        let content = "model = 'm'\n#";
        let content = format!("{content}{}", "x".repeat((1 << 20) - content.len()));
        std::fs::create_dir_all(cwd.join(".codex")).expect("the folder is ours");
        std::fs::write(cwd.join(".codex/config.toml"), content).expect("the folder is ours");
        cwd.push("below");
    }
    let mut client = server.client().await;
    let params =
        json!({"cwd": format!("file://{}", cwd.display()), "configPaths": [["model"]], "requirementsPaths": []});
    let read = client.call("environmentConfig/read", params.clone()).await;
    assert_eq!(read["result"]["config"]["layers"].as_array().expect("layers").len(), 6, "{read}");
    std::fs::create_dir_all(cwd.join(".codex")).expect("the folder is ours");
    std::fs::write(cwd.join(".codex/config.toml"), "model = 'm'\n").expect("the folder is ours");
    let refused = client.call("environmentConfig/read", params).await;
    assert_eq!(refused["error"]["data"]["kind"], "tooLarge", "{refused}");
}
