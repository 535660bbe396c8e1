//! The echo of a process while a stream floods the same connection.

use std::time::{Duration, Instant};

use bytes::Bytes;
use exec_client::{Options, connect};
use exec_core::{Command, Io, ProcessId, WriteId};
use exec_env::Environment;
use exec_env::streams::{STREAM_CHUNK_BYTES, StreamAddress};
use exec_transport::ConnectOptions;

use super::quantile;

const ROUNDS: usize = 3;
const ECHOES: usize = 300;
const PAUSE: Duration = Duration::from_millis(2);

/// Which way the stream floods.
#[derive(Debug, Clone, Copy)]
pub(super) enum Flood {
    Down,
    Up,
}

pub(super) fn measure(name: &str, url: &str, far: &str, direction: Flood) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut alone, mut beside, mut carried) = (Vec::new(), Vec::new(), 0);
    let mut took = Duration::ZERO;
    runtime.block_on(async {
        let target = url.parse().expect("the server's own URL");
        let environment = connect(target, ConnectOptions::default(), Options::default()).await.expect("it listens");
        let id = ProcessId::new("echo").expect("short");
        let command = Command { io: Io::Pipes { stdin: true }, ..Command::new(["cat"], "/") };
        environment.processes().start(&id, command).await.expect("cat can be started");
        let mut follower = environment.processes().follow(&id, 0).await.expect("it was started");
        let mut count = 0;
        for _ in 0..ROUNDS {
            let echo = async |into: &mut Vec<Duration>,
                              count: &mut u64,
                              follower: &mut Box<dyn exec_env::process::LogFollower>| {
                for _ in 0..ECHOES {
                    *count += 1;
                    let began = Instant::now();
                    let write_id = WriteId::new(count.to_string()).expect("short");
                    let written = environment.processes().write(&id, write_id, Bytes::from_static(b"x\n"));
                    let (written, page) = tokio::join!(written, follower.next(1 << 16));
                    written.expect("it reads");
                    page.expect("it prints").expect("it goes on");
                    into.push(began.elapsed());
                    // not a wait: keys are pressed at such a pace
                    tokio::time::sleep(PAUSE).await;
                }
            };
            echo(&mut alone, &mut count, &mut follower).await;
            let port = far.rsplit(':').next().and_then(|port| port.parse().ok()).expect("it has a port");
            let stream = environment.streams().connect(StreamAddress::loopback(port)).await.expect("it listens");
            let endless = (u64::MAX >> 2).to_be_bytes();
            let what = match direction {
                Flood::Down => b'd',
                Flood::Up => b'u',
            };
            stream.write(Bytes::from([&[what][..], &endless].concat())).await.expect("it is connected");
            let block = Bytes::from(vec![7; STREAM_CHUNK_BYTES]);
            let began = Instant::now();
            let flood = async {
                loop {
                    carried += match direction {
                        Flood::Down => stream.read().await.expect("it is connected").len(),
                        Flood::Up => {
                            stream.write(block.clone()).await.expect("it is connected");
                            block.len()
                        }
                    };
                }
            };
            tokio::select! {
                () = echo(&mut beside, &mut count, &mut follower) => {}
                () = flood => {}
            }
            took += began.elapsed();
        }
        environment.end().await.expect("it is connected");
    });
    println!(
        "echo of a process over {name}: p50 {:.3} ms, p99 {:.3} ms alone; p50 {:.3} ms, p99 {:.3} ms beside {:.0} MB/s {direction:?}",
        quantile(&alone, 0.5),
        quantile(&alone, 0.99),
        quantile(&beside, 0.5),
        quantile(&beside, 0.99),
        carried as f64 / took.as_secs_f64() / 1e6
    );
}
