//! Disks that are full, read-only or gone, and logs that together exceed the common cap: the child waits, or the oldest
//! output is dropped and the log reports it; no byte is lost unreported.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use exec_core::limits::{SPLICE_BYTES, SPOOL_MIN_BYTES};
use exec_core::{Head, Stall, Stream};
use exec_env::Environment;
use exec_env::process::{ProcessError, ProcessReason, ReadQuery, SpawnFailure, SpawnStep, WaitCondition};
use exec_local::LocalOptions;
use exec_testkit::TestEnvironment;
use exec_testkit::checked_log::CheckedLog;
use exec_testkit::mount::Mount;
use exec_testkit::os_process::{eventually, poll_pause};
use exec_testkit::process::TestProcess;
use exec_testkit::semaphore::FifoSemaphore;
use exec_testkit::test_data::SeededBytes;
use exec_testkit::test_environment::process_id;
use tempfile::TempDir;

use crate::durability::support::{self, LONG_TTL};
use crate::environments;

const FLOOD_BYTES: usize = 3 << 20;
const FLOOD: SeededBytes = SeededBytes::new(51);

#[test]
fn on_a_full_disk_the_child_waits_and_goes_on_when_there_is_room() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let env = environments::local(spooling_to(disk.path())).await;
        disk.fill_but(1 << 20);
        let process = env.start("p", &format!("flood stdout {FLOOD_BYTES} 51 9000 ; exit 3")).await;
        let head = process.wait_until_stalled().await;
        assert_eq!((head.dropped_bytes, head.first_seq, head.exit), (0, 1, None));
        assert_eq!(head.stalled, Some(Stall::Disk));
        // What is held can be read, and reading changes nothing.
        let held = read_held(&process, head).await;
        assert_eq!(FLOOD.first_difference(0, &held), None);
        assert!(process.os_process().is_alive());

        disk.make_room();
        let seen = process.read_to_end().await;
        assert!(seen.bytes(Stream::Stdout) == FLOOD.bytes(FLOOD_BYTES), "every byte");
        assert_eq!((seen.exit().shell_code(), seen.gaps.len()), (3, 0));
        assert_eq!(seen.head.expect("pages were read").stalled, None);
    });
}

/// What was read is dropped first; nobody who follows the log misses anything.
#[test]
fn on_a_full_disk_output_goes_on_for_a_reader_that_takes_it() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let env = environments::local(spooling_to(disk.path())).await;
        let semaphore = env.semaphore("semaphore");
        let script = format!("{} ; flood stdout {FLOOD_BYTES} 51 9000 ; exit 3", semaphore.acquire());
        let process = env.start("p", &script).await;
        let reader = process.reader().await;
        disk.fill_but(256 << 10);
        semaphore.release();
        let seen = reader.read_to_end().await;
        assert!(seen.bytes(Stream::Stdout) == FLOOD.bytes(FLOOD_BYTES), "every byte");
        assert_eq!((seen.exit().shell_code(), &seen.gaps[..]), (3, &[][..]));
        let head = process.read_now().await.head;
        assert!(head.dropped_bytes > 0 && head.held_bytes + head.dropped_bytes == FLOOD_BYTES as u64, "{head:?}");
    });
}

/// An observer, such as `ps --all` or `logs -f` of another client, reads along and is owed nothing. What it alone has seen, nobody
/// has read.
#[test]
fn on_a_full_disk_nothing_is_dropped_because_an_observer_comes() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let env = environments::local(spooling_to(disk.path())).await;
        disk.fill_but(1 << 20);
        let process = env.start("p", &format!("flood stdout {FLOOD_BYTES} 51 9000 ; exit 3")).await;
        let stalled = process.wait_until_stalled().await;
        let mut observer = env.processes().follow(&process_id("p"), 0).await.expect("it runs");
        observer.acknowledge(0, Duration::ZERO);
        let mut seen = CheckedLog::new(0);
        while seen.cursor() + 1 < stalled.next_seq {
            seen.add_page(observer.next(4096).await.expect("it can be read").expect("it has not ended"));
        }
        assert_eq!((seen.gaps.len(), process.read_now().await.head.dropped_bytes), (0, 0));
        disk.make_room();
        let seen = process.read_to_end().await;
        assert!(seen.bytes(Stream::Stdout) == FLOOD.bytes(FLOOD_BYTES), "every byte");
        assert_eq!((seen.exit().shell_code(), seen.gaps.len()), (3, 0));
    });
}

