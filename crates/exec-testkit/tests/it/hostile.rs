//! Disks that are full, read-only or gone, and logs that together want too much: the child waits or the oldest goes,
//! the log says so, and not a byte is lost in silence.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use exec_core::limits::{SPLICE_BYTES, SPOOL_MIN_BYTES};
use exec_core::{Head, Stream};
use exec_env::Environment;
use exec_env::process::{ReadQuery, SpawnFailure, StartError, SpawnStep, WaitCondition};
use exec_local::LocalOptions;
use exec_testkit::Bench;
use exec_testkit::bench::process_id;
use exec_testkit::pattern::Pattern;
use exec_testkit::process::Process;
use exec_testkit::transcript::Transcript;
use exec_testkit::witness::eventually;
use tempfile::TempDir;

use crate::durability::support::{self, LONG_TTL};
use crate::environments;

const FLOOD_BYTES: usize = 3 << 20;
const PATTERN: Pattern = Pattern::new(51);

#[test]
fn on_a_full_disk_the_child_waits_and_goes_on_when_there_is_room() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let bench = environments::local(spooling_to(disk.path())).await;
        disk.fill_but(1 << 20);
        let process = bench.start("p", &format!("flood stdout {FLOOD_BYTES} 51 9000 ; exit 3")).await;
        let head = until_stalled(&process).await;
        assert_eq!((head.dropped_bytes, head.first_seq, head.exit), (0, 1, None));
        // What is there can be read, and reading changes nothing.
        let held = read_held(&process, head).await;
        assert_eq!(PATTERN.first_difference(0, &held), None);
        assert!(process.witness().is_alive());

        disk.make_room();
        let seen = process.transcript().await;
        assert!(seen.bytes(Stream::Stdout) == PATTERN.bytes(FLOOD_BYTES), "every byte");
        assert_eq!((seen.exit().shell_code(), seen.gaps.len()), (3, 0));
        assert!(!seen.head.expect("pages were read").stalled);
    });
}

#[test]
fn on_a_full_disk_a_terminal_waits_too() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let bench = environments::local(spooling_to(disk.path())).await;
        disk.fill_but(100 << 10);
        let process = bench.start_on_terminal("p", "lines 100000 ; exit 3").await;
        assert_eq!(until_stalled(&process).await.dropped_bytes, 0);
        disk.make_room();
        let seen = process.transcript().await;
        let expected: String = (1..=100_000).map(|number| format!("line {number}\n")).collect();
        assert!(seen.terminal() == expected, "every line");
        assert_eq!(seen.exit().shell_code(), 3);
    });
}

/// Page by page: it is now a data file, now the index, now a marker that finds no room.
#[test]
fn wherever_the_disk_gets_full_no_record_is_lost() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let bench = environments::local(spooling_to(disk.path())).await;
        let expected: Vec<u8> = (0..20_000_u32).map(|at| b'a' + (at % 26) as u8).collect();
        for free_pages in 0..12 {
            let gate = bench.gate(&format!("gate-{free_pages}"));
            let script = format!("{} ; bytes1 20000 ; err done ; exit 3", gate.wait());
            let process = bench.start(&format!("p{free_pages}"), &script).await;
            disk.fill_but(free_pages * 4096);
            gate.open_once();
            until_stalled_or_closed(&process).await;
            disk.make_room();
            let seen = process.transcript().await;
            assert!(seen.bytes(Stream::Stdout) == expected, "every byte, with {free_pages} pages");
            assert_eq!((seen.stderr().as_str(), seen.exit().shell_code()), ("done\n", 3));
        }
    });
}

