//! Owners that misbehave: what does not read is refused, the others' processes live on, and two owners never move one
//! stream.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use exec_keeper::channel::{Channel, NO_REQUEST, Received};
use exec_keeper::lease::Lease;
use exec_keeper::protocol::{FdRole, KeeperEvent, KeeperRequest, Message, ProcessNumber, SpawnStep, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::test_owner::{
    ask, connect, connect_and_say_hello, end, keeper_in_a_thread, launch, receive, receive_answer, send, start,
    wait_until_readable,
};

/// More than a channel takes.
const MANY_DESCRIPTORS: usize = 20;

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

/// Whoever removes the state directory of a server that was killed starts the next one with another keeper.
#[test]
fn a_keeper_whose_socket_was_removed_ends_its_processes_and_itself_when_its_owner_goes() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    ask(&owner, 1, KeeperRequest::Start { launch: Box::new(launch(&["/bin/sleep", "600"], None)) });
    let Some(KeeperEvent::Started { number, pid, .. }) = receive(&owner) else { panic!("it starts") };
    std::fs::remove_file(folder.path().join("socket")).expect("the folder is ours");
    ask(&owner, 2, KeeperRequest::Members { number });
    assert_eq!(receive(&owner), Some(KeeperEvent::Members { pids: vec![pid] }), "an owner that lives is served");
    drop(owner);
    assert_eq!(keeper_thread.join().expect("the loop does not panic"), Ok(()));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
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
fn a_message_that_does_not_read_costs_its_owner_only_that_request() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    let number = start(&owner, launch(&["/bin/sleep", "600"], None));
    let header = |kind: u8, id: u64| [&[kind][..], &id.to_le_bytes()].concat();
    let empty = memory_file(0, true);
    let oversized = memory_file((64 << 20) + 1, true);
    let unsealed = memory_file(100_000, false);
    for (id, bytes, file, errno) in [
        (11, [header(2, 11), vec![255; 3000]].concat(), None, Errno::BADMSG),
        (12, [header(2, 12), vec![0; 60_000]].concat(), None, Errno::MSGSIZE),
        (13, header(3, 13), None, Errno::MFILE),
        (14, header(3, 14), Some(&empty), Errno::BADMSG),
        (15, header(3, 15), Some(&oversized), Errno::MSGSIZE),
        (16, header(3, 16), Some(&unsealed), Errno::BADMSG),
    ] {
        send_raw(&owner, &bytes, &file.into_iter().collect::<Vec<_>>());
        let refused = KeeperEvent::Refused { errno: errno.raw_os_error() };
        assert_eq!(receive_answer(&owner), Some((id, refused)));
    }
    // Without an id there is nobody to tell; the next message is read all the same.
    for nonsense in [&[][..], &[0, 77], &[2, 1], &[0; 20], &[0, 6, 1, 7]] {
        send_raw(&owner, nonsense, &[]);
    }
    ask(&owner, 20, KeeperRequest::Members { number });
    let answer = receive_answer(&owner);
    assert!(matches!(&answer, Some((20, KeeperEvent::Members { pids })) if pids.len() == 1), "it lives: {answer:?}");
    send(&owner, KeeperRequest::Forget { number });
    drop(owner);
    end(&folder, keeper_thread);
}

/// Too few, too many, and more than a channel takes at all.
#[test]
fn a_wrong_number_of_descriptors_costs_its_owner_nothing_else_and_none_is_kept() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    let number = start(&owner, launch(&["/bin/sleep", "600"], None));
    let file = memory_file(0, true);
    let add = KeeperRequest::AddFd { number, role: FdRole::WriteJournal };
    let open_before = open_descriptors();
    for count in [0, 1, 3, MANY_DESCRIPTORS, 1, 0] {
        send_raw(&owner, &[&[0][..], &add.encode()].concat(), &vec![&file; count]);
        send_raw(&owner, &[&[0][..], &KeeperRequest::Members { number }.encode()].concat(), &vec![&file; count]);
        assert!(matches!(receive(&owner), Some(KeeperEvent::Members { pids }) if pids.len() == 1), "{count}");
        // What came with one request is closed before the next is read.
        ask(&owner, 2, KeeperRequest::Members { number: 99 });
        assert_eq!(receive_answer(&owner), Some((2, KeeperEvent::Members { pids: Vec::new() })));
        assert!(open_descriptors() <= open_before + 1, "{count}: it keeps the first of those that it asked for");
    }
    send(&owner, KeeperRequest::Forget { number });
    drop(owner);
    end(&folder, keeper_thread);
}

