//! Owners that misbehave: the keeper closes their connection and serves the next one.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use exec_core::flow::Quota;
use exec_core::{Io, Overflow, ProcessId};
use exec_keeper::channel::{Channel, NO_REQUEST, Received};
use exec_keeper::keeper;
use exec_keeper::protocol::{
    KeeperEvent, KeeperRequest, LaunchRequest, Message, ProcessNumber, ProcessRecord, VERSION,
};
use exec_keeper::spool::directory::SpoolDirectory;
use exec_keeper::{KeeperConfig, OwnerExitPolicy};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// A keeper that answers at all answers within this, on any machine.
const ANSWER_TIMEOUT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

#[test]
fn an_owner_that_never_reads_and_dies_does_not_keep_the_place() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let first = connect_and_say_hello(folder.path());
    // More answers than the socket and the keeper's own queue hold.
    let mut asked = 0;
    while asked < 5000 {
        match first.send(asked + 1, &KeeperRequest::Members { number: 1 }.encode(), &[]) {
            Ok(()) => asked += 1,
            Err(Errno::AGAIN) if becomes_writable(&first) => {}
            // The keeper no longer reads the requests of an owner that does not read its answers.
            Err(Errno::AGAIN) => break,
            Err(errno) => panic!("the connection holds: {errno}"),
        }
    }
    assert!((257..5000).contains(&asked), "the keeper took {asked}");
    drop(first);
    end(&folder, keeper_thread);
}

#[test]
fn an_owner_that_reads_late_gets_every_answer() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    let (mut asked, mut received) = (0, 0);
    while received < 3000 {
        if asked < 3000 && owner.send(asked + 1, &KeeperRequest::Members { number: 1 }.encode(), &[]).is_ok() {
            asked += 1;
            continue;
        }
        received += 1;
        assert_eq!(receive_answer(&owner), Some((received, KeeperEvent::Members { pids: Vec::new() })));
    }
    drop(owner);
    end(&folder, keeper_thread);
}

#[test]
fn an_owner_that_talks_nonsense_is_let_go() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    for nonsense in [&[][..], &[9], &[2, 1, 2, 3], &[255; 3000]] {
        let owner = connect(folder.path());
        owner.send(NO_REQUEST, nonsense, &[]).expect("there is space");
        assert_eq!(receive(&owner), None, "{nonsense:?}");
    }
    end(&folder, keeper_thread);
}

#[test]
fn an_owner_of_another_version_is_told_ours_and_let_go() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect(folder.path());
    send(&owner, KeeperRequest::Hello { version: VERSION + 1 });
    assert!(matches!(receive(&owner), Some(KeeperEvent::Welcome { version: VERSION, .. })));
    assert_eq!(receive(&owner), None);
    end(&folder, keeper_thread);
}

#[test]
fn a_second_owner_hears_who_the_first_is_even_if_it_speaks_first() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let first = connect_and_say_hello(folder.path());
    for _ in 0..100 {
        let second = connect(folder.path());
        // The keeper may close the connection before or after this, and may have read it or not.
        let _ = second.send(NO_REQUEST, &KeeperRequest::Hello { version: VERSION }.encode(), &[]);
        assert_eq!(receive(&second), Some(KeeperEvent::Busy { owner_pid: std::process::id() }));
        assert_eq!(receive(&second), None);
    }
    drop(first);
    end(&folder, keeper_thread);
}

#[test]
fn an_answer_to_a_dead_owner_is_not_given_to_the_next() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let grace = Duration::from_millis(200);
    let number = process_of_a_dead_owner(folder.path(), grace);
    let second = connect(folder.path());
    send(&second, KeeperRequest::Hello { version: VERSION });
    assert!(matches!(receive(&second), Some(KeeperEvent::Welcome { processes: 1, .. })));
    let Some(KeeperEvent::ExistingProcess { exit, .. }) = receive(&second) else { panic!("it is found") };
    if exit.is_none() {
        assert!(matches!(receive(&second), Some(KeeperEvent::Exited { .. })), "it ends, and nothing else is sent");
    }
    ask(&second, 9, KeeperRequest::Terminate { number, grace });
    let answer = receive_answer(&second);
    assert!(matches!(answer, Some((9, KeeperEvent::Terminated { left: 0, .. }))), "{answer:?}");
    send(&second, KeeperRequest::Forget { number });
    drop(second);
    end(&folder, keeper_thread);
}

#[test]
fn what_ends_before_the_hello_is_not_told_before_the_welcome() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let number = process_of_a_dead_owner(folder.path(), Duration::from_millis(50));
    let second = connect(folder.path());
    // It sends nothing for longer than the child lives, like an owner that is slow.
    let mut ready = [PollFd::from_borrowed_fd(second.socket(), PollFlags::IN)];
    let while_it_ends = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
    assert_eq!(poll(&mut ready, Some(&while_it_ends)), Ok(0), "nothing is sent to an owner before its hello");
    send(&second, KeeperRequest::Hello { version: VERSION });
    assert!(matches!(receive(&second), Some(KeeperEvent::Welcome { processes: 1, .. })));
    assert!(matches!(receive(&second), Some(KeeperEvent::ExistingProcess { .. })));
    send(&second, KeeperRequest::Forget { number });
    drop(second);
    end(&folder, keeper_thread);
}

