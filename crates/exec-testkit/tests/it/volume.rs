//! Two streams of 500 MB each, byte for byte, while neither owner nor keeper ever holds more than a few of them.
//!
//! `EXEC_VOLUME_MB` is the size of one stream in millions of bytes.

use std::path::Path;

use exec_testkit::gate::Gate;
use exec_testkit::pattern::Pattern;

use crate::durability::support::{self, LONG_TTL, OwnerProcess};
use crate::environments::ACTOR;

/// What GUARANTEES promises of either process, whatever is printed.
const RESIDENT_BYTES: u64 = 16 << 20;
const MOST_SPOOL_BYTES: u64 = 4 << 30;
/// Larger than an entry, so that writes are cut, and mostly smaller, so that they are gathered.
const BLOCK_MAX: usize = 100_000;

#[test]
fn alone_five_hundred_megabytes_a_stream_arrive_exactly_in_sixteen_mebibytes_of_memory() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let stream_bytes = megabytes() * 1_000_000;
        let mut owner = OwnerProcess::of(folder.path(), LONG_TTL, MOST_SPOOL_BYTES);
        owner.expect("open");
        owner.tell(&format!("start p pipes {ACTOR} {}", floods(stream_bytes)));
        owner.expect("started p");
        judge(&mut owner, "p", stream_bytes);
        // The high-water mark is the kernel's own maximum over the whole life of the process.
        within(peak_resident_bytes(owner.pid()), "owner");
        within(peak_resident_bytes(support::keeper_of(folder.path()).pid), "keeper");
        owner.kill();
        the_keeper_alone(folder.path(), stream_bytes / 5).await;
    });
}

/// The same with nobody but the keeper to move it.
async fn the_keeper_alone(state: &Path, stream_bytes: u64) {
    let keeper = support::keeper_of(state);
    let gate = Gate::new(state.join("gate"));
    let mut owner = OwnerProcess::of(state, LONG_TTL, MOST_SPOOL_BYTES);
    owner.expect("open");
    owner.tell(&format!("start q pipes {ACTOR} {} ; {}", gate.wait(), floods(stream_bytes)));
    let leader = owner.expect("started q").parse().ok().and_then(exec_testkit::witness::Witness::of);
    owner.kill();
    gate.open_once();
    let leader = leader.expect("it waited at the gate");
    while leader.is_present() {
        // not a wait: between two looks at a fact without an event, others get the processor
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let mut owner = OwnerProcess::of(state, LONG_TTL, MOST_SPOOL_BYTES);
    owner.expect("open");
    judge(&mut owner, "q", stream_bytes);
    within(peak_resident_bytes(keeper.pid), "keeper that moved");
    within(peak_resident_bytes(owner.pid()), "owner that came back");
    owner.kill();
    let environment = support::open(state, LONG_TTL).await.expect("the state folder can be opened");
    support::end(environment, keeper).await;
}

/// Both streams at once: a descendant fills stderr while the leader, which has announced it, fills stdout.
fn floods(stream_bytes: u64) -> String {
    format!("fork [ flood stderr {stream_bytes} 42 {BLOCK_MAX} ] ; flood stdout {stream_bytes} 41 {BLOCK_MAX} ; exit 9")
}

fn judge(owner: &mut OwnerProcess, id: &str, stream_bytes: u64) {
    owner.tell(&format!("digest {id}"));
    owner.tell(&format!("match {id} pid.[0-9]+"));
    // The two are done side by side, and the first line is found long before the last byte.
    let announced = format!("{}\n", owner.expect(&format!("matched {id}")));
    let expected_out = hash(announced.as_bytes(), Pattern::new(41), stream_bytes);
    let expected_err = hash(b"", Pattern::new(42), stream_bytes);
    let out_bytes = stream_bytes + announced.len() as u64;
    let digest = owner.expect(&format!("digest {id}"));
    assert_eq!(digest, format!("{out_bytes} {expected_out} {stream_bytes} {expected_err} 9"));
}

fn hash(prefix: &[u8], pattern: Pattern, bytes: u64) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(prefix);
    let mut block = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < bytes {
        let count = block.len().min((bytes - offset) as usize);
        pattern.fill(offset, &mut block[..count]);
        hasher.update(&block[..count]);
        offset += count as u64;
    }
    hasher.finalize()
}

fn peak_resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel tells");
    let kibibytes = line.trim().strip_suffix(" kB").and_then(|count| count.trim().parse::<u64>().ok());
    kibibytes.expect("it is a number of kB") << 10
}

fn within(found_bytes: u64, who: &str) {
    println!("{who}: at most {} KiB resident", found_bytes >> 10);
    assert!(found_bytes < RESIDENT_BYTES, "the {who} had {found_bytes} bytes resident");
}

fn megabytes() -> u64 {
    match std::env::var("EXEC_VOLUME_MB") {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("EXEC_VOLUME_MB is a number, not {value:?}")),
        Err(_) => 500,
    }
}
