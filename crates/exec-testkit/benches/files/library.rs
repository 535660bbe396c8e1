//! Our client: streams over binary frames.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use exec_client::files::stream::{ReadStream, WriteStream};
use exec_client::{Options, RemoteEnvironment};
use exec_core::{Command, Io, ProcessId, TerminalSize, WriteId};
use exec_env::Environment;
use exec_env::files::{LinkPolicy, OpenMode};
use exec_env::process::LogFollower;
use exec_transport::ConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Load, Measured, PAUSE, QUIET_KEYS, Task};

const PIECE_BYTES: usize = 64 << 10;

pub(crate) async fn connect(url: &str) -> RemoteEnvironment {
    let environment =
        exec_client::connect(url.parse().expect("a URL"), ConnectOptions::default(), Options::default()).await;
    environment.expect("it listens")
}

pub(crate) async fn measure(url: &str, task: &Task) -> Measured {
    let environment = connect(url).await;
    let id = ProcessId::new("cat").expect("short");
    let command = Command { io: Io::Pty(TerminalSize::default()), ..Command::new(["/bin/cat"], "/") };
    environment.processes().start(&id, command).await.expect("cat runs");
    let mut follower = environment.processes().follow(&id, 0).await.expect("it was started");
    let mut echoes = Vec::new();
    let begin = Instant::now();
    let transfer = transfer(&environment, task);
    tokio::pin!(transfer);
    loop {
        let number = echoes.len();
        let key = async {
            // not a wait: keys are pressed at such a pace
            tokio::time::sleep(PAUSE).await;
            press(&environment, &id, number, follower.as_mut()).await
        };
        tokio::select! {
            () = &mut transfer => break,
            took = key => echoes.push(took),
        }
        if task.load == Load::Nothing && echoes.len() == QUIET_KEYS {
            break;
        }
    }
    (echoes, task.rate(begin.elapsed()))
}

async fn press(
    environment: &dyn Environment,
    id: &ProcessId,
    number: usize,
    follower: &mut dyn LogFollower,
) -> std::time::Duration {
    let at = Instant::now();
    let write = WriteId::new(number.to_string()).expect("short");
    let written = environment.processes().write(id, write, Bytes::from_static(b"k"));
    let (written, page) = tokio::join!(written, async {
        let page = follower.next(PIECE_BYTES).await;
        (page, at.elapsed())
    });
    written.expect("cat reads");
    page.0.expect("the log reads").expect("cat runs");
    page.1
}

async fn transfer(environment: &dyn Environment, task: &Task) {
    let mut piece = vec![b'x'; PIECE_BYTES];
    let pieces = task.file_bytes / PIECE_BYTES as u64;
    let mode = if task.load == Load::Writing { OpenMode::Replace } else { OpenMode::Read };
    let opened = environment.files().open(&task.path(), mode, LinkPolicy::Follow).await;
    let file = Arc::from(opened.expect("the folder is ours"));
    match task.load {
        Load::Nothing => std::future::pending().await,
        Load::Reading => {
            let mut reading = ReadStream::new(file, 0);
            for _ in 0..pieces {
                reading.read_exact(&mut piece).await.expect("it is there");
            }
        }
        Load::Writing => {
            let mut writing = WriteStream::new(file, 0);
            for _ in 0..pieces {
                writing.write_all(&piece).await.expect("there is room");
            }
            writing.shutdown().await.expect("there is room");
        }
    }
}
