//! Connections that are cut and daemons that are killed again and again, under load. The caller of the client library
//! must notice nothing but pauses.
//!
//! The daemon is the real binary, the network a proxy that cuts; the moments are pseudo-random, from seeds that are
//! printed.

pub(crate) mod daemon;
mod signals;
mod writes;

use std::sync::Arc;
use std::time::Duration;

use exec_client::{Options, RemoteEnvironment, TargetDial};
use exec_core::{Command, EntryBody, ProcessId, Stream};
use exec_env::Environment;
use exec_env::files::{Files, OpenFile, OpenMode};
use exec_env::process::LogFollower;
use exec_testkit::checked_log::CheckedLog;
use exec_testkit::process::LogReader;
use exec_testkit::proxy::CuttingProxy;
use exec_testkit::test_data::{SeededBytes, SeededRng};
use exec_testkit::test_environment::{process_id, write_id};
use exec_transport::{ConnectOptions, Target};
use tokio::task::JoinSet;

use crate::durability::printing_children::{self, PrintingChild};
use crate::durability::support::{number_from_env, run_for};
use crate::environments::ACTOR;
use daemon::Daemon;

/// Output of one process, and how often its connection breaks on the way. `EXEC_CUT_MB` makes it shorter or longer.
const CUT_MEGABYTES: u64 = 1000;
const CUTS: usize = 1000;

/// Kills of the daemon, at least; `EXEC_SOAK_ROUNDS` asks for more.
const KILLS: usize = 200;

/// Longest time for these, on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// Output a page brings at the most.
const PAGE_BYTES: usize = 1 << 20;

pub(crate) async fn connected(target: Target) -> RemoteEnvironment {
    let dial = TargetDial::new(target, ConnectOptions::default());
    let options = Options { give_up: Some(DEADLINE), ..Options::default() };
    RemoteEnvironment::open(Arc::new(dial), options).await.expect("the server answers")
}

#[test]
fn alone_a_thousand_cuts_in_a_gigabyte_of_output_cost_no_byte_and_repeat_none() {
    run_for(DEADLINE, async {
        let bytes = number_from_env("EXEC_CUT_MB").unwrap_or(CUT_MEGABYTES) * 1_000_000;
        let daemon = Daemon::on_a_port();
        let proxy = CuttingProxy::start(daemon.address()).await;
        let environment = connected(format!("ws://{}", proxy.address()).parse().expect("a target")).await;
        let id = process_id("flood");
        let argv = [ACTOR.to_owned(), "flood".into(), "stdout".into(), bytes.to_string(), "7".into(), "65536".into()];
        let command = Command { spool_bytes: Some(2 * bytes), ..Command::new(argv, "/") };
        environment.processes().start(&id, command).await.expect("the actor is there");
        let follower = environment.processes().follow(&id, 0).await.expect("it was started");
        let mut reading = JoinSet::new();
        reading.spawn(check_flood(follower, bytes));
        let mut rng = SeededRng::new(11);
        // On average three quarters of what would be the mean distance: hardly anything is sent twice.
        let step = bytes as usize * 3 / 2 / CUTS;
        let mut cuts = 0;
        while cuts < CUTS {
            let at = proxy.counts().answered_bytes + rng.below(step) as u64;
            tokio::select! {
                _ = proxy.wait_until(|counts| counts.answered_bytes >= at) => {}
                checked = reading.join_next() => {
                    checked.expect("one reads").expect("every byte is as it was printed");
                    break;
                }
            }
            proxy.cut();
            cuts += 1;
        }
        while let Some(checked) = reading.join_next().await {
            checked.expect("every byte is as it was printed");
        }
        let metrics = environment.metrics();
        eprintln!("{cuts} cuts, {metrics:?}");
        assert!(metrics.reconnects >= cuts as u64 / 2 && cuts >= CUTS * 9 / 10, "{cuts} cuts, {metrics:?}");
        environment.close().await;
    });
}

/// Reads a log to its end: dense seqs, the expected bytes, no gap.
async fn check_flood(mut follower: Box<dyn LogFollower>, bytes: u64) {
    let (mut seq, mut offset) = (0, 0);
    while let Some(page) = follower.next(PAGE_BYTES).await.expect("the session lives") {
        assert_eq!(page.gap, None);
        for entry in page.entries {
            seq += 1;
            assert_eq!(entry.seq, seq);
            if let EntryBody::Output { stream, bytes } = entry.body {
                assert_eq!(stream, Stream::Stdout);
                assert_eq!(SeededBytes::new(7).first_difference(offset, &bytes), None);
                offset += bytes.len() as u64;
            }
        }
    }
    assert_eq!(offset, bytes);
}

#[test]
fn alone_two_hundred_kills_of_the_daemon_are_pauses_to_its_client() {
    let mut left = number_from_env("EXEC_SOAK_ROUNDS").unwrap_or(0).max(KILLS as u64) as usize;
    let mut seed = number_from_env("EXEC_SOAK_SEED").unwrap_or(1);
    while left > 0 {
        let kills = left.min(100);
        println!("{kills} kills with EXEC_SOAK_SEED={seed}");
        run_for(DEADLINE, kill_daemons(seed, kills));
        left -= kills;
        seed += 1;
    }
}

