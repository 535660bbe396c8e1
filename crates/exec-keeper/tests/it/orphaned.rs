//! A keeper without an owner: it moves the output itself, also of what outlives its leader.
//!
//! Which streams the keeper waits for is seen from outside: the kernel tells what is in an epoll set, and here the keeper is a
//! thread of the test.

use std::fs;
use std::path::PathBuf;
use std::thread::spawn;
use std::time::{Duration, Instant};

use exec_core::flow::Quota;
use exec_core::{Overflow, Stream};
use exec_keeper::protocol::{FdRole, KeeperEvent, KeeperRequest, ProcessNumber, VERSION};
use exec_keeper::spool::index::slot_of;
use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::test_owner::{ask, connect, connect_and_say_hello, end, keeper_in_a_thread, launch, receive, send};

/// The leader's exit makes room for its last output, and with it ends the wait of the stream, which others still have.
#[test]
fn a_stream_that_waited_for_space_when_the_leader_exited_is_read_to_its_end() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    let [of_leader, of_child] = ["of-leader", "of-child"].map(|name| folder.path().join(name));
    for fifo in [&of_leader, &of_child] {
        mknodat(CWD, fifo, FileType::Fifo, 0o600.into(), 0).expect("the folder is ours");
    }
    let script = format!("cat {} & exec cat {}", of_child.display(), of_leader.display());
    let mut launch = launch(&["/bin/sh", "-c", &script], Some("/usr/bin:/bin"));
    launch.record.quota = Quota { cap_bytes: 64 << 10, overflow: Overflow::Block };
    launch.environ = vec!["PATH=/usr/bin:/bin".into()];
    ask(&owner, 1, KeeperRequest::Start { launch: Box::new(launch) });
    let Some(KeeperEvent::Started { number, pid, .. }) = receive(&owner) else { panic!("it starts") };
    let stdout = fs::read_link(format!("/proc/{pid}/fd/1")).expect("it runs");
    assert!(is_open(&stdout));
    drop(owner);
    until("the keeper moves the output", || waits_for(stdout_of(number)));
    // It is killed before it has read all.
    let flood = spawn(move || drop(fs::write(of_leader, vec![b'x'; 4 << 20])));
    until("the log is full", || !waits_for(stdout_of(number)));
    let leader = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
    kill_process(leader, Signal::KILL).expect("it runs");
    until("the exit is seen", || !waits_for(exit_of(number)));
    flood.join().expect("it does not panic");
    fs::write(of_child, "last").expect("its reader lives");
    until("the end of the stream is seen", || !is_open(&stdout));
    let next = connect(folder.path());
    send(&next, KeeperRequest::Hello { version: VERSION });
    assert!(matches!(receive(&next), Some(KeeperEvent::Welcome { processes: 1, .. })));
    let Some(KeeperEvent::ExistingProcess { exit: Some(_), roles, .. }) = receive(&next) else {
        panic!("it has ended")
    };
    assert!(!roles.contains(&FdRole::Stdout), "{roles:?}");
    send(&next, KeeperRequest::Forget { number });
    drop(next);
    end(&folder, keeper_thread);
}

/// How the keeper names its descriptors to the kernel.
fn stdout_of(number: ProcessNumber) -> u64 {
    number << 3 | (4 + slot_of(Stream::Stdout) as u64)
}

fn exit_of(number: ProcessNumber) -> u64 {
    number << 3 | 3
}

/// Whether the keeper waits for the descriptor of this name. Its epoll set is the only one of this process.
fn waits_for(token: u64) -> bool {
    let (set, _) =
        descriptors().into_iter().find(|(_, what)| what.ends_with("anon_inode:[eventpoll]")).expect("it runs");
    let set = fs::read_to_string(format!("/proc/self/fdinfo/{set}")).expect("the keeper holds it");
    let tokens = set.lines().filter_map(|line| line.split_once("data:")?.1.split_whitespace().next());
    tokens.filter_map(|token| u64::from_str_radix(token, 16).ok()).any(|found| found == token)
}

fn is_open(file: &PathBuf) -> bool {
    descriptors().iter().any(|(_, what)| what == file)
}

/// Of this process, in which there is no other test: nextest gives each its own.
fn descriptors() -> Vec<(String, PathBuf)> {
    let listed = fs::read_dir("/proc/self/fd").expect("there is /proc").flatten();
    let named =
        listed.filter_map(|entry| Some((entry.file_name().into_string().ok()?, fs::read_link(entry.path()).ok()?)));
    named.collect()
}

/// Looks again and again, because the kernel tells nobody of changes of a set.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::yield_now();
    }
}
