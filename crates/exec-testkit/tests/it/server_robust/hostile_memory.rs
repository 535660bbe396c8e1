//! What clients can make the server and its keeper hold: one test for each way that was once found to fill a machine.
//!
//! Measured is the most memory that the two ever had resident together, without what holds pieces of their own program
//! (the kernel can take that back, and a debug build has more of it). Each test also sees that others are served.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use exec_testkit::proc_status;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::MEMORY_BYTES;
use super::client::{Client, ServerFixture, shell, with_deadline};
use crate::environments::ACTOR;

/// Clients that do the same at once.
const CLIENTS: usize = 4;

/// A server whose memory is watched.
struct WatchedServer {
    fixture: ServerFixture,
    pids: [u32; 2],
}

impl WatchedServer {
    async fn start() -> Self {
        let fixture = ServerFixture::start().await;
        let mut client = fixture.client().await;
        client.sh("warm", "exit 0").await;
        let pids = [fixture.pid(), fixture.keeper().pid];
        Self { fixture, pids }
    }

    async fn clients(&self, count: usize) -> Vec<Client> {
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(self.fixture.client().await);
        }
        clients
    }

    fn uri(&self, name: &str) -> String {
        format!("file://{}", self.fixture.directory.path().join(name).display())
    }

    /// Others are served, and the load has cost no more than it may.
    async fn assert_fine(&self) {
        let mut other = self.fixture.client().await;
        assert_eq!(other.call("environment/status", json!({})).await["result"]["status"], "ready");
        other.sh("served", "exit 0").await;
        let peaks = self.pids.map(proc_status::peak_resident_bytes);
        // Pieces of the programs, which are as large as the programs are; the load pages more of them in.
        let file_bytes: u64 = self.pids.iter().map(|pid| proc_status::file_bytes(*pid)).sum();
        let used = (peaks[0] + peaks[1]).saturating_sub(file_bytes);
        println!(
            "daemon {} KiB, keeper {} KiB, files {} KiB: {} KiB",
            peaks[0] >> 10,
            peaks[1] >> 10,
            file_bytes >> 10,
            used >> 10
        );
        assert!(used <= MEMORY_BYTES, "{used} bytes at the most: server and keeper {peaks:?}");
    }
}

/// A client that sends and does not read, as long as this is kept.
type DeafClient = Pin<Box<dyn Future<Output = Client>>>;