async fn kill_daemons(seed: u64, kills: usize) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut rng = SeededRng::new(seed);
    let children: Arc<Vec<PrintingChild>> = Arc::new(printing_children::create_all(folder.path(), &mut rng, kills));
    let mut daemon = Daemon::with_state(folder.path());
    let environment = Arc::new(connected(daemon.target()).await);
    let mut readers = JoinSet::new();
    for (at, child) in children.iter().enumerate() {
        let id = process_id(&child.id);
        environment.processes().start(&id, child.command()).await.expect("the actor is there");
        readers.spawn(read_log(environment.clone(), id, at));
    }
    readers.spawn(write_lines_to_cat(environment.clone(), kills));
    for _ in 0..kills {
        children.iter().for_each(PrintingChild::print_next_piece);
        // not a wait: the moment of the kill is random
        tokio::time::sleep(Duration::from_micros(rng.below(30_000) as u64)).await;
        daemon.kill_and_restart();
    }
    while let Some(read) = readers.join_next().await {
        if let Some((at, seen)) = read.expect("a reader notices nothing") {
            children[at].check(&seen);
        }
    }
    let environment = Arc::into_inner(environment).expect("the readers are done");
    environment.end().await.expect("the session is there");
    daemon.shut_down().await;
}

async fn read_log(environment: Arc<RemoteEnvironment>, id: ProcessId, at: usize) -> Option<(usize, CheckedLog)> {
    let reader = LogReader::open(environment.processes(), &id, 0).await;
    Some((at, reader.read_to_end().await))
}

/// Writes lines to a `cat` all the while: each arrives once and in order, except for those that the server reports as
/// in doubt, which arrive once or not at all.
async fn write_lines_to_cat(environment: Arc<RemoteEnvironment>, lines: usize) -> Option<(usize, CheckedLog)> {
    use exec_env::process::Written;
    let id = process_id("cat");
    let command = Command { io: exec_core::Io::Pipes { stdin: true }, ..Command::new(["/bin/cat"], "/") };
    environment.processes().start(&id, command).await.expect("every machine has cat");
    let mut certain = Vec::new();
    let mut doubtful = Vec::new();
    for number in 0..lines {
        let line = format!("line {number}\n");
        let key = write_id(&number.to_string());
        match environment.processes().write(&id, key, line.clone().into()).await.expect("the session lives") {
            Written::Accepted => certain.push(line),
            Written::InDoubt => doubtful.push(line),
            Written::StdinClosed => panic!("cat reads until the end"),
        }
    }
    environment.processes().close_stdin(&id).await.expect("the session lives");
    let (_, seen) = read_log(environment, id, 0).await.expect("it has an end");
    let shown = seen.stdout();
    let mut found: Vec<&str> = shown.split_inclusive('\n').collect();
    found.retain(|line| !doubtful.iter().any(|doubt| doubt == line));
    assert_eq!(found, certain);
    eprintln!("{} lines certain, {} in doubt", certain.len(), doubtful.len());
    None
}

#[test]
fn alone_a_file_arrives_whole_over_a_connection_that_is_cut_fifty_times() {
    use exec_client::files::stream::{ReadStream, WriteStream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    run_for(DEADLINE, async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let megabytes = number_from_env("EXEC_CUT_MB").unwrap_or(1024);
        let daemon = Daemon::on_a_port();
        let proxy = CuttingProxy::start(daemon.address()).await;
        let environment = connected(format!("ws://{}", proxy.address()).parse().expect("a target")).await;
        let path = folder.path().join("file");
        let piece = SeededBytes::new(3).bytes(1 << 20);
        let every = (megabytes / 25).max(1);
        let mut cuts = 0;
        let mut writing = WriteStream::new(open(environment.files(), &path, OpenMode::Replace).await, 0);
        for at in 0..megabytes {
            writing.write_all(&piece).await.expect("the folder is ours");
            if at % every == 0 {
                proxy.cut();
                cuts += 1;
            }
        }
        writing.shutdown().await.expect("the folder is ours");
        let sent_bytes = environment.metrics().bytes_out;
        let mut reading = ReadStream::new(open(environment.files(), &path, OpenMode::Read).await, 0);
        let mut back = vec![0; piece.len()];
        for at in 0..megabytes {
            reading.read_exact(&mut back).await.expect("it is there");
            assert!(back == piece, "megabyte {at}");
            if at % every == 0 {
                proxy.cut();
                cuts += 1;
            }
        }
        assert_eq!(reading.read(&mut back).await.expect("it is there"), 0);
        assert_eq!(reading.hash(), writing.hash());
        let metrics = environment.metrics();
        eprintln!("{cuts} cuts, {sent_bytes} bytes sent for {} written, {metrics:?}", megabytes << 20);
        // Blocks under way at a cut are sent twice, but never the whole file.
        assert!(sent_bytes < (megabytes << 20) * 3 / 2, "{sent_bytes} bytes were sent");
        assert!(cuts >= 50 && metrics.reconnects >= 25, "{cuts} cuts, {metrics:?}");
        environment.close().await;
    });
}

async fn open(files: &dyn Files, path: &std::path::Path, mode: OpenMode) -> Arc<dyn OpenFile> {
    Arc::from(files.open(path, mode, exec_env::files::LinkPolicy::Follow).await.expect("the folder is ours"))
}