#[test]
fn exits_that_happen_while_the_socket_is_full_are_told_when_it_is_not() {
    const REQUESTS: u64 = 450;
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    let mut pids = Vec::new();
    for id in 1..=3 {
        ask(&owner, id, KeeperRequest::Start { launch: Box::new(launch(&["/bin/sleep", "600"], None)) });
        let Some(KeeperEvent::Started { pid, .. }) = receive(&owner) else { panic!("it starts") };
        pids.push(pid);
    }
    let mut asked = 0;
    while asked < REQUESTS && owner.send(asked + 1, &KeeperRequest::Members { number: 99 }.encode(), &[]).is_ok() {
        asked += 1;
    }
    for pid in pids {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
        // The keeper reaps it though nobody reads what it has to tell.
        while rustix::process::test_kill_process(pid).is_ok() {
            std::thread::yield_now();
        }
    }
    let (mut answered, mut exited) = (0, Vec::new());
    while answered < asked || exited.len() < 3 {
        match receive_answer(&owner) {
            Some((id, KeeperEvent::Members { .. })) => {
                answered += 1;
                assert_eq!(id, answered);
            }
            Some((NO_REQUEST, KeeperEvent::Exited { number, .. })) => exited.push(number),
            other => panic!("nothing else happens: {other:?}"),
        }
    }
    assert_eq!(exited, [1, 2, 3]);
    for number in exited {
        send(&owner, KeeperRequest::Forget { number });
    }
    drop(owner);
    end(&folder, keeper_thread);
}

/// `cargo xtask soak` has it do more rounds.
#[test]
fn hostile_bytes_of_any_kind_cost_their_owner_no_process_and_not_the_connection() {
    let rounds = std::env::var("EXEC_SOAK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3_u64);
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    let number = start(&owner, launch(&["/bin/sleep", "600"], None));
    let file = memory_file(0, true);
    // A different sequence each time, and the seed is told if it fails.
    let seed =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let mut random = Random(seed | 1);
    for round in 0..rounds * 100 {
        let request = KeeperRequest::AddFd { number: random.below(4), role: FdRole::Data1 };
        let mut message = [&[random.below(4) as u8][..], &random.next().to_le_bytes(), &request.encode()].concat();
        for _ in 0..random.below(6) {
            let at = random.below(message.len() as u64) as usize;
            message[at] = random.next() as u8;
        }
        message.truncate(random.below(message.len() as u64 + 1) as usize);
        message.resize(message.len() + (random.below(3) * random.below(100)) as usize, random.next() as u8);
        if is_meant(&message) {
            continue;
        }
        send_raw(&owner, &message, &vec![&file; random.below(3) as usize]);
        ask(&owner, PING, KeeperRequest::Members { number: 99 });
        loop {
            match receive_answer(&owner) {
                Some((PING, KeeperEvent::Members { .. })) => break,
                Some((_, KeeperEvent::Refused { .. } | KeeperEvent::Members { .. })) => {}
                other => panic!("seed {seed}, round {round}: {message:?} led to {other:?}"),
            }
        }
    }
    ask(&owner, PING, KeeperRequest::Members { number });
    let answer = receive_answer(&owner);
    assert!(matches!(&answer, Some((PING, KeeperEvent::Members { pids })) if pids.len() == 1), "it lives: {answer:?}");
    send(&owner, KeeperRequest::Forget { number });
    drop(owner);
    end(&folder, keeper_thread);
}

/// No random request has this id.
const PING: u64 = u64::MAX;

/// Whether these bytes happen to be a request that ends something, and rightly so.
fn is_meant(message: &[u8]) -> bool {
    let body = match message {
        [kind, rest @ ..] if kind & 2 != 0 => rest.get(8..).unwrap_or(rest),
        [_, rest @ ..] => rest,
        [] => return false,
    };
    !matches!(
        KeeperRequest::decode(body),
        Err(_) | Ok(KeeperRequest::Members { .. } | KeeperRequest::AddFd { .. } | KeeperRequest::CloseFd { .. })
    )
}

/// A generator of Marsaglia's xorshift family.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Of this process, in which there is no other test: nextest gives each its own.
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("there is /proc").count()
}