/// Sends until all was sent, or until the server has taken nothing while it has answered others many times. The client
/// reads nothing; `None` if it could send everything.
async fn send_without_reading(
    server: &WatchedServer,
    mut client: Client,
    messages: Vec<String>,
    rounds: usize,
) -> Option<DeafClient> {
    const IDLE_ROUND_TRIPS: usize = 300;
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let mut sending: DeafClient = Box::pin(async move {
        for message in messages.iter().cycle().take(messages.len() * rounds) {
            client.connection.send(message).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
        client
    });
    let mut other = server.fixture.client().await;
    let (mut seen, mut idle) = (0, 0);
    while idle < IDLE_ROUND_TRIPS {
        tokio::select! {
            biased;
            _ = &mut sending => return None,
            status = other.call("environment/status", json!({})) => assert_eq!(status["result"]["status"], "ready"),
        }
        let now = sent.load(Ordering::Relaxed);
        idle = if now == seen { idle + 1 } else { 0 };
        seen = now;
    }
    Some(sending)
}

fn request(id: i64, method: &str, params: Value) -> String {
    json!({"id": id, "method": method, "params": params}).to_string()
}

#[tokio::test]
async fn malformed_messages_before_and_after_the_handshake_cost_little_memory_alone() {
    let server = WatchedServer::start().await;
    let unknown = request(1, &"m".repeat(64 << 10), json!({}));
    let escaped = request(1, &"\u{1}".repeat(16 << 10), json!({}));
    let twice = format!(r#"{{"id":1,"method":"x","params":{{"{key}":1,"{key}":2}}}}"#, key = "k".repeat(64 << 10));
    let params = request(1, "process/start", json!({"processId": 7, "argv": "x".repeat(64 << 10)}));
    let messages = ["nonsense".into(), r#"{"id":{}}"#.into(), unknown, escaped, twice, params].to_vec();
    let mut deaf = Vec::new();
    for _ in 0..CLIENTS {
        let fresh = Client::connect(&server.fixture.process.address).await;
        deaf.push(send_without_reading(&server, fresh, messages.clone(), 2000).await);
        let introduced = server.fixture.client().await;
        deaf.push(send_without_reading(&server, introduced, messages.clone(), 2000).await);
    }
    assert!(deaf.iter().all(Option::is_some), "nothing more is read from a peer that does not read");
    server.assert_fine().await;
}

#[tokio::test]
async fn answers_that_nobody_reads_cost_little_memory_alone() {
    let server = WatchedServer::start().await;
    let file = server.fixture.directory.path().join("file");
    std::fs::write(&file, vec![b'x'; 60 << 10]).expect("the folder is ours");
    let mut deaf = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = server.fixture.client().await;
        client.sh("p", &format!("{ACTOR} flood stdout 60000 1 60000; exec sleep 1000")).await;
        let messages = [
            request(1, "fs/readFile", json!({"path": server.uri("file")})),
            request(2, "process/read", json!({"processId": "p", "afterSeq": 0})),
            request(3, "environment/status", json!({})),
            request(4, "fs/getMetadata", json!({"path": server.uri(&"n".repeat(200))})),
        ];
        deaf.push(send_without_reading(&server, client, messages.to_vec(), 100_000).await);
    }
    assert!(deaf.iter().all(Option::is_some), "nothing more is read from a peer that does not read");
    server.assert_fine().await;
}

#[tokio::test]
async fn pages_of_a_long_log_that_nobody_reads_cost_little_memory_alone() {
    let server = WatchedServer::start().await;
    let done = server.fixture.semaphore("done");
    let mut kept = Vec::new();
    for mut client in server.clients(CLIENTS).await {
        client.sh("p", &super::flood(24 << 20, 3, &done)).await;
        with_deadline(done.acquire_many(1)).await;
        for _ in 0..100 {
            client.request("process/read", json!({"processId": "p", "afterSeq": 0})).await;
        }
        kept.push(client);
    }
    for _ in 0..100 {
        let mut other = server.fixture.client().await;
        assert_eq!(other.call("environment/status", json!({})).await["result"]["status"], "ready");
    }
    server.assert_fine().await;
}

#[tokio::test]
async fn pages_of_three_hundred_thousand_tiny_entries_cost_little_memory_alone() {
    let server = WatchedServer::start().await;
    let mut writer = server.fixture.client().await;
    let session = writer.session.clone();
    let script = format!("{ACTOR} bytes1 300000; echo done >&2; exec sleep 1000");
    writer.sh("p", &script).await;
    let until = json!({"processId": "p", "until": {"kind": "output", "regex": "done", "afterSeq": 0}});
    let waited = writer.call("process/wait", until).await;
    assert!(waited["result"].is_object(), "{waited}");
    drop(writer);
    // Each connection takes the session over from the one before, whose answers are still in memory.
    let mut kept = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = server.fixture.resume(&session).await;
        for _ in 0..100 {
            client.request("process/read", json!({"processId": "p", "afterSeq": 0})).await;
        }
        client.request("environment/status", json!({})).await;
        kept.push(client);
    }
    server.assert_fine().await;
    // And all of them can be read, page by page.
    let mut reader = server.fixture.resume(&session).await;
    let (mut after, mut bytes) = (0, 0);
    while bytes < 300_005 {
        let page = reader.call("process/read", json!({"processId": "p", "afterSeq": after})).await;
        for chunk in page["result"]["chunks"].as_array().expect("a page has chunks") {
            let chunk = chunk["chunk"].as_str().expect("base64");
            bytes += base64_simd::STANDARD.decode_to_vec(chunk).expect("base64").len();
        }
        after = page["result"]["nextSeq"].as_u64().expect("a page has a next seq") - 1;
    }
    server.assert_fine().await;
}

/// Each searches half a MiB, and many with an expression that takes a MiB itself. Then all find what comes.
#[tokio::test]
async fn a_thousand_waits_for_output_cost_little_memory_alone() {
    const WAITS: usize = 250;
    let server = WatchedServer::start().await;
    let mut clients = server.clients(CLIENTS).await;
    let mut waits = Vec::new();
    for client in &mut clients {
        let script = format!("{ACTOR} flood stdout 524288 1 65536; read x; echo found; exec sleep 1000");
        client.call("process/start", shell("p", &script, true)).await;
        let mut ids = std::collections::BTreeSet::new();
        for number in 0..WAITS {
            let until = json!({"kind": "output", "regex": format!("found|never {number}!"), "afterSeq": 0});
            ids.insert(client.request("process/wait", json!({"processId": "p", "until": until})).await);
        }
        waits.push(ids);
    }
    server.assert_fine().await;
    // All are read at once: who takes nothing for long is let go of.
    let searches = clients.iter_mut().zip(waits).map(|(client, mut ids)| async move {
        client.request("process/write", json!({"processId": "p", "writeId": "1", "chunk": "Cg=="})).await;
        while !ids.is_empty() {
            let message = client.next().await;
            if message["id"].as_i64().is_some_and(|id| ids.remove(&id)) {
                assert_eq!(message["result"]["outcome"]["kind"], "matched", "{message}");
            }
        }
    });
    with_deadline(futures_util::future::join_all(searches)).await;
    server.assert_fine().await;
}

/// The tree is looked at for all of them together.
#[tokio::test]
async fn a_thousand_waits_for_a_port_take_no_thread_each_alone() {
    const WAITS: usize = 250;
    let server = WatchedServer::start().await;
    let mut clients = server.clients(CLIENTS).await;
    let mut waits = Vec::new();
    for client in &mut clients {
        client
            .call("process/start", shell("p", &format!("read x; exec {ACTOR} listen 0 ';' wait-forever"), true))
            .await;
        let mut ids = std::collections::BTreeSet::new();
        for _ in 0..WAITS {
            let until = json!({"kind": "port"});
            ids.insert(client.request("process/wait", json!({"processId": "p", "until": until})).await);
        }
        waits.push(ids);
    }
    for _ in 0..20 {
        let mut other = server.fixture.client().await;
        other.sh("other", "exit 0").await;
    }
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.fixture.pid())).expect("it runs").count();
    assert!(threads < 64, "{threads} threads");
    for (client, mut ids) in clients.iter_mut().zip(waits) {
        client.request("process/write", json!({"processId": "p", "writeId": "1", "chunk": "Cg=="})).await;
        let all_found = async {
            while !ids.is_empty() {
                let message = client.next().await;
                if message["id"].as_i64().is_some_and(|id| ids.remove(&id)) {
                    assert_eq!(message["result"]["outcome"]["kind"], "listening", "{message}");
                }
            }
        };
        with_deadline(all_found).await;
    }
    server.assert_fine().await;
}

