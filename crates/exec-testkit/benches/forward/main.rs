//! What a forwarded port carries beside a bare socket of the loopback, what it adds to an echo, and what it does to the echo of a
//! process on the same connection.
//!
//! `cargo xtask bench forward`. A bare socket, two plain relays one behind the other, `exec-server forward` over a
//! WebSocket and over a unix socket take turns in one run. The relays only read and write: they are the most that any
//! two programs between two sockets reach on this machine, and so tell what the protocol costs from what the two hops
//! cost. `EXEC_FORWARD_MB` is how much is carried each time, in MiB.

mod beside;
mod plain_relay;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use exec_testkit::binaries;

const ROUNDS: usize = 7;
/// Echoes of a round.
const ECHOES: usize = 2_000;
/// What a program writes and reads at a time.
const BLOCK_BYTES: usize = 64 << 10;

fn main() {
    let bytes = std::env::var("EXEC_FORWARD_MB").map_or(512, |mb| mb.parse::<usize>().expect("a number")) << 20;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let far = FarEnd::start();
    let servers = ["ws://127.0.0.1:0".to_owned(), format!("unix://{}", folder.path().join("s").display())];
    let servers = servers.map(|url| Program::start(&["serve", "--listen", &url]));
    let forwards = servers.each_ref().map(|server| {
        let pair = format!("0:{}", far.address.rsplit(':').next().expect("it has a port"));
        let forward = Program::start(&["forward", "--connect", &server.said, &pair]);
        (forward.said.split(' ').next().expect("it says where it listens").to_owned(), forward)
    });
    let relays = plain_relay::start(&plain_relay::start(&far.address));
    let mut ways = vec![Way::new("bare socket", &far.address), Way::new("plain relays", &relays)];
    for (name, (address, _)) in ["forward, ws", "forward, unix"].into_iter().zip(&forwards) {
        ways.push(Way::new(name, address));
    }
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.measure(bytes);
        }
    }
    println!("{} MiB each way, {ROUNDS} rounds, medians; echoes of one byte", bytes >> 20);
    println!(
        "{:<16}{:>10}{:>8}{:>10}{:>8}{:>12}{:>12}{:>12}",
        "", "up MB/s", "ratio", "down MB/s", "ratio", "p50 ms", "more ms", "p99 ms"
    );
    let bare = (ways[0].up(), ways[0].down(), ways[0].echo(0.5));
    for way in &ways {
        let (up, down, echo) = (way.up(), way.down(), way.echo(0.5));
        println!(
            "{:<16}{up:>10.0}{:>8.2}{down:>10.0}{:>8.2}{echo:>12.3}{:>12.3}{:>12.3}",
            way.name,
            up / bare.0,
            down / bare.1,
            echo - bare.2,
            way.echo(0.99)
        );
    }
    for (name, server) in ["ws", "unix"].into_iter().zip(&servers) {
        for flood in [beside::Flood::Down, beside::Flood::Up] {
            beside::measure(name, &server.said, &far.address, flood);
        }
    }
}

/// One way to the far end, and what was measured on it.
struct Way {
    name: &'static str,
    address: String,
    up: Vec<f64>,
    down: Vec<f64>,
    echoes: Vec<Duration>,
}

impl Way {
    fn new(name: &'static str, address: &str) -> Self {
        Self { name, address: address.to_owned(), up: Vec::new(), down: Vec::new(), echoes: Vec::new() }
    }

    fn measure(&mut self, bytes: usize) {
        let rate = |began: Instant| bytes as f64 / began.elapsed().as_secs_f64() / 1e6;
        let mut stream = self.connect(b'u', bytes);
        let began = Instant::now();
        let block = vec![7; BLOCK_BYTES];
        for _ in 0..bytes / BLOCK_BYTES {
            stream.write_all(&block).expect("it is connected");
        }
        stream.read_exact(&mut [0]).expect("the far end has everything");
        self.up.push(rate(began));

        let mut stream = self.connect(b'd', bytes);
        let began = Instant::now();
        let mut block = vec![0; BLOCK_BYTES];
        let mut left = bytes;
        while left > 0 {
            left -= stream.read(&mut block).expect("it is connected");
        }
        self.down.push(rate(began));

        let mut stream = self.connect(b'e', 0);
        for _ in 0..ECHOES {
            let began = Instant::now();
            stream.write_all(b"x").expect("it is connected");
            stream.read_exact(&mut [0]).expect("it is an echo");
            self.echoes.push(began.elapsed());
        }
    }

    fn connect(&self, what: u8, bytes: usize) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_nodelay(true).expect("it is a socket");
        stream.write_all(&[what]).expect("it is connected");
        stream.write_all(&(bytes as u64).to_be_bytes()).expect("it is connected");
        stream.read_exact(&mut [0]).expect("the far end is there");
        stream
    }

    fn up(&self) -> f64 {
        median(&self.up)
    }

    fn down(&self) -> f64 {
        median(&self.down)
    }

    /// In milliseconds.
    fn echo(&self, share: f64) -> f64 {
        quantile(&self.echoes, share)
    }
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// In milliseconds.
fn quantile(times: &[Duration], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[((sorted.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3
}

/// What programs connect to: takes so many bytes, sends so many, sends for ever, or echoes.
struct FarEnd {
    address: String,
}

impl FarEnd {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        // It ends with the program.
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { address }
    }
}

fn serve(mut stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let (mut what, mut bytes) = ([0], [0; 8]);
    stream.read_exact(&mut what).ok()?;
    stream.read_exact(&mut bytes).ok()?;
    stream.write_all(b"!").ok()?;
    let mut block = vec![7; BLOCK_BYTES];
    let mut left = u64::from_be_bytes(bytes) as usize;
    match what[0] {
        b'u' => {
            while left > 0 {
                left -= stream.read(&mut block).ok().filter(|read| *read > 0)?;
            }
            stream.write_all(b"!").ok()
        }
        b'd' => {
            while left > 0 {
                left -= stream.write(&block[..left.min(BLOCK_BYTES)]).ok()?;
            }
            Some(())
        }
        _ => loop {
            let read = stream.read(&mut block).ok().filter(|read| *read > 0)?;
            stream.write_all(&block[..read]).ok()?;
        },
    }
}

/// A running exec-server, and the first line that it said.
struct Program {
    child: Child,
    said: String,
    /// Held open, because it may say more.
    _stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(binaries::exec_server());
        command.args(args).env("EXEC_SERVER_HOME", "/nonexistent").stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary can be started");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut said = String::new();
        stdout.read_line(&mut said).expect("it says where it listens");
        Self { child, said: said.trim_end().to_owned(), _stdout: stdout }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
