//! Streams of files of any size: little memory, and connections that break.
//!
//! `EXEC_STREAM_MB` is the size of the large one in MiB.

use std::path::Path;
use std::sync::Arc;

use exec_client::files::stream::{ReadStream, WriteStream, confirm};
use exec_env::Environment;
use exec_env::files::{FileReason, Files, LinkPolicy, OpenFile, OpenMode};
use exec_testkit::proc_status::{peak_resident_bytes, reset_peak, resident_bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::durability::support::{number_from_env, run};
use crate::endurance::connected;
use crate::endurance::daemon::Daemon;
use crate::remote;

/// What either end may grow by while a large file passes.
const GROWTH_BYTES: u64 = 16 << 20;

/// Pseudo-random bytes.
fn noise(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

async fn open(files: &dyn Files, path: &Path, mode: OpenMode) -> Arc<dyn OpenFile> {
    Arc::from(files.open(path, mode, LinkPolicy::Follow).await.expect("the folder is ours"))
}

#[test]
fn a_stream_over_a_transport_that_breaks_arrives_whole_both_ways() {
    run(async {
        let env = remote::over_a_transport_that_breaks().await;
        let files = env.environment.files();
        let path = env.scratch().join("file");
        let bytes: Vec<u8> = (0..32 << 20).map(noise).collect();
        let mut writing = WriteStream::new(open(files, &path, OpenMode::Replace).await, 0);
        writing.write_all(&bytes).await.expect("the server is found again");
        writing.shutdown().await.expect("the server is found again");
        assert!(std::fs::read(&path).expect("it was written") == bytes);
        let written = writing.hash();
        drop(writing);
        let mut reading = ReadStream::new(open(files, &path, OpenMode::Read).await, 0);
        let mut read = Vec::new();
        reading.read_to_end(&mut read).await.expect("the server is found again");
        assert!(read == bytes);
        assert_eq!(reading.hash(), written);
    });
}

#[test]
fn another_file_of_the_same_name_is_never_read_in_place_of_the_one_that_was_opened() {
    const BLOCK: usize = 64 << 10;
    run(async {
        let env = remote::over_a_transport_that_breaks().await;
        let (path, other) = (env.scratch().join("file"), env.scratch().join("other"));
        std::fs::write(&path, [1; BLOCK]).expect("the folder is ours");
        std::fs::write(&other, [2; BLOCK]).expect("the folder is ours");
        let file = open(env.environment.files(), &path, OpenMode::Read).await;
        std::fs::rename(&other, &path).expect("the folder is ours");
        let mut refused = 0;
        while refused < 20 {
            for block in futures_util::future::join_all((0..4).map(|_| file.read_block(0, BLOCK))).await {
                match block {
                    // The connection has not broken yet.
                    Ok(block) => {
                        assert!(refused == 0 && block.bytes[..] == [1; BLOCK], "these bytes are of another file")
                    }
                    Err(error) => {
                        assert_eq!(error.errno(), Some(rustix::io::Errno::STALE.raw_os_error()), "{error}");
                        refused += 1;
                    }
                }
            }
        }
    });
}

#[test]
fn what_was_written_can_be_confirmed_by_its_hash() {
    run(async {
        let env = remote::over_memory().await;
        let files = env.environment.files();
        let path = env.scratch().join("file");
        let mut writing = WriteStream::new(open(files, &path, OpenMode::Replace).await, 0);
        writing.write_all(b"these very bytes").await.expect("the folder is ours");
        writing.shutdown().await.expect("the folder is ours");
        confirm(files, &path, writing.hash()).await.expect("they are there");
        std::fs::write(&path, "others").expect("the folder is ours");
        let refused = confirm(files, &path, writing.hash()).await.expect_err("they are not there any more");
        assert!(matches!(refused.reason, FileReason::Changed { present: Some(_) }), "{refused}");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"others");
    });
}

#[test]
fn alone_a_large_file_passes_both_ways_while_neither_end_grows_by_16_mebibytes() {
    run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let daemon = Daemon::on_a_port();
        let environment = connected(daemon.target()).await;
        let files = environment.files();
        let path = folder.path().join("file");
        let size = megabytes() << 20;
        // A little of it first: threads, buffers and pools are there before anything is measured.
        pass(files, &path, 8 << 20).await;
        let ends = [std::process::id(), daemon.pid()];
        ends.iter().for_each(|pid| reset_peak(*pid));
        let before = ends.map(resident_bytes);
        pass(files, &path, size).await;
        for (pid, before) in ends.into_iter().zip(before) {
            let grown = peak_resident_bytes(pid).saturating_sub(before);
            eprintln!("process {pid}: {} KiB at first, {} KiB more at the peak", before >> 10, grown >> 10);
            assert!(grown < GROWTH_BYTES, "process {pid} grew by {grown} bytes");
        }
        environment.close().await;
    });
}

/// Writes and reads back so many bytes.
async fn pass(files: &dyn Files, path: &Path, size: u64) {
    let piece: Vec<u8> = (0..1 << 20).map(noise).collect();
    let mut writing = WriteStream::new(open(files, path, OpenMode::Replace).await, 0);
    for _ in 0..size >> 20 {
        writing.write_all(&piece).await.expect("the folder is ours");
    }
    writing.shutdown().await.expect("the folder is ours");
    let mut reading = ReadStream::new(open(files, path, OpenMode::Read).await, 0);
    let mut back = vec![0; piece.len()];
    for _ in 0..size >> 20 {
        reading.read_exact(&mut back).await.expect("it is there");
        assert!(back == piece);
    }
    assert_eq!(reading.read(&mut back).await.expect("it is there"), 0);
    assert_eq!(reading.hash(), writing.hash());
}

fn megabytes() -> u64 {
    number_from_env("EXEC_STREAM_MB").unwrap_or(1024)
}