#[test]
fn a_start_that_no_kernel_could_run_is_refused() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    let mut nul_in_environment = launch(&["/bin/true"], None);
    nul_in_environment.environ = vec!["A=\0".into()];
    for impossible in [launch(&[], None), launch(&["/bin/true", "\0"], None), nul_in_environment] {
        ask(&owner, 1, KeeperRequest::Start { launch: Box::new(impossible) });
        let refused = KeeperEvent::Refused { errno: Errno::INVAL.raw_os_error() };
        assert_eq!(receive_answer(&owner), Some((1, refused)));
    }
    drop(owner);
    end(&folder, keeper_thread);
}

/// Every directory of the path with the program's name behind it would be 700 GB here.
#[test]
fn a_long_path_and_a_long_program_are_not_multiplied() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    let path = ":".repeat(1 << 20);
    let (short, long) = ("x".repeat(255), "x".repeat(700_000));
    for (program, errno) in [(short, Errno::NOENT), (long, Errno::NAMETOOLONG)] {
        ask(&owner, 1, KeeperRequest::Start { launch: Box::new(launch(&[&program], Some(&path))) });
        let subject = program.into();
        let failed = KeeperEvent::StartFailed { step: SpawnStep::Exec, errno: errno.raw_os_error(), subject };
        assert_eq!(receive_answer(&owner), Some((1, failed)));
    }
    drop(owner);
    end(&folder, keeper_thread);
}

#[test]
fn an_owner_that_has_left_in_the_middle_of_a_move_keeps_others_out_until_it_is_done() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let first = connect(folder.path());
    send(&first, KeeperRequest::Hello { version: VERSION });
    let lease = loop {
        match first.receive() {
            Ok(Received::Message { descriptors, .. }) => break Lease::open(&descriptors[0]).expect("it is a lease"),
            Err(Errno::AGAIN) => wait_until_readable(&first),
            other => panic!("the welcome comes: {other:?}"),
        }
    };
    let moving = lease.begin_move().expect("it is the owner");
    drop(first);
    let second = connect(folder.path());
    assert_eq!(receive(&second), Some(KeeperEvent::Busy { owner_pid: std::process::id() }));
    assert!(lease.begin_move().is_none(), "it begins nothing more");
    drop(moving);
    let third = connect_and_say_hello(folder.path());
    drop(third);
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
    let owner = connect_and_say_hello(folder);
    let number = start(&owner, launch(&["/bin/sh", "-c", "trap '' TERM; sleep 600"], None));
    ask(&owner, 7, KeeperRequest::Terminate { number, grace });
    number
}

/// What a message in a file is sent with.
fn memory_file(bytes: u64, sealed: bool) -> OwnedFd {
    let file = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).expect("one more descriptor");
    rustix::fs::ftruncate(&file, bytes).expect("holes cost nothing");
    if sealed {
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).expect("it may be sealed");
    }
    file
}

/// Sends bytes that no channel would send.
fn send_raw(channel: &Channel, bytes: &[u8], files: &[&OwnedFd]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MANY_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    assert!(files.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    rustix::net::sendmsg(channel.socket(), &[IoSlice::new(bytes)], &mut ancillary, SendFlags::empty())
        .expect("there is space");
}

/// Whether the keeper still reads. No event says that it does not, so we wait for a moment. With a keeper that is only
/// slow, the test is weaker but not wrong.
fn becomes_writable(channel: &Channel) -> bool {
    let moment = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
    let mut ready = [PollFd::from_borrowed_fd(channel.socket(), PollFlags::OUT)];
    poll(&mut ready, Some(&moment)).expect("a socket can be waited for") > 0
}