#[tokio::test]
async fn listings_of_forty_five_thousand_files_cost_little_memory_alone() {
    let server = WatchedServer::start().await;
    let folder = server.fixture.directory.path().join("many");
    std::fs::create_dir(&folder).expect("the folder is ours");
    for number in 0..45_000 {
        let name = folder.join(format!("a name of ordinary length {number}"));
        rustix::fs::mknodat(rustix::fs::CWD, &name, rustix::fs::FileType::RegularFile, Mode::RWXU, 0).expect("a file");
    }
    let (folder, mut kept) = (server.uri("many"), Vec::new());
    for mut client in server.clients(CLIENTS).await {
        for _ in 0..20 {
            client.request("fs/readDirectory", json!({"path": folder})).await;
            client.request("fs/readDirectory", json!({"path": folder, "maxEntries": 50_000})).await;
            client.request("fs/walk", json!({"path": folder})).await;
        }
        kept.push(client);
    }
    let mut reader = server.fixture.client().await;
    let (mut cursor, mut names) = (Value::Null, 0);
    loop {
        let page =
            reader.call("fs/readDirectory", json!({"path": folder, "maxEntries": 50_000, "cursor": cursor})).await;
        names += page["result"]["entries"].as_array().unwrap_or_else(|| panic!("a page has entries: {page}")).len();
        cursor = page["result"]["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(names, 45_000);
    server.assert_fine().await;
}

#[tokio::test]
async fn names_and_keys_of_megabytes_cost_little_memory_alone() {
    const LONG: usize = 8 << 20;
    let server = WatchedServer::start().await;
    let long = "x".repeat(LONG);
    for _ in 0..4 {
        let mut client = Client::connect(&server.fixture.process.address).await;
        let refused = client.call("initialize", json!({"clientName": long})).await;
        assert!(refused["error"].is_object(), "a name of {LONG} bytes is refused");
    }
    let mut client = server.fixture.client().await;
    client.sh("p", "exec sleep 1000").await;
    for round in 0..2 {
        let mut start = shell(&format!("labelled {round}"), "exit 0", false);
        start["label"] = json!("A".repeat(LONG));
        assert!(client.call("process/start", start).await["error"].is_object());
        let signal = json!({"processId": "p", "signal": "continue", "signalId": long});
        assert!(client.call("process/signal", signal).await["error"].is_object());
        let write = json!({"processId": "p", "writeId": long, "chunk": "AAAA"});
        assert!(client.call("process/write", write).await["error"].is_object());
        assert!(client.call("process/start", shell(&long, "exit 0", false)).await["error"].is_object());
        client.connection.send(&json!({"id": long, "method": "environment/status"}).to_string()).await;
        assert_eq!(client.next().await["id"], -1);
        assert!(client.call(&long, json!({})).await["error"].is_object());
    }
    server.assert_fine().await;
}

#[tokio::test]
async fn searches_of_one_endless_line_cost_little_memory_alone() {
    let server = WatchedServer::start().await;
    let folder = server.fixture.directory.path().join("lines");
    std::fs::create_dir(&folder).expect("the folder is ours");
    let mut file = std::fs::File::create(folder.join("line")).expect("the folder is ours");
    for _ in 0..128 {
        std::io::Write::write_all(&mut file, &vec![b'x'; 1 << 20]).expect("the disk has room");
    }
    let mut clients = server.clients(CLIENTS).await;
    for client in &mut clients {
        for search in 0..4 {
            let params = json!({"searchId": search.to_string(), "path": server.uri("lines"),
                                "pattern": {"regex": "y+z"}, "beforeLines": 3});
            assert!(client.call("fs/search", params).await["result"].is_object());
        }
    }
    for client in &mut clients {
        let mut ended = 0;
        with_deadline(async {
            while ended < 4 {
                ended += usize::from(client.next().await["params"]["done"].is_object());
            }
        })
        .await;
    }
    server.assert_fine().await;
}

#[tokio::test]
async fn trees_seven_thousand_deep_cost_little_memory_alone() {
    let server = WatchedServer::start().await;
    // In memory if there is a place for that: to a disk, so many directories take minutes on a busy machine.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder");
    make_deep(&folder.path().join("deep"), 7000);
    let uri = |name: &str| format!("file://{}", folder.path().join(name).display());
    let mut clients = server.clients(CLIENTS).await;
    let mut asked = Vec::new();
    for (number, client) in clients.iter_mut().enumerate() {
        let copy = json!({"sourcePath": uri("deep"), "destinationPath": uri(&number.to_string()), "recursive": true});
        asked.push(client.request("fs/copy", copy).await);
    }
    for (client, id) in clients.iter_mut().zip(&asked) {
        let copied = client.response(*id).await;
        assert!(copied["result"].is_object(), "{copied}");
    }
    asked.clear();
    for (number, client) in clients.iter_mut().enumerate() {
        let remove = json!({"path": uri(&number.to_string()), "recursive": true, "force": false});
        asked.push(client.request("fs/remove", remove).await);
    }
    for (client, id) in clients.iter_mut().zip(&asked) {
        let removed = client.response(*id).await;
        assert!(removed["result"].is_object(), "{removed}");
    }
    let remove = json!({"path": uri("deep"), "recursive": true, "force": false});
    assert!(clients[0].call("fs/remove", remove).await["result"].is_object());
    server.assert_fine().await;
}

/// Deeper than any path.
fn make_deep(top: &Path, depth: usize) {
    std::fs::create_dir(top).expect("the folder is ours");
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut here: OwnedFd = rustix::fs::open(top, flags, Mode::empty()).expect("it was made");
    for _ in 0..depth {
        rustix::fs::mkdirat(&here, "d", Mode::RWXU).expect("the folder is ours");
        here = rustix::fs::openat(&here, "d", flags, Mode::empty()).expect("it was made");
    }
}

#[tokio::test]
async fn four_thousand_throw_away_sessions_cost_little_memory_alone() {
    let server = WatchedServer::start().await;
    let mut openers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let address = server.fixture.process.address.clone();
        openers.spawn(async move {
            for _ in 0..256 {
                let mut client = Client::connect(&address).await;
                let long = json!({"clientName": "n".repeat(1000), "detachedTtlMs": 604_800_000_u64});
                let answer = client.call("initialize", long).await;
                assert!(answer["result"].is_object() || answer["error"].is_object(), "{answer}");
            }
        });
    }
    with_deadline(openers.join_all()).await;
    server.assert_fine().await;
}

#[tokio::test]
async fn stdin_writes_that_nobody_reads_cost_little_memory_alone() {
    for (writes, bytes) in [(144, 1 << 20), (9, 8 << 20)] {
        let server = WatchedServer::start().await;
        let mut client = server.fixture.client().await;
        let started = client.call("process/start", shell("stuck", "exec sleep 1000", true)).await;
        assert_eq!(started["result"]["processId"], "stuck", "{started}");
        let chunk = base64_simd::STANDARD.encode_to_string(vec![b'x'; bytes]);
        for number in 0..writes {
            let params = json!({"processId": "stuck", "writeId": number.to_string(), "chunk": chunk});
            client.request("process/write", params).await;
        }
        let answer = client.call("process/terminate", json!({"processId": "stuck"})).await;
        assert_eq!(answer["result"]["running"], true, "terminate does not wait: {answer}");
        server.assert_fine().await;
    }
}

#[tokio::test]
async fn starts_with_variables_of_34_mebibytes_cost_little_memory_alone() {
    let server = WatchedServer::start().await;
    let mut client = server.fixture.client().await;
    let mut start = shell("large", "exit 0", false);
    start["env"]["LARGE"] = json!("x".repeat(34 << 20));
    for id in 0..2 {
        let message = request(1_000_000 + id, "process/start", start.clone());
        client.connection.send_raw(&fragments(message.as_bytes())).await;
        let refused = client.response(1_000_000 + id).await;
        assert_eq!(refused["error"]["data"]["kind"], "tooLarge", "{refused}");
    }
    client.sh("small", "exit 0").await;
    server.assert_fine().await;
}

/// One text message in frames that are within the limit, below the library that the client uses. Its mask is zero.
fn fragments(message: &[u8]) -> Vec<u8> {
    const FRAME_BYTES: usize = 8 << 20;
    let mut out = Vec::with_capacity(message.len() + 1024);
    let count = message.len().div_ceil(FRAME_BYTES);
    for (at, piece) in message.chunks(FRAME_BYTES).enumerate() {
        let opcode = if at == 0 { 1 } else { 0 };
        let last = if at + 1 == count { 0x80 } else { 0 };
        out.extend_from_slice(&[opcode | last, 0xff]);
        out.extend_from_slice(&(piece.len() as u64).to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(piece);
    }
    out
}

#[tokio::test]
async fn bodies_that_come_slowly_or_without_an_end_cost_little_memory_alone() {
    let server = WatchedServer::start().await;
    let web = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/", web.local_addr().expect("it is bound"));
    let (asked, mut all_asked) = tokio::sync::mpsc::channel(256);
    let serving = tokio::spawn(async move {
        let mut streams = tokio::task::JoinSet::new();
        while let Ok((mut stream, _)) = web.accept().await {
            let asked = asked.clone();
            streams.spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("a request comes"));
                }
                let endless = head.starts_with(b"GET /endless");
                let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n";
                stream.write_all(answer.as_bytes()).await.expect("it is read");
                stream.write_all(&[b'x'; 1 << 16]).await.expect("it is read");
                asked.send(()).await.expect("the test lives");
                while endless && stream.write_all(b"\r\n10000\r\n").await.is_ok() {
                    if stream.write_all(&[b'x'; 1 << 16]).await.is_err() {
                        break;
                    }
                }
                // The rest never comes.
                let _ = stream.read_u8().await;
            });
        }
    });
    let mut kept = Vec::new();
    for mut client in server.clients(CLIENTS).await {
        for number in 0..8 {
            let slow = json!({"method": "GET", "url": url, "requestId": format!("slow {number}")});
            client.request("http/request", slow).await;
            let endless = json!({"method": "GET", "url": format!("{url}endless"), "requestId": number.to_string(), "streamResponse": true});
            client.request("http/request", endless).await;
        }
        kept.push(client);
    }
    with_deadline(async {
        for _ in 0..CLIENTS * 16 {
            all_asked.recv().await.expect("every request is made");
        }
    })
    .await;
    server.assert_fine().await;
    serving.abort();
}
