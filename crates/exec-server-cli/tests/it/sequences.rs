//! Random sequences of messages against a live server: the requests of the golden files, changed a little, in any order,
//! over connections that end at any moment and sessions that are resumed.
//!
//! A changed path may name any file of the machine and be removed, so the server runs in a root of its own
//! (bubblewrap), in which only a scratch directory can be written. Whatever it is sent, it must not die, must not panic,
//! and must answer the next client.
//!
//! `EXEC_SEQUENCE_SECONDS` says for how long, `EXEC_SEQUENCE_SEED` which sequences; `cargo xtask soak` gives both.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use exec_transport::{ConnectOptions, Connection, Message, Received, Target};
use serde_json::{Value, json};

const SECONDS: u64 = 60;

/// How long a control request may take on a machine that is busy with us. Beyond it, the server hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn alone_sequences_of_messages_neither_stop_nor_hang_a_server() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("the variable is a number"))
    };
    let (seconds, seed) = (number("EXEC_SEQUENCE_SECONDS", SECONDS), number("EXEC_SEQUENCE_SEED", 1));
    let mut server = ConfinedServer::start();
    let mut random = Random(seed);
    let requests = golden_requests();
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut session, mut sequences, mut messages) = (None, 0_u64, 0);
    while Instant::now() < until {
        sequences += 1;
        let at = format!("sequence {sequences} of EXEC_SEQUENCE_SEED={seed}");
        messages += play(&server.url, &mut random, &requests, &mut session, &at).await;
        let ended = server.child.try_wait().expect("it is our child");
        assert!(ended.is_none(), "the server ended ({ended:?}) after {at}:\n{}", server.log());
        let mut fresh = Client::connect(&server.url, &at).await;
        fresh.send(&json!({ "id": 0, "method": "initialize", "params": { "clientName": "probe" } })).await;
        assert!(fresh.answered(&json!(0), &at).await, "the next client was refused after {at}:\n{}", server.log());
    }
    let log = server.log();
    assert!(!log.contains("panicked"), "{log}");
    println!("{messages} messages in {sequences} sequences");
    assert!(sequences > 1, "there was time for one sequence only");
}

/// Plays one sequence on a connection of its own, and returns how many messages it had.
async fn play(url: &str, random: &mut Random, requests: &[Value], session: &mut Option<String>, at: &str) -> usize {
    let mut client = Client::connect(url, at).await;
    let mut initialize = json!({ "clientName": "sequences", "detachedTtlMs": 2_000 });
    if let Some(id) = session.as_ref().filter(|_| random.below(2) == 0) {
        initialize["resumeSessionId"] = json!(id);
    }
    client.send(&json!({ "id": "i", "method": "initialize", "params": initialize })).await;
    match client.reply(&json!("i"), at).await {
        Some(answer) if answer.get("result").is_some() => {
            *session = answer["result"]["sessionId"].as_str().map(str::to_owned)
        }
        // The session is gone, or still attached.
        _ => {
            *session = None;
            return 1;
        }
    }
    client.send(&json!({ "method": "initialized", "params": {} })).await;
    let count = 1 + random.below(40);
    for number in 0..count {
        let mut message = random.pick(requests).clone();
        message["id"] = json!(number);
        connect_to_others(&mut message["params"], random);
        while random.below(3) == 0 {
            change(&mut message, random);
        }
        if !client.send(&message).await {
            return number;
        }
    }
    if random.below(4) > 0 {
        let probe = json!("probe");
        client.send(&json!({ "id": probe, "method": "environment/info", "params": {} })).await;
        // A connection that was closed because of what it sent is an answer, too.
        client.reply(&probe, at).await;
    }
    count
}

/// Lets requests speak of the same few processes, handles and files, so that one can spoil what another needs.
fn connect_to_others(params: &mut Value, random: &mut Random) {
    let Some(params) = params.as_object_mut() else { return };
    for (name, value) in params {
        match name.as_str() {
            "processId" | "handleId" | "watchId" | "searchId" | "writeId" if value.is_string() => {
                *value = json!(random.pick(&["a", "b", "c"]));
            }
            "path" | "cwd" | "sourcePath" | "destinationPath" if value.is_string() => {
                *value = json!(random.pick(&[
                    "file:///scratch",
                    "file:///scratch/a",
                    "file:///scratch/a/b",
                    "file:///scratch/c",
                    "file:///tmp",
                    "file:///proc/self/fd",
                ]));
            }
            "argv" => {
                *value = random
                    .pick(&[
                        json!(["true"]),
                        json!(["cat"]),
                        json!(["sh", "-c", "echo out; echo err >&2; sleep 0.05; exit 3"]),
                        json!(["sh", "-c", "sleep 100 & exec head -c 3000000 /dev/zero"]),
                        json!(["sleep", "100"]),
                    ])
                    .clone();
            }
            "env" => *value = json!({ "PATH": "/usr/bin:/bin" }),
            _ => {}
        }
    }
}