#[test]
fn on_a_full_disk_a_terminal_waits_too() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let env = environments::local(spooling_to(disk.path())).await;
        disk.fill_but(100 << 10);
        let process = env.start_on_terminal("p", "lines 100000 ; exit 3").await;
        assert_eq!(process.wait_until_stalled().await.dropped_bytes, 0);
        disk.make_room();
        let seen = process.read_to_end().await;
        let expected: String = (1..=100_000).map(|number| format!("line {number}\n")).collect();
        assert!(seen.terminal() == expected, "every line");
        assert_eq!(seen.exit().shell_code(), 3);
    });
}

/// Page by page, so that sometimes a data file, sometimes the index, sometimes a marker finds no room.
#[test]
fn wherever_the_disk_gets_full_no_record_is_lost() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let env = environments::local(spooling_to(disk.path())).await;
        let expected: Vec<u8> = (0..20_000_u32).map(|at| b'a' + (at % 26) as u8).collect();
        for free_pages in 0..12 {
            let semaphore = env.semaphore(&format!("semaphore-{free_pages}"));
            let script = format!("{} ; bytes1 20000 ; err done ; exit 3", semaphore.acquire());
            let process = env.start(&format!("p{free_pages}"), &script).await;
            disk.fill_but(free_pages * 4096);
            semaphore.release();
            process.wait_until_stalled_or_closed().await;
            disk.make_room();
            let seen = process.read_to_end().await;
            assert!(seen.bytes(Stream::Stdout) == expected, "every byte, with {free_pages} pages");
            assert_eq!((seen.stderr().as_str(), seen.exit().shell_code()), ("done\n", 3));
        }
    });
}

#[test]
fn a_full_disk_outlasts_owners_and_nothing_is_lost() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let (env, environment) = support::test_environment(disk.path(), LONG_TTL).await;
        // Nothing can be started on a full disk, so both are there before.
        let (first, second) = (env.semaphore("first"), env.semaphore("second"));
        let script = format!("{} ; flood stdout {FLOOD_BYTES} 51 9000 ; exit 3", first.acquire());
        let pipes = env.start("pipes", &script).await;
        let script = format!("{} ; lines 100000 ; exit 4", second.acquire());
        let terminal = env.start_on_terminal("terminal", &script).await;
        disk.fill_but(1 << 20);
        first.release();
        pipes.wait_until_stalled().await;
        second.release();
        terminal.wait_until_stalled().await;
        // Hand over to the keeper, and then to an owner that comes while there is still no room.
        support::into_environment(env, environment).hand_over().await;
        let environment = support::open(disk.path(), LONG_TTL).await.expect("a full disk does not keep an owner out");
        let listed = environment.processes().list().await.expect("the list is there");
        assert_eq!(listed.len(), 2, "{listed:?}");
        environment.hand_over().await;
        disk.make_room();
        let environment = support::open(disk.path(), LONG_TTL).await.expect("the state folder can be opened");
        let seen = support::read_log(environment.processes(), "pipes").await;
        assert!(seen.bytes(Stream::Stdout) == FLOOD.bytes(FLOOD_BYTES), "every byte");
        assert_eq!(seen.exit().shell_code(), 3);
        let shown = support::read_log(environment.processes(), "terminal").await;
        let expected: String = (1..=100_000).map(|number| format!("line {number}\n")).collect();
        assert!(shown.terminal() == expected, "every line");
        assert_eq!(shown.exit().shell_code(), 4);
        let keeper = support::keeper_of(disk.path());
        support::shut_down(environment, keeper).await;
    });
}

