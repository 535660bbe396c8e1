//! What a session's observers are measured with: clients that cost the measuring process next to nothing, and the echo of the
//! driver whom they must not disturb.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use exec_core::EntryBody;
use exec_env::Processes;
use exec_env::process::LogFollower;

use crate::test_environment::{process_id, write_id};

/// A client of few words: it observes, reads all it gets and looks at none of it. It costs this process next to nothing.
pub struct PlainObserver {
    stop: Arc<AtomicBool>,
    stream: UnixStream,
    reading: JoinHandle<bool>,
}

impl PlainObserver {
    /// Observes, from the beginning of the log of this process on. Its thread is so nice.
    pub fn attach(socket: &Path, session: &str, process: &str, nice: i32) -> Self {
        let mut stream = UnixStream::connect(socket).expect("the daemon listens");
        let params = serde_json::json!({
            "clientName": "plain", "resumeSessionId": session, "role": "observer", "resumeFrom": { process: 0 },
        });
        let initialize = serde_json::json!({"id": 1, "method": "initialize", "params": params});
        stream.write_all(format!("{initialize}\n{{\"method\":\"initialized\"}}\n").as_bytes()).expect("it reads");
        // Told who is attached, it is attached itself.
        let mut seen = Vec::new();
        while !contains(&seen, b"session/attached") {
            let mut block = [0; 4096];
            let count = stream.read(&mut block).expect("the daemon answers");
            assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&block[..count]);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (mut reads, stopped) = (stream.try_clone().expect("there are descriptors"), stop.clone());
        // `true` once it was told that the log is complete.
        let reading = std::thread::spawn(move || {
            let _ = rustix::process::nice(nice);
            let (mut block, mut kept) = (vec![0; 64 << 10], 0);
            while !stopped.load(Ordering::Relaxed) {
                let Ok(count) = reads.read(&mut block[kept..]) else { return false };
                if contains(&block[..kept + count], b"process/closed") || count == 0 {
                    return count > 0;
                }
                let end = kept + count;
                kept = end.min(16);
                block.copy_within(end - kept..end, 0);
            }
            false
        });
        Self { stop, stream, reading }
    }

    /// Waits until it has read a whole log.
    pub fn has_read_all(self) -> bool {
        self.reading.join().expect("it does not panic")
    }

    pub fn leave(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.reading.join();
    }
}

/// Writes a line to the process `echo`, and takes the time until it has come back.
pub async fn echo_once(processes: &dyn Processes, echoes: &mut dyn LogFollower, text: &str) -> Duration {
    let begun = Instant::now();
    let line = Bytes::from(format!("{text}\n"));
    processes.write(&process_id("echo"), write_id(text), line.clone()).await.expect("it reads");
    let mut seen = Vec::new();
    while seen.len() < line.len() {
        let page = echoes.next(1 << 16).await.expect("it can be followed").expect("it goes on");
        for entry in page.entries {
            if let EntryBody::Output { bytes, .. } = entry.body {
                seen.extend_from_slice(&bytes);
            }
        }
    }
    assert_eq!(seen, line);
    begun.elapsed()
}

/// The middle one.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|part| part == wanted)
}
