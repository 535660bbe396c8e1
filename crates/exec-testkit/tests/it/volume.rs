//! Two streams of 500 MB each arrive byte for byte, while owner and keeper use little memory.
//!
//! `EXEC_VOLUME_MB` is the size of one stream in millions of bytes.

use std::path::Path;

use exec_testkit::os_process::{OsProcess, poll_pause};
use exec_testkit::proc_status::peak_resident_bytes;
use exec_testkit::semaphore::FifoSemaphore;
use exec_testkit::test_data::SeededBytes;

use crate::durability::support::{self, LONG_TTL, OwnerProcess};
use crate::environments::ACTOR;

/// What GUARANTEES promises of either process, whatever is printed.
const RESIDENT_BYTES: u64 = 16 << 20;
const MOST_SPOOL_BYTES: u64 = 4 << 30;
/// Larger than an entry, so that some writes are split; most are smaller, so that they are combined.
const BLOCK_MAX: usize = 100_000;

#[test]
fn alone_five_hundred_megabytes_a_stream_arrive_exactly_in_sixteen_mebibytes_of_memory() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let stream_bytes = support::number_from_env("EXEC_VOLUME_MB").unwrap_or(500) * 1_000_000;
        let mut owner = OwnerProcess::durable(folder.path(), LONG_TTL, MOST_SPOOL_BYTES);
        owner.expect("open");
        owner.send(&format!("start p pipes {ACTOR} {}", floods(stream_bytes)));
        owner.expect("started p");
        check_digest(&mut owner, "p", stream_bytes);
        // The high-water mark is the kernel's own maximum over the whole life of the process.
        assert_within_bound(peak_resident_bytes(owner.pid()), "owner");
        assert_within_bound(peak_resident_bytes(support::keeper_of(folder.path()).pid), "keeper");
        owner.kill();
        check_keeper_alone(folder.path(), stream_bytes / 5).await;
    });
}

/// The same while there is no owner, so that the keeper moves the bytes.
async fn check_keeper_alone(state: &Path, stream_bytes: u64) {
    let keeper = support::keeper_of(state);
    let semaphore = FifoSemaphore::new(state.join("semaphore"));
    let mut owner = OwnerProcess::durable(state, LONG_TTL, MOST_SPOOL_BYTES);
    owner.expect("open");
    owner.send(&format!("start q pipes {ACTOR} {} ; {}", semaphore.acquire(), floods(stream_bytes)));
    let leader = owner.expect("started q").parse().ok().and_then(OsProcess::of);
    owner.kill();
    semaphore.release();
    let leader = leader.expect("it waited at the semaphore");
    while leader.is_present() {
        poll_pause().await;
    }
    let mut owner = OwnerProcess::durable(state, LONG_TTL, MOST_SPOOL_BYTES);
    owner.expect("open");
    check_digest(&mut owner, "q", stream_bytes);
    assert_within_bound(peak_resident_bytes(keeper.pid), "keeper that moved");
    assert_within_bound(peak_resident_bytes(owner.pid()), "owner that came back");
    owner.kill();
    let environment = support::open(state, LONG_TTL).await.expect("the state folder can be opened");
    support::shut_down(environment, keeper).await;
}

/// Both streams at once: a descendant fills stderr while the leader, which has announced it, fills stdout.
fn floods(stream_bytes: u64) -> String {
    format!("fork [ flood stderr {stream_bytes} 42 {BLOCK_MAX} ] ; flood stdout {stream_bytes} 41 {BLOCK_MAX} ; exit 9")
}

fn check_digest(owner: &mut OwnerProcess, id: &str, stream_bytes: u64) {
    owner.send(&format!("digest {id}"));
    owner.send(&format!("match {id} pid.[0-9]+"));
    // The two are done side by side, and the first line is found long before the last byte.
    let announced = format!("{}\n", owner.expect(&format!("matched {id}")));
    let expected_out = expected_hash(announced.as_bytes(), SeededBytes::new(41), stream_bytes);
    let expected_err = expected_hash(b"", SeededBytes::new(42), stream_bytes);
    let out_bytes = stream_bytes + announced.len() as u64;
    let digest = owner.expect(&format!("digest {id}"));
    assert_eq!(digest, format!("{out_bytes} {expected_out} {stream_bytes} {expected_err} 9"));
}

fn expected_hash(prefix: &[u8], content: SeededBytes, bytes: u64) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(prefix);
    let mut block = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < bytes {
        let count = block.len().min((bytes - offset) as usize);
        content.fill(offset, &mut block[..count]);
        hasher.update(&block[..count]);
        offset += count as u64;
    }
    hasher.finalize()
}

fn assert_within_bound(found_bytes: u64, who: &str) {
    println!("{who}: at most {} KiB resident", found_bytes >> 10);
    assert!(found_bytes < RESIDENT_BYTES, "the {who} had {found_bytes} bytes resident");
}