#[test]
fn a_keeper_alone_on_a_full_disk_comes_back_to_each_stream() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let (env, environment) = support::test_environment(disk.path(), LONG_TTL).await;
        // Not in the environment's own folder, which goes with it: a process that is slow opens them later.
        let folder = tempfile::tempdir().expect("a temporary directory");
        let semaphore = |name| FifoSemaphore::new(folder.path().join(name));
        let (flood, word) = (semaphore("flood"), semaphore("word"));
        // The second stream has half a page left, so it finds room when the first finds none.
        let script = format!(
            "err begun ; fork [ {} ; err more ; err-raw gone ] ; {} ; flood stdout {FLOOD_BYTES} 51 9000 ; exit 3",
            word.acquire(),
            flood.acquire()
        );
        let process = env.start("p", &script).await;
        let leader = process.os_process();
        let descendant = process.reader().await.wait_for_descendant().await;
        disk.fill_but(1 << 20);
        support::into_environment(env, environment).hand_over().await;
        flood.release();
        disk.until_full().await;
        word.release();
        // Its parent, who waits for room, does not reap it.
        eventually("the second stream's writer ends", || !descendant.is_alive()).await;
        disk.make_room();
        leader.wait_until_gone().await;
        let environment = support::open(disk.path(), LONG_TTL).await.expect("the state folder can be opened");
        let seen = support::read_log(environment.processes(), "p").await;
        let announced = format!("pid {}\n", descendant.pid);
        let out = seen.bytes(Stream::Stdout);
        assert!(out.strip_prefix(announced.as_bytes()) == Some(&FLOOD.bytes(FLOOD_BYTES)), "every byte");
        assert_eq!((seen.stderr().as_str(), seen.exit().shell_code()), ("begun\nmore\ngone", 3));
        let keeper = support::keeper_of(disk.path());
        support::shut_down(environment, keeper).await;
    });
}

#[test]
fn a_start_on_a_full_or_read_only_disk_is_refused_with_advice() {
    support::run(async {
        let Some(disk) = SmallDisk::new() else { return };
        let env = environments::local(spooling_to(disk.path())).await;
        disk.fill_but(0);
        let failure = refused(&env).await;
        assert_eq!((failure.step, failure.errno, failure.subject.as_path()), (SpawnStep::Spool, 28, disk.path()));
        assert!(failure.to_string().contains("free some"), "{failure}");
        disk.make_room();
        assert_eq!(env.run("after", "exit 0").await.exit().shell_code(), 0);

        let Some(frozen) = SmallDisk::new() else { return };
        frozen.remount("ro");
        let env = environments::local(spooling_to(frozen.path())).await;
        let failure = refused(&env).await;
        assert_eq!((failure.step, failure.errno), (SpawnStep::Spool, 30));
        assert!(failure.to_string().contains("read-only: set another"), "{failure}");
    });
}

/// The limit is that of the process that moves the output. Each test is a process of its own.
#[test]
fn a_limit_on_the_size_of_files_is_a_full_disk_and_kills_nobody() {
    use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
    support::run(async {
        // The host program decides about its signals; without this, the kernel would end it.
        let beyond_limit = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        signal_hook::flag::register(Signal::XFSZ.as_raw(), beyond_limit).expect("a signal can be handled");
        let env = environments::keeper_as_process().await;
        let before = getrlimit(Resource::Fsize);
        setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), ..before }).expect("a lower limit");
        let process = env.start("p", &format!("flood stdout {FLOOD_BYTES} 51 9000 ; exit 3")).await;
        let head = process.wait_until_stalled().await;
        assert_eq!((head.dropped_bytes, head.exit), (0, None));
        setrlimit(Resource::Fsize, before).expect("the hard limit was left alone");
        let seen = process.read_to_end().await;
        assert!(seen.bytes(Stream::Stdout) == FLOOD.bytes(FLOOD_BYTES), "every byte");
        assert_eq!((seen.exit().shell_code(), seen.gaps.len()), (3, 0));
    });
}

/// As systemd-tmpfiles cleans it: the folder is empty, because its files have no names.
#[test]
fn a_spool_folder_that_vanishes_is_made_again_and_nobody_waits() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spool = folder.path().join("spool");
        let env = environments::local(spooling_to(&spool)).await;
        let semaphore = env.semaphore("semaphore");
        let process = env.start("early", &format!("{} ; say here ; exit 3", semaphore.acquire())).await;
        std::fs::remove_dir(&spool).expect("its files have no names, so it is empty");
        semaphore.release();
        let seen = process.read_to_end().await;
        assert_eq!((seen.stdout().as_str(), seen.exit().shell_code()), ("here\n", 3));
        std::fs::remove_dir(&spool).expect("it was made again");
        assert_eq!(env.run("late", "say there ; exit 4").await.exit().shell_code(), 4);
    });
}