#[test]
fn a_full_disk_outlasts_owners_and_nothing_is_lost() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let (bench, environment) = support::bench(disk.path(), LONG_TTL).await;
        // Nothing can be started on a full disk, so both are there before.
        let (first, second) = (bench.gate("first"), bench.gate("second"));
        let script = format!("{} ; flood stdout {FLOOD_BYTES} 51 9000 ; exit 3", first.wait());
        let pipes = bench.start("pipes", &script).await;
        let script = format!("{} ; lines 100000 ; exit 4", second.wait());
        let terminal = bench.start_on_terminal("terminal", &script).await;
        disk.fill_but(1 << 20);
        first.open_once();
        until_stalled(&pipes).await;
        second.open_once();
        until_stalled(&terminal).await;
        // To the keeper, and to an owner that comes while there is still no room.
        support::take_back(bench, environment).hand_over().await;
        let environment = support::open(disk.path(), LONG_TTL).await.expect("a full disk does not keep an owner out");
        let listed = environment.processes().list().await.expect("the list is there");
        assert_eq!(listed.len(), 2, "{listed:?}");
        environment.hand_over().await;
        disk.make_room();
        let environment = support::open(disk.path(), LONG_TTL).await.expect("the state folder can be opened");
        let seen = support::transcript(environment.processes(), "pipes").await;
        assert!(seen.bytes(Stream::Stdout) == PATTERN.bytes(FLOOD_BYTES), "every byte");
        assert_eq!(seen.exit().shell_code(), 3);
        let shown = support::transcript(environment.processes(), "terminal").await;
        let expected: String = (1..=100_000).map(|number| format!("line {number}\n")).collect();
        assert!(shown.terminal() == expected, "every line");
        assert_eq!(shown.exit().shell_code(), 4);
        let keeper = support::keeper_of(disk.path());
        support::end(environment, keeper).await;
    });
}

#[test]
fn a_keeper_alone_on_a_full_disk_comes_back_to_each_stream() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let (bench, environment) = support::bench(disk.path(), LONG_TTL).await;
        let (flood, word) = (bench.gate("flood"), bench.gate("word"));
        // The second stream has half a page left, so it finds room when the first finds none.
        let script = format!(
            "err begun ; fork [ {} ; err more ; err-raw gone ] ; {} ; flood stdout {FLOOD_BYTES} 51 9000 ; exit 3",
            word.wait(),
            flood.wait()
        );
        let process = bench.start("p", &script).await;
        let leader = process.witness();
        let descendant = process.reader().await.descendant().await;
        disk.fill_but(1 << 20);
        support::take_back(bench, environment).hand_over().await;
        flood.open_once();
        disk.until_full().await;
        word.open_once();
        // Its parent, who waits for room, does not reap it.
        eventually("the second stream's writer ends", || !descendant.is_alive()).await;
        disk.make_room();
        leader.leaves().await;
        let environment = support::open(disk.path(), LONG_TTL).await.expect("the state folder can be opened");
        let seen = support::transcript(environment.processes(), "p").await;
        let announced = format!("pid {}\n", descendant.pid);
        let out = seen.bytes(Stream::Stdout);
        assert!(out.strip_prefix(announced.as_bytes()) == Some(&PATTERN.bytes(FLOOD_BYTES)), "every byte");
        assert_eq!((seen.stderr().as_str(), seen.exit().shell_code()), ("begun\nmore\ngone", 3));
        let keeper = support::keeper_of(disk.path());
        support::end(environment, keeper).await;
    });
}

#[test]
fn a_start_on_a_full_or_read_only_disk_is_refused_with_advice() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let bench = environments::local(spooling_to(disk.path())).await;
        disk.fill_but(0);
        let failure = refused(&bench).await;
        assert_eq!((failure.step, failure.errno, failure.subject.as_path()), (SpawnStep::Spool, 28, disk.path()));
        assert!(failure.to_string().contains("free some"), "{failure}");
        disk.make_room();
        assert_eq!(bench.run("after", "exit 0").await.exit().shell_code(), 0);

        let Some(frozen) = SmallDisk::new() else { return };
        frozen.remount("ro");
        let bench = environments::local(spooling_to(frozen.path())).await;
        let failure = refused(&bench).await;
        assert_eq!((failure.step, failure.errno), (SpawnStep::Spool, 30));
        assert!(failure.to_string().contains("read-only: set another"), "{failure}");
    });
}

