//! A machine behind a connection that breaks. A server and its client run in this one program, with a proxy between.
//!
//! The proxy is stopped while a process prints, and the process ends while nobody is connected. When the proxy runs
//! again, the client finds its session and reads on where it was.
//!
//!     cargo run -p exec-server --example remote --features serve

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use exec_server::process::{LogFollower, WaitCondition};
use exec_server::serve::{self, ListenOptions, ListenUrl, Listener, Server};
use exec_server::{Command, EntryBody, Environ, Environment, ProcessId, Seq};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

const LINES: usize = 20;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("exec-server-remote-{}", std::process::id()));
    fs::create_dir(&directory)?;
    let shown = show(&directory).await;
    fs::remove_dir_all(&directory)?;
    shown
}

async fn show(directory: &Path) -> Result<(), Box<dyn Error>> {
    // The far end: this machine behind a unix socket, until `stop` is dropped.
    let machine = Arc::new(exec_server::open_local().await?);
    let server = Server::start(machine.clone(), serve::ServerOptions::default()).await?;
    let far_socket = directory.join("far.sock");
    let listener = Listener::bind(&ListenUrl::Unix(far_socket.clone()), ListenOptions::default()).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move { serve::run(&server, listener, async { drop(stopped.await) }).await });

    // The near end: the URL is all that is different from a local machine.
    let near_socket = directory.join("near.sock");
    let proxy = start_proxy(&near_socket, &far_socket)?;
    let remote = exec_server::connect_url(&format!("unix://{}", near_socket.display())).await?;
    let id = ProcessId::new("counting")?;
    let script = format!("for i in $(seq {LINES}); do echo line $i; sleep 0.02; done");
    let environ = Environ::exactly([("PATH", "/usr/bin:/bin")]);
    let command = Command { environ, ..Command::new(["sh", "-c", &script], "/") };
    remote.processes().start(&id, command).await?;

    let mut reader = Reader { follower: remote.processes().follow(&id, 0).await?, last_seq: 0, text: String::new() };
    while reader.text.lines().count() < 3 {
        assert!(reader.read_page().await?, "the log goes on after three lines");
    }
    println!("{}the connection is cut", reader.text);
    proxy.abort();

    // Seen from the far end: the process neither notices nor waits.
    for info in machine.processes().list().await? {
        machine.processes().wait(&info.id, WaitCondition::Exited, None).await?;
    }
    let before = reader.text.len();
    println!("the process has ended meanwhile; the proxy is started again");
    let proxy = start_proxy(&near_socket, &far_socket)?;
    while reader.read_page().await? {}

    print!("{}", &reader.text[before..]);
    let expected: String = (1..=LINES).map(|line| format!("line {line}\n")).collect();
    assert_eq!(reader.text, expected);
    assert_eq!(remote.metrics().reconnects, 1);
    println!("all {LINES} lines arrived, each once");

    remote.close().await; // the session would stay, and could be resumed; here its machine ends too
    drop(stop);
    serving.await??;
    proxy.abort();
    machine.end().await;
    Ok(())
}

/// Reads a log and checks that nothing is lost, repeated or out of order.
struct Reader {
    follower: Box<dyn LogFollower>,
    last_seq: Seq,
    text: String,
}

impl Reader {
    /// Waits for the next page; answers whether there was one.
    async fn read_page(&mut self) -> Result<bool, Box<dyn Error>> {
        let Some(page) = self.follower.next(64 * 1024).await? else { return Ok(false) };
        assert_eq!(page.gap, None);
        for entry in page.entries {
            assert_eq!(entry.seq, self.last_seq + 1);
            self.last_seq = entry.seq;
            if let EntryBody::Output { bytes, .. } = entry.body {
                self.text.push_str(str::from_utf8(&bytes)?);
            }
        }
        Ok(true)
    }
}

/// Carries bytes from one socket to the other, as a network would. Aborting the task cuts all connections.
fn start_proxy(near: &Path, far: &Path) -> io::Result<JoinHandle<io::Result<()>>> {
    let _ = fs::remove_file(near); // left by a proxy that was stopped
    let listener = UnixListener::bind(near)?;
    let far = far.to_owned();
    Ok(tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (mut near, _) = listener.accept().await?;
            let mut far = UnixStream::connect(&far).await?;
            connections.spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    }))
}