/// But not through somebody's link, and not if it cannot be made: then a start is refused, and children wait.
#[test]
fn a_spool_folder_that_cannot_be_made_again_is_told_and_its_children_wait_for_it() {
    support::run(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (spool, elsewhere) = (folder.path().join("spool"), folder.path().join("elsewhere"));
        let env = environments::local(spooling_to(&spool)).await;
        let semaphore = env.semaphore("semaphore");
        let process = env.start("early", &format!("{} ; say here ; exit 3", semaphore.acquire())).await;
        std::fs::remove_dir(&spool).expect("its files have no names, so it is empty");
        std::os::unix::fs::symlink(&elsewhere, &spool).expect("the folder above is ours");
        let failure = refused(&env).await;
        assert_eq!((failure.step, failure.errno, failure.subject.as_path()), (SpawnStep::Spool, 2, spool.as_path()));
        assert!(failure.to_string().contains("spool"), "{failure}");
        semaphore.release();
        assert!(process.wait_until_stalled_or_closed().await.stalled.is_some());
        std::fs::remove_file(&spool).expect("the folder above is ours");
        let seen = process.read_to_end().await;
        assert_eq!((seen.stdout().as_str(), seen.exit().shell_code()), ("here\n", 3));
        assert!(!elsewhere.exists());
    });
}

#[test]
fn over_the_common_cap_the_fullest_forgets_its_oldest_and_the_others_nothing() {
    support::run(async {
        let total_bytes = 8 * SPOOL_MIN_BYTES;
        let env = environments::local(LocalOptions { spool_total_bytes: total_bytes, ..LocalOptions::default() }).await;
        let big_bytes = 6 * SPOOL_MIN_BYTES;
        let small_bytes = SPOOL_MIN_BYTES * 7 / 10;
        let big = env.start("big", &format!("flood stdout {big_bytes} 51 9000 ; exit 0")).await;
        big.wait(WaitCondition::Closed).await.expect("it ends");
        assert_eq!(big.read_now().await.head.dropped_bytes, 0, "alone it is within the cap");
        let mut small = Vec::new();
        for at in 0..5 {
            let script = format!("flood stderr {small_bytes} {at} 900 ; exit 0");
            small.push(env.start(&format!("small-{at}"), &script).await);
        }
        for process in &small {
            process.wait(WaitCondition::Closed).await.expect("it ends");
        }
        // The last excess may be noticed a moment after the last byte, so this waits for it.
        let head = wait_until_within(&env, total_bytes, &big).await;
        assert!(head.dropped_bytes > 0, "{head:?}");
        assert_eq!(head.held_bytes + head.dropped_bytes, big_bytes, "{head:?}");
        let seen = big.read_to_end().await;
        let [gap] = seen.gaps[..] else { panic!("one gap, at the beginning: {:?}", seen.gaps) };
        assert_eq!((gap.from_seq, gap.to_seq, gap.dropped_bytes), (1, head.first_seq - 1, head.dropped_bytes));
        let tail = seen.bytes(Stream::Stdout);
        assert_eq!((tail.len() as u64, FLOOD.first_difference(gap.dropped_bytes, &tail)), (head.held_bytes, None));
        for (at, process) in small.iter().enumerate() {
            let seen = process.read_to_end().await;
            assert_eq!(seen.gaps, [], "{} was not to blame", process.id);
            assert!(
                seen.bytes(Stream::Stderr) == SeededBytes::new(at as u64).bytes(small_bytes as usize),
                "every byte"
            );
        }
    });
}

/// All flood at once, far beyond the common cap, while readers follow: what is dropped is reported to the byte.
#[test]
fn under_a_crowded_common_cap_every_byte_is_read_or_told_as_dropped() {
    support::run(async {
        let total_bytes = 8 * SPOOL_MIN_BYTES;
        let flood_bytes = 6 * SPOOL_MIN_BYTES;
        let env = environments::local(LocalOptions { spool_total_bytes: total_bytes, ..LocalOptions::default() }).await;
        let mut processes = Vec::new();
        for at in 0..6 {
            let script = format!("flood stdout {flood_bytes} {at} 9000 ; exit 0");
            processes.push(env.start(&format!("p{at}"), &script).await);
        }
        let readers =
            processes.iter().enumerate().map(|(at, process)| read_and_count(process, SeededBytes::new(at as u64)));
        for seen_bytes in futures_util::future::join_all(readers).await {
            assert_eq!(seen_bytes, flood_bytes, "read, or told as dropped");
        }
        let head = wait_until_within(&env, total_bytes, &processes[0]).await;
        assert_eq!(head.held_bytes + head.dropped_bytes, flood_bytes);
    });
}