#[test]
fn a_spool_folder_that_vanishes_is_told_and_its_children_wait_for_it() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spool = folder.path().join("spool");
        let bench = environments::local(spooling_to(&spool)).await;
        let gate = bench.gate("gate");
        let process = bench.start("early", &format!("{} ; say here ; exit 3", gate.wait())).await;
        std::fs::remove_dir(&spool).expect("its files have no names, so it is empty");
        let failure = refused(&bench).await;
        assert_eq!((failure.step, failure.errno, failure.subject.as_path()), (SpawnStep::Spool, 2, spool.as_path()));
        assert!(failure.to_string().contains("spool"), "{failure}");
        gate.open_once();
        assert!(until_stalled_or_closed(&process).await.stalled);
        std::fs::create_dir(&spool).expect("the folder above is ours");
        let seen = process.transcript().await;
        assert_eq!((seen.stdout().as_str(), seen.exit().shell_code()), ("here\n", 3));
    });
}

#[test]
fn over_the_common_cap_the_fullest_forgets_its_oldest_and_the_others_nothing() {
    support::run(async {
        let total_bytes = 8 * SPOOL_MIN_BYTES;
        let bench = environments::local(LocalOptions { spool_total_bytes: total_bytes, ..LocalOptions::default() }).await;
        let big_bytes = 6 * SPOOL_MIN_BYTES;
        let small_bytes = SPOOL_MIN_BYTES * 7 / 10;
        let big = bench.start("big", &format!("flood stdout {big_bytes} 51 9000 ; exit 0")).await;
        big.wait(WaitCondition::Closed).await.expect("it ends");
        assert_eq!(big.look().await.head.dropped_bytes, 0, "alone it is within the cap");
        let mut small = Vec::new();
        for at in 0..5 {
            let script = format!("flood stderr {small_bytes} {at} 900 ; exit 0");
            small.push(bench.start(&format!("small-{at}"), &script).await);
        }
        for process in &small {
            process.wait(WaitCondition::Closed).await.expect("it ends");
        }
        // The last excess may be noticed a moment after the last byte; the big one's head tells when it gave back.
        let head = until_within(&bench, total_bytes, &big).await;
        assert!(head.dropped_bytes > 0, "{head:?}");
        assert_eq!(head.held_bytes + head.dropped_bytes, big_bytes, "{head:?}");
        let seen = big.transcript().await;
        let [gap] = seen.gaps[..] else { panic!("one gap, at the beginning: {:?}", seen.gaps) };
        assert_eq!((gap.from_seq, gap.to_seq, gap.dropped_bytes), (1, head.first_seq - 1, head.dropped_bytes));
        let tail = seen.bytes(Stream::Stdout);
        assert_eq!((tail.len() as u64, PATTERN.first_difference(gap.dropped_bytes, &tail)), (head.held_bytes, None));
        for (at, process) in small.iter().enumerate() {
            let seen = process.transcript().await;
            assert_eq!(seen.gaps, [], "{} was not to blame", process.id);
            assert!(seen.bytes(Stream::Stderr) == Pattern::new(at as u64).bytes(small_bytes as usize), "every byte");
        }
    });
}

/// All flood at once, far beyond the common cap, while readers look on: what is gone is told, to the byte.
#[test]
fn under_a_crowded_common_cap_every_byte_is_read_or_told_as_dropped() {
    support::run(async {
        let total_bytes = 8 * SPOOL_MIN_BYTES;
        let flood_bytes = 6 * SPOOL_MIN_BYTES;
        let bench = environments::local(LocalOptions { spool_total_bytes: total_bytes, ..LocalOptions::default() }).await;
        let mut processes = Vec::new();
        for at in 0..6 {
            let script = format!("flood stdout {flood_bytes} {at} 9000 ; exit 0");
            processes.push(bench.start(&format!("p{at}"), &script).await);
        }
        let readers =
            processes.iter().enumerate().map(|(at, process)| read_and_count(process, Pattern::new(at as u64)));
        for seen_bytes in futures_util::future::join_all(readers).await {
            assert_eq!(seen_bytes, flood_bytes, "read, or told as dropped");
        }
        let head = until_within(&bench, total_bytes, &processes[0]).await;
        assert_eq!(head.held_bytes + head.dropped_bytes, flood_bytes);
    });
}

