//! How long a keystroke's echo takes while a large file goes over the same WebSocket, in milliseconds; and before that what
//! a policy costs a small file.
//!
//! `cargo xtask bench files`. Our server is measured with our client, then with a plain client; Codex's server with the
//! plain client, if `CODEX_BIN` names it. All take turns in one run. `EXEC_FILE_MB` is the size of the file in MiB.

mod library;
mod plain;
mod sandboxed;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use exec_testkit::binaries;

/// Between an echo and the next keystroke.
const PAUSE: Duration = Duration::from_millis(3);
const ROUNDS: usize = 3;
/// Keystrokes of a round without a transfer.
const QUIET_KEYS: usize = 300;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let file_bytes = std::env::var("EXEC_FILE_MB").map_or(1024, |mb| mb.parse::<u64>().expect("a number")) << 20;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    std::fs::write(&file, vec![b'x'; file_bytes as usize]).expect("there is room");
    let ours = binaries::exec_server().display().to_string();
    sandboxed::measure(&Server::start(&ours, "serve").url, folder.path()).await;
    let mut servers = vec![("ours", ours.clone(), "serve", true), ("ours, plain", ours, "serve", false)];
    if let Ok(codex) = std::env::var("CODEX_BIN") {
        servers.push(("codex, plain", codex, "exec-server", false));
    }
    let mut samples: HashMap<(&str, Load), Samples> = HashMap::new();
    for _ in 0..ROUNDS {
        for (name, program, verb, own_client) in &servers {
            for load in Load::ALL {
                let server = Server::start(program, verb);
                let task = Task { load, file: file.clone(), file_bytes };
                let measured = if *own_client {
                    library::measure(&server.url, &task).await
                } else {
                    plain::measure(&server.url, &task).await
                };
                samples.entry((name, load)).or_default().add(measured);
            }
        }
    }
    println!("a keystroke's echo on a terminal, beside {} MiB on the same WebSocket", file_bytes >> 20);
    println!(
        "{:<14}{:<10}{:>10}{:>10}{:>10}{:>12}{:>8}",
        "", "beside", "p50 ms", "p99 ms", "most ms", "file MB/s", "keys"
    );
    for (name, ..) in &servers {
        for load in Load::ALL {
            samples.get_mut(&(*name, load)).expect("it was measured").print(name, load);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Load {
    Nothing,
    Reading,
    Writing,
}

impl Load {
    const ALL: [Self; 3] = [Self::Nothing, Self::Reading, Self::Writing];
}

/// What one round measures.
struct Task {
    load: Load,
    /// What is read; what is written goes beside it.
    file: PathBuf,
    file_bytes: u64,
}

impl Task {
    fn path(&self) -> PathBuf {
        match self.load {
            Load::Nothing | Load::Reading => self.file.clone(),
            Load::Writing => self.file.with_extension("copy"),
        }
    }

    /// In MB/s.
    fn rate(&self, took: Duration) -> Option<f64> {
        (self.load != Load::Nothing).then(|| self.file_bytes as f64 / took.as_secs_f64() / 1e6)
    }
}

/// Echoes, and the rate of the file.
type Measured = (Vec<Duration>, Option<f64>);

#[derive(Default)]
struct Samples {
    echoes: Vec<Duration>,
    rates: Vec<f64>,
}

impl Samples {
    fn add(&mut self, (echoes, rate): Measured) {
        self.echoes.extend(echoes);
        self.rates.extend(rate);
    }

    fn print(&mut self, name: &str, load: Load) {
        self.echoes.sort();
        self.rates.sort_by(f64::total_cmp);
        let at = |share: f64| self.echoes[((self.echoes.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        let rate = self.rates.get(self.rates.len() / 2).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
        let load = format!("{load:?}").to_lowercase();
        let (keys, p50, p99, most) = (self.echoes.len(), at(0.5), at(0.99), at(1.0));
        println!("{name:<14}{load:<10}{p50:>10.3}{p99:>10.3}{most:>10.3}{rate:>12}{keys:>8}");
    }
}

struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(program: &str, verb: &str) -> Self {
        let mut command = Command::new(program);
        command.args([verb, "--listen", "ws://127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{program} starts: {error}"));
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let url = stdout.lines().map_while(Result::ok).find(|line| line.starts_with("ws://"));
        Self { child, url: url.expect("a server prints its URL") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