/// Follows a flood to its end and checks each byte; returns the final offset.
async fn read_and_count(process: &TestProcess<'_>, expected: SeededBytes) -> u64 {
    let (mut reader, mut offset, mut gaps_seen) = (process.reader().await, 0, 0);
    while reader.next_page().await {
        let page = &reader.log;
        if let Some(gap) = page.gaps.get(gaps_seen) {
            // The bytes dropped so far are those before the first that is held.
            offset = gap.dropped_bytes;
            gaps_seen += 1;
        }
        for (_, _, bytes) in page.outputs() {
            assert_eq!(expected.first_difference(offset, bytes), None, "{} at {offset}", process.id);
            offset += bytes.len() as u64;
        }
        reader.log.entries.retain(|entry| !matches!(entry.body, exec_core::EntryBody::Output { .. }));
    }
    offset
}

/// A file system of a few megabytes, which a test can fill.
struct SmallDisk {
    _mount: Mount,
    mount_point: TempDir,
}

impl SmallDisk {
    const MEBIBYTES: u64 = 8;

    /// `None` where nothing can be mounted; then the reason is printed.
    fn new() -> Option<Self> {
        let mount_point = tempfile::tempdir().expect("a temporary directory");
        let size = format!("size={}m,mode=700", Self::MEBIBYTES);
        let mount = Mount::new(&["-t", "tmpfs", "-o", &size, "exec-test"], mount_point.path())?;
        Some(Self { _mount: mount, mount_point })
    }

    fn path(&self) -> &Path {
        self.mount_point.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Fills the disk except for this.
    fn fill_but(&self, free_bytes: u64) {
        let mut filler = File::create(self.filler()).expect("a name costs no room");
        let mut bytes = 0;
        // Others may take room at the same time, so the free space cannot be asked for beforehand.
        while let Ok(count) = filler.write(&[1; 4096]) {
            bytes += count as u64;
        }
        filler.set_len(bytes.saturating_sub(free_bytes)).expect("to shrink needs no room");
    }

    /// Waits until others have taken the rest; the kernel sends no event for it.
    async fn until_full(&self) {
        let free = || rustix::fs::statvfs(self.path()).expect("it is mounted").f_bavail;
        eventually("the disk is full", || free() == 0).await;
    }

    fn make_room(&self) {
        std::fs::remove_file(self.filler()).expect("it was put there");
    }

    fn remount(&self, how: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(self.path()).status();
        assert!(done.expect("mount was there a moment ago").success());
    }
}

fn spooling_to(path: &Path) -> LocalOptions {
    LocalOptions { spool_folder: Some(path.into()), ..LocalOptions::default() }
}

/// All output held, read in small pages.
async fn read_held(process: &TestProcess<'_>, head: Head) -> Vec<u8> {
    let mut seen = CheckedLog::new(0);
    while seen.cursor() + 1 < head.next_seq {
        let query = ReadQuery { after: seen.cursor(), max_bytes: Some(100_000), wait: Duration::ZERO };
        seen.add_page(process.read(query).await);
    }
    seen.bytes(Stream::Stdout)
}

async fn refused(env: &TestEnvironment) -> SpawnFailure {
    match env.processes().start(&process_id("refused"), env.command("exit 0")).await {
        Err(ProcessError { reason: ProcessReason::SpawnFailed(failure), .. }) => failure,
        other => panic!("nothing can be started where no log can be made: {other:?}"),
    }
}

/// Waits until all logs together are within the cap; returns the head of one of them. The cap is checked between two
/// splices, so each log may be one splice beyond it.
async fn wait_until_within(env: &TestEnvironment, total_bytes: u64, of: &TestProcess<'_>) -> Head {
    loop {
        let listed = env.processes().list().await.expect("the list is there");
        let total_bytes = total_bytes + listed.len() as u64 * u64::from(SPLICE_BYTES);
        let cost = |head: Head| head.held_bytes + (head.next_seq - head.first_seq) * exec_core::limits::RECORD_BYTES;
        if listed.iter().map(|process| cost(process.head)).sum::<u64>() <= total_bytes {
            return of.info().await.head;
        }
        poll_pause().await;
    }
}
