//! `exec-server relay`: the far end of `exec-server ssh`. It finds or starts the server of the account, says that it is ready,
//! and from there on is a pair of pipes: what comes in on stdin goes to the server's socket, and back.
//!
//! It ends when either side does. The server stays; so does what it runs.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

use anyhow::Context;

use crate::args::RelayArgs;
use crate::local_daemon::LocalDaemon;
use crate::{logging, messages, stdio};

/// What is moved at once: as much as a pipe holds.
const PIECE_BYTES: usize = 64 << 10;

pub(crate) async fn run(args: &RelayArgs) -> anyhow::Result<u8> {
    let mark = &args.mark;
    let stream = match connect().await {
        Ok(stream) => stream,
        Err(error) => {
            // The client shows it instead of an exit code.
            let why = messages::error_chain(&error).replace('\n', " ");
            messages::print_stdout(format!("{mark} failed server {why}\n").as_bytes())?;
            return Err(error);
        }
    };
    messages::print_stdout(format!("{mark} ready\n").as_bytes()).context("cannot write to stdout")?;
    // Blocking threads do nothing but read and write: cheaper than a runtime for two streams that are never idle for long.
    let (done, first_end) = mpsc::sync_channel(2);
    let (to_server, from_server) = (stream.try_clone()?, stream.try_clone()?);
    let there = done.clone();
    std::thread::spawn(move || there.send(pass_on(stdio::stdin(), to_server)));
    std::thread::spawn(move || done.send(pass_on(from_server, stdio::stdout())));
    // Whoever is left ends with this process.
    let ended = first_end.recv();
    let _ = stream.shutdown(Shutdown::Both);
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "the connection broke");
    }
    logging::finish();
    // stdin may be held by a thread that blocks; there is nothing else to finish.
    std::process::exit(0)
}

async fn connect() -> anyhow::Result<UnixStream> {
    let daemon = LocalDaemon::of_this_account()?;
    Ok(daemon.stream().await?)
}

fn pass_on(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(read) => to.write_all(&piece[..read])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