/// A process that ends only by KILL, and that its owner has asked to terminate before it was killed itself.
fn process_of_a_dead_owner(folder: &Path, grace: Duration) -> ProcessNumber {
    let record = ProcessRecord {
        id: ProcessId::new("stubborn").expect("short"),
        argv: ["/bin/sh", "-c", "trap '' TERM; sleep 600"].map(Into::into).to_vec(),
        cwd: "/".into(),
        io: Io::Pipes { stdin: false },
        quota: Quota { cap_bytes: 1 << 20, overflow: Overflow::DropOldest },
        started: SystemTime::now(),
        label: Vec::new(),
    };
    let launch = Box::new(LaunchRequest { record, arg0: None, environ: Vec::new(), path: None, time_limit: None });
    let owner = connect_and_say_hello(folder);
    ask(&owner, 1, KeeperRequest::Start { launch });
    let Some(KeeperEvent::Started { number, .. }) = receive(&owner) else { panic!("it starts") };
    ask(&owner, 7, KeeperRequest::Terminate { number, grace });
    number
}

/// The keeper has no owner and serves a new one: it ends when told to.
fn end(folder: &tempfile::TempDir, keeper_thread: JoinHandle<Result<(), Errno>>) {
    let last = connect_and_say_hello(folder.path());
    send(&last, KeeperRequest::Shutdown);
    assert_eq!(receive(&last), None);
    assert_eq!(keeper_thread.join().expect("the loop does not panic"), Ok(()));
}

fn keeper_in_a_thread() -> (tempfile::TempDir, JoinHandle<Result<(), Errno>>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let listener = socket();
    let address = SocketAddrUnix::new(folder.path().join("socket")).expect("a short path");
    rustix::net::bind(&listener, &address).expect("the name is new");
    rustix::net::listen(&listener, 8).expect("it is bound");
    let config = KeeperConfig {
        owner: None,
        listener: Some(listener),
        spool_directory: Arc::new(SpoolDirectory::new(folder.path(), 1 << 30)),
        on_owner_exit: OwnerExitPolicy::KeepProcesses { orphan_ttl: Duration::from_secs(600) },
        own_process: false,
        cgroups: false,
    };
    (folder, std::thread::spawn(move || keeper::run(config)))
}

fn connect(folder: &Path) -> Channel {
    let socket = socket();
    let address = SocketAddrUnix::new(folder.join("socket")).expect("a short path");
    rustix::net::connect(&socket, &address).expect("the keeper listens");
    Channel::from_socket(socket).expect("it is a socket")
}

fn socket() -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .expect("one more descriptor")
}

fn connect_and_say_hello(folder: &Path) -> Channel {
    let channel = connect(folder);
    send(&channel, KeeperRequest::Hello { version: VERSION });
    let answer = receive(&channel);
    assert!(matches!(answer, Some(KeeperEvent::Welcome { version: VERSION, processes: 0, .. })), "{answer:?}");
    channel
}

fn send(channel: &Channel, request: KeeperRequest) {
    ask(channel, NO_REQUEST, request);
}

fn ask(channel: &Channel, request_id: u64, request: KeeperRequest) {
    channel.send(request_id, &request.encode(), &[]).expect("there is space");
}

/// Whether the keeper still reads. No event says that it does not, so we wait for a moment. With a keeper that is only
/// slow, the test is weaker but not wrong.
fn becomes_writable(channel: &Channel) -> bool {
    let moment = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
    let mut ready = [PollFd::from_borrowed_fd(channel.socket(), PollFlags::OUT)];
    poll(&mut ready, Some(&moment)).expect("a socket can be waited for") > 0
}

/// `None` when the keeper has closed the connection.
fn receive(channel: &Channel) -> Option<KeeperEvent> {
    receive_answer(channel).map(|(_, event)| event)
}

/// With the id of the request that it answers.
fn receive_answer(channel: &Channel) -> Option<(u64, KeeperEvent)> {
    loop {
        match channel.receive() {
            Ok(Received::Message { request_id, message, .. }) => {
                return Some((request_id, KeeperEvent::decode(&message).expect("it is one of ours")));
            }
            Ok(Received::Closed) => return None,
            Err(Errno::AGAIN) => {
                let mut ready = [PollFd::from_borrowed_fd(channel.socket(), PollFlags::IN)];
                assert_eq!(poll(&mut ready, Some(&ANSWER_TIMEOUT)), Ok(1), "the keeper sends nothing");
            }
            Err(errno) => panic!("the connection holds: {errno}"),
        }
    }
}