/// Follows a flood to its end and checks each byte at its place; where that place is in the end.
async fn read_and_count(process: &Process<'_>, pattern: Pattern) -> u64 {
    let (mut reader, mut offset, mut judged) = (process.reader().await, 0, 0);
    while reader.more().await {
        let page = &reader.transcript;
        if let Some(gap) = page.gaps.get(judged) {
            // The bytes forgotten so far are those before the first that is held.
            offset = gap.dropped_bytes;
            judged += 1;
        }
        for (_, _, bytes) in page.outputs() {
            assert_eq!(pattern.first_difference(offset, bytes), None, "{} at {offset}", process.id);
            offset += bytes.len() as u64;
        }
        reader.transcript.entries.retain(|entry| !matches!(entry.body, exec_core::EntryBody::Output { .. }));
    }
    offset
}

/// A file system of a few megabytes, which a test can fill.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    const MEBIBYTES: u64 = 8;

    /// `None`, with a word why, where nothing can be mounted.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let size = format!("size={}m,mode=700", Self::MEBIBYTES);
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "exec-test"]).arg(folder.path()).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self { folder }),
            refused => {
                println!("skipped: a small disk cannot be mounted here: {refused:?}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Takes all room but this.
    fn fill_but(&self, free_bytes: u64) {
        let mut ballast = File::create(self.ballast()).expect("a name costs no room");
        let mut bytes = 0;
        // Others may take room at the same time, so what there is cannot be asked for beforehand.
        while let Ok(count) = ballast.write(&[1; 4096]) {
            bytes += count as u64;
        }
        ballast.set_len(bytes.saturating_sub(free_bytes)).expect("to shrink needs no room");
    }

    /// Waits until others have taken the rest; the kernel sends no event for it.
    async fn until_full(&self) {
        let free = || rustix::fs::statvfs(self.path()).expect("it is mounted").f_bavail;
        eventually("the disk is full", || free() == 0).await;
    }

    fn make_room(&self) {
        std::fs::remove_file(self.ballast()).expect("it was put there");
    }

    fn remount(&self, how: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(self.path()).status();
        assert!(done.expect("mount was there a moment ago").success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: an environment that is dropped after us still holds its files.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn spooling_to(path: &Path) -> LocalOptions {
    LocalOptions { spool_folder: Some(path.into()), ..LocalOptions::default() }
}

/// A stall is no entry, so it is looked for: after each entry, and while none comes.
async fn until_stalled(process: &Process<'_>) -> Head {
    let head = until_stalled_or_closed(process).await;
    assert_eq!((head.exit, head.stalled), (None, true), "what has no room cannot end");
    head
}

async fn until_stalled_or_closed(process: &Process<'_>) -> Head {
    let mut after = 0;
    loop {
        let query = ReadQuery { after, max_bytes: Some(0), wait: Duration::from_millis(10) };
        let head = process.read(query).await.head;
        after = head.next_seq - 1;
        if head.stalled || head.closed {
            return head;
        }
    }
}

/// All output held, read in small pages.
async fn read_held(process: &Process<'_>, head: Head) -> Vec<u8> {
    let mut seen = Transcript::new(0);
    while seen.cursor() + 1 < head.next_seq {
        let query = ReadQuery { after: seen.cursor(), max_bytes: Some(100_000), wait: Duration::ZERO };
        seen.absorb(process.read(query).await);
    }
    seen.bytes(Stream::Stdout)
}

async fn refused(bench: &Bench) -> SpawnFailure {
    match bench.processes().start(&process_id("refused"), bench.command("exit 0")).await {
        Err(StartError::Spawn { failure, .. }) => failure,
        other => panic!("nothing can be started where no log can be made: {other:?}"),
    }
}

/// Waits until all logs together are within the cap; the head of one of them. The cap is looked at between bites, so
/// each log may be one bite beyond it.
async fn until_within(bench: &Bench, total_bytes: u64, of: &Process<'_>) -> Head {
    loop {
        let listed = bench.processes().list().await.expect("the list is there");
        let total_bytes = total_bytes + listed.len() as u64 * u64::from(SPLICE_BYTES);
        let cost = |head: Head| head.held_bytes + (head.next_seq - head.first_seq) * exec_core::limits::RECORD_BYTES;
        if listed.iter().map(|process| cost(process.head)).sum::<u64>() <= total_bytes {
            return of.info().await.head;
        }
        // not a wait: between two looks at a fact without an event, others get the processor
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