/// Changes one place of a message.
fn change(message: &mut Value, random: &mut Random) {
    let mut place = message;
    loop {
        let members = match place {
            Value::Object(members) => members.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if members == 0 || random.below(6) == 0 {
            break;
        }
        let which = random.below(members);
        place = match place {
            Value::Object(members) => members.values_mut().nth(which).expect("there are so many"),
            Value::Array(items) => &mut items[which],
            _ => unreachable!("others have no members"),
        };
    }
    match place {
        Value::Object(members) if random.below(2) == 0 => {
            let name = members.keys().nth(random.below(members.len().max(1))).cloned();
            name.map(|name| members.remove(&name));
        }
        place => *place = odd_value(random),
    }
}

fn odd_value(random: &mut Random) -> Value {
    random
        .pick(&[
            Value::Null,
            json!(true),
            json!(0),
            json!(-1),
            json!(1),
            json!(4096),
            json!(i64::MAX),
            json!(u64::MAX),
            json!(1e300),
            json!(""),
            json!("a"),
            json!("\u{0}"),
            json!("file:///"),
            json!("file:///etc/passwd"),
            json!("file:///scratch/../../proc/self/mem"),
            json!("file://host/share"),
            json!("x".repeat(20_000)),
            json!([]),
            json!({}),
            json!([[[[[[[[]]]]]]]]),
            json!({ "a": { "b": ["c", 1, null] } }),
        ])
        .clone()
}

fn golden_requests() -> Vec<Value> {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../exec-wire/golden");
    let files = std::fs::read_dir(golden).expect("the golden files are in the tree");
    let mut paths: Vec<_> = files.map(|file| file.expect("it is there").path()).collect();
    paths.sort();
    let requests = paths.iter().filter(|path| path.to_string_lossy().ends_with(".request.json"));
    let requests: Vec<Value> = requests
        .map(|path| serde_json::from_slice(&std::fs::read(path).expect("it is there")).expect("it is JSON"))
        .collect();
    assert!(requests.len() > 30, "only {} golden requests were found", requests.len());
    requests
}

struct Client(Connection);

impl Client {
    async fn connect(url: &str, at: &str) -> Self {
        let target: Target = url.parse().expect("the server printed it");
        let connection = exec_transport::connect(&target, &ConnectOptions::default()).await;
        Self(connection.unwrap_or_else(|error| panic!("{error} ({at})")))
    }

    /// `false` if the connection is gone.
    async fn send(&mut self, message: &Value) -> bool {
        let text = Message::Text(message.to_string().into());
        self.0.sender.feed(text).await.is_ok() && self.0.sender.flush().await.is_ok()
    }

    /// The answer to a request; `None` if the connection ended first.
    async fn reply(&mut self, id: &Value, at: &str) -> Option<Value> {
        let wait = async {
            loop {
                match self.0.receiver.next().await {
                    Received::Message(message) => {
                        let message: Value = serde_json::from_slice(message.bytes()).unwrap_or_default();
                        if message.get("id") == Some(id) && message.get("method").is_none() {
                            return Some(message);
                        }
                    }
                    Received::Malformed { reason } => panic!("the server broke the framing: {reason} ({at})"),
                    Received::Closed(_) => return None,
                }
            }
        };
        tokio::time::timeout(ANSWER_TIMEOUT, wait).await.unwrap_or_else(|_| panic!("no answer to {id} after {at}"))
    }

    async fn answered(&mut self, id: &Value, at: &str) -> bool {
        self.reply(id, at).await.is_some_and(|answer| answer.get("result").is_some())
    }
}

/// A server that can write nothing but its scratch directory. It ends when this is dropped.
struct ConfinedServer {
    child: Child,
    url: String,
    scratch: tempfile::TempDir,
}

impl ConfinedServer {
    fn start() -> Self {
        let scratch = tempfile::tempdir().expect("a temporary directory can be made");
        let log = std::fs::File::create(scratch.path().join("log")).expect("the directory is ours");
        std::fs::create_dir(scratch.path().join("root")).expect("it is new");
        let mut command = Command::new("bwrap");
        for directory in ["/usr", "/bin", "/lib", "/lib64"] {
            command.args(["--ro-bind-try", directory, directory]);
        }
        command.args(["--ro-bind", env!("CARGO_BIN_EXE_exec-server"), "/exec-server", "--bind"]);
        command.arg(scratch.path().join("root")).args(["/scratch", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]);
        command.args(["--proc", "/proc", "--dev", "/dev", "--unshare-pid", "--die-with-parent", "--chdir", "/scratch"]);
        command.args(["--", "/exec-server", "serve", "--listen", "ws://127.0.0.1:0"]);
        let started = command.env_clear().env("PATH", "/usr/bin:/bin").stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = started.expect("bubblewrap is needed to confine the server: install the package bubblewrap");
        let mut url = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut url).expect("it is open");
        let server = Self { child, url: url.trim().to_owned(), scratch };
        let advice = "run the tests as root, or allow user namespaces";
        assert!(server.url.starts_with("ws://"), "the server cannot be confined: {advice}:\n{}", server.log());
        server
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).expect("it is ours")
    }
}

impl Drop for ConfinedServer {
    fn drop(&mut self) {
        // With it, everything in its process namespace ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// SplitMix64: the same sequences for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}
