//! How fast the output of a process comes to each language, beside the Rust client, and the longest turn of their event loops.
//!
//! `cargo xtask bench sdks`. A server of its own, a flood of `EXEC_SDK_MB` MiB, and the languages take turns in one run.
//! `EXEC_SDK_PYTHON` and `EXEC_SDK_NODE` are folders with the packages of this build.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use exec_server::process::LogEvent;
use exec_server::spawn::{self, EnvironmentExt as _};
use exec_server::{EntryBody, SharedEnvironment};
use exec_testkit::binaries;
use futures_util::StreamExt as _;

const ROUNDS: usize = 5;

fn main() {
    let bytes = std::env::var("EXEC_SDK_MB").map_or(500, |mb| mb.parse::<usize>().expect("a number")) << 20;
    let mut server = Command::new(binaries::exec_server());
    server.args(["serve", "--listen", "ws://127.0.0.1:0"]).env("EXEC_SERVER_HOME", "/nonexistent");
    let mut server = server.stdout(Stdio::piped()).spawn().expect("the binary can be started");
    let mut stdout = BufReader::new(server.stdout.take().expect("piped"));
    let mut url = String::new();
    stdout.read_line(&mut url).expect("it says where it listens");
    let url = url.trim_end();

    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut turns: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let mut note = |name: &str, seconds: f64| {
            rates.entry(name.to_owned()).or_default().push(bytes as f64 / seconds / 1e6);
        };
        note("rust", rust(url, bytes));
        for (language, program) in languages() {
            let told = measured(program, url, bytes);
            for (name, value) in told {
                match name.strip_prefix("worst ") {
                    Some(way) => turns.entry(format!("{language} {way}")).or_default().push(value),
                    None => note(&format!("{language} {name}"), value),
                }
            }
        }
    }
    let _ = server.kill();
    let _ = server.wait();

    println!("{} MiB, {ROUNDS} rounds, medians", bytes >> 20);
    let rust = median(&rates["rust"]);
    for (name, rates) in &rates {
        println!("{name:<16}{:>8.0} MB/s{:>8.2} of rust", median(rates), median(rates) / rust);
    }
    for (name, turns) in &turns {
        println!("{name:<16}{:>8.2} ms of processor time in the longest turn of the event loop", median(turns));
    }
}

/// Seconds.
fn rust(url: &str, bytes: usize) -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads can be made").block_on(async {
        let environment: SharedEnvironment =
            std::sync::Arc::new(exec_server::client::connect_url(url).await.expect("the server is there"));
        let began = Instant::now();
        let command = spawn::Command::new("head").arg("-c").arg(bytes.to_string()).arg("/dev/zero");
        let process = environment.spawn(command).await.expect("it can be started");
        let mut total = 0;
        let mut events = process.events();
        while let Some(event) = events.next().await {
            if let LogEvent::Entry(entry) = event.expect("it is there")
                && let EntryBody::Output { bytes, .. } = entry.body
            {
                total += bytes.len();
            }
        }
        let taken = began.elapsed().as_secs_f64();
        assert_eq!(total, bytes);
        process.forget().await.expect("it is there");
        taken
    })
}

fn languages() -> [(&'static str, Command); 2] {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk");
    let folder =
        |name| std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: use `cargo xtask bench sdks`"));
    let mut python = Command::new("python3");
    python.arg(sources.join("python/tests/throughput.py")).env("PYTHONPATH", folder("EXEC_SDK_PYTHON"));
    let mut node = Command::new("node");
    // By its own path: what it imports is looked for beside it.
    let program = Path::new(&folder("EXEC_SDK_NODE")).join("throughput.mjs");
    std::fs::copy(sources.join("typescript/tests/throughput.mjs"), &program).expect("the folder can be written");
    node.arg(program);
    [("python", python), ("node", node)]
}

/// What the program tells in one line of JSON: names and numbers.
fn measured(mut program: Command, url: &str, bytes: usize) -> BTreeMap<String, f64> {
    let output = program.arg(url).arg(bytes.to_string()).output().expect("it can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
