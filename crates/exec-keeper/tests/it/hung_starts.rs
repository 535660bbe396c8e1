//! Starts that hang: they hold up nobody else, can be ended, and nothing of them is lost or left behind.

use std::collections::HashMap;
use std::time::Duration;

use exec_core::ExitStatus;
use exec_keeper::channel::{Channel, NO_REQUEST};
use exec_keeper::protocol::{KeeperEvent, KeeperRequest, LaunchRequest, Message, SpawnStep, VERSION, start_under_way};
use rustix::io::Errno;

use crate::hanging::{HungMount, LeasedProgram};
use crate::test_owner::{
    ask, connect, connect_and_say_hello, end, keeper_in_a_thread, launch, receive, receive_answer, send, start,
};

/// The request id of the start that hangs.
const HUNG: u64 = 100;

#[test]
fn a_start_that_hangs_holds_up_no_other_and_can_be_ended() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let program = LeasedProgram::copy("/bin/true", folder.path());
    let owner = connect_and_say_hello(folder.path());
    ask_to_start(&owner, HUNG, launch(&[program.name()], None));
    program.wait_until_executed();
    others_start_are_signalled_and_exit(&owner);
    end_hung_start(&owner, HUNG, program.name());
    drop(owner);
    end(&folder, keeper_thread);
    assert_eq!(children(), [0; 0]);
}

#[test]
fn a_program_or_a_directory_on_a_mount_that_does_not_answer_holds_up_no_other_start() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(mount) = HungMount::new(folder.path()) else { return };
    let program = mount.path.join("program");
    let program = program.to_str().expect("a short path");
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    ask_to_start(&owner, HUNG, launch(&[program], None));
    let mut in_directory = launch(&["/bin/true"], None);
    in_directory.record.cwd = mount.path.clone();
    ask_to_start(&owner, HUNG + 1, in_directory);
    others_start_are_signalled_and_exit(&owner);
    end_hung_start(&owner, HUNG, program);
    end_hung_start(&owner, HUNG + 1, "/bin/true");
    drop(owner);
    end(&folder, keeper_thread);
    assert_eq!(children(), [0; 0]);
}

#[test]
fn a_start_that_ends_after_its_owner_has_left_is_found_by_the_next() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let program = LeasedProgram::copy("/bin/sh", folder.path());
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .expect("a new name");
    let owner = connect_and_say_hello(folder.path());
    let script = format!("echo runs > {}; exec /bin/sleep 600", pipe.display());
    ask_to_start(&owner, HUNG, launch(&[program.name(), "-c", &script], None));
    program.wait_until_executed();
    drop(owner);
    drop(program);
    assert_eq!(std::fs::read_to_string(pipe).expect("it is written"), "runs\n");
    let next = connect(folder.path());
    send(&next, KeeperRequest::Hello { version: VERSION });
    assert!(matches!(receive(&next), Some(KeeperEvent::Welcome { processes: 1, .. })));
    let Some(KeeperEvent::ExistingProcess { number, exit: None, .. }) = receive(&next) else { panic!("it runs") };
    send(&next, KeeperRequest::Forget { number });
    drop(next);
    end(&folder, keeper_thread);
    assert_eq!(children(), [0; 0]);
}

#[test]
fn a_start_that_still_hangs_when_the_next_owner_comes_is_cancelled() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let program = LeasedProgram::copy("/bin/sleep", folder.path());
    let owner = connect_and_say_hello(folder.path());
    ask_to_start(&owner, HUNG, launch(&[program.name(), "600"], None));
    program.wait_until_executed();
    drop(owner);
    let next = connect_and_say_hello(folder.path());
    // The same id of a request, and another start.
    let number = start(&next, launch(&["/bin/sleep", "600"], None));
    drop(program);
    ask(&next, 2, KeeperRequest::Terminate { number, grace: Duration::ZERO });
    let Some(KeeperEvent::Exited { number: exited, .. }) = receive(&next) else { panic!("it exits") };
    assert_eq!(exited, number, "and no other is told of");
    assert!(matches!(receive_answer(&next), Some((2, KeeperEvent::Terminated { left: 0, .. }))));
    send(&next, KeeperRequest::Forget { number });
    drop(next);
    end(&folder, keeper_thread);
    assert_eq!(children(), [0; 0]);
}

#[test]
fn a_keeper_ends_though_a_start_hangs() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let program = LeasedProgram::copy("/bin/true", folder.path());
    let owner = connect_and_say_hello(folder.path());
    ask_to_start(&owner, HUNG, launch(&[program.name()], None));
    program.wait_until_executed();
    send(&owner, KeeperRequest::Shutdown);
    assert_eq!(keeper_thread.join().expect("the loop does not panic"), Ok(()));
    assert_eq!(children(), [0; 0]);
}

#[test]
fn of_many_starts_at_once_each_is_answered_before_its_exit_is_told() {
    const STARTS: u64 = 300;
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    let (mut asked, mut answered) = (0, 0);
    let mut codes = HashMap::new();
    let mut exits = 0;
    let mut to_forget = Vec::new();
    while exits < STARTS {
        // A full socket takes none of them for now: while starts wait, the keeper reads no more requests.
        while let Some(number) = to_forget.pop() {
            if owner.send(NO_REQUEST, &KeeperRequest::Forget { number }.encode(), &[]).is_err() {
                to_forget.push(number);
                break;
            }
        }
        if asked < STARTS {
            let script = format!("exit {}", asked % 100);
            let request = KeeperRequest::Start { launch: Box::new(launch(&["/bin/sh", "-c", &script], None)) };
            if owner.send(asked + 1, &request.encode(), &[]).is_ok() {
                asked += 1;
                continue;
            }
        }
        match receive_answer(&owner) {
            Some((id, KeeperEvent::Started { number, .. })) => {
                answered += 1;
                codes.insert(number, ((id - 1) % 100) as i32);
            }
            Some((_, KeeperEvent::Exited { number, exit })) => {
                let code = codes.remove(&number).expect("it was told of");
                assert_eq!(exit.status, ExitStatus::Code(code));
                exits += 1;
                to_forget.push(number);
            }
            other => panic!("nothing else happens: {other:?}"),
        }
    }
    assert_eq!(answered, STARTS);
    to_forget.into_iter().for_each(|number| send(&owner, KeeperRequest::Forget { number }));
    drop(owner);
    end(&folder, keeper_thread);
}

#[test]
fn a_process_that_is_forgotten_while_it_runs_leaves_no_zombie() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    let number = start(&owner, launch(&["/bin/sleep", "600"], None));
    send(&owner, KeeperRequest::Forget { number });
    drop(owner);
    end(&folder, keeper_thread);
    assert_eq!(children(), [0; 0]);
}

#[test]
fn to_end_a_start_that_there_is_not_says_so() {
    let (folder, keeper_thread) = keeper_in_a_thread();
    let owner = connect_and_say_hello(folder.path());
    ask(&owner, 1, KeeperRequest::Terminate { number: start_under_way(7), grace: Duration::ZERO });
    let nobody = KeeperEvent::Terminated { was_running: false, ended: 0, left: 0 };
    assert_eq!(receive_answer(&owner), Some((1, nobody)));
    drop(owner);
    end(&folder, keeper_thread);
}

fn ask_to_start(owner: &Channel, request_id: u64, launch: LaunchRequest) {
    ask(owner, request_id, KeeperRequest::Start { launch: Box::new(launch) });
}

/// All of it is answered before the start that hangs.
fn others_start_are_signalled_and_exit(owner: &Channel) {
    for _ in 0..3 {
        let number = start(owner, launch(&["/bin/sleep", "600"], None));
        ask(owner, 2, KeeperRequest::Signal { number, signal: libc::SIGTERM, key: None });
        assert_eq!(receive_answer(owner), Some((2, KeeperEvent::Signalled { errno: 0 })));
        let Some(KeeperEvent::Exited { number: exited, exit }) = receive(owner) else { panic!("it exits") };
        assert_eq!((exited, exit.status), (number, ExitStatus::Signal { number: libc::SIGTERM, core_dumped: false }));
        send(owner, KeeperRequest::Forget { number });
    }
}

fn end_hung_start(owner: &Channel, hung: u64, program: &str) {
    ask(owner, 3, KeeperRequest::Terminate { number: start_under_way(hung), grace: Duration::from_secs(600) });
    let errno = Errno::CANCELED.raw_os_error();
    let failed = KeeperEvent::StartFailed { step: SpawnStep::Exec, errno, subject: program.into() };
    assert_eq!(receive_answer(owner), Some((hung, failed)));
    let terminated = KeeperEvent::Terminated { was_running: true, ended: 1, left: 0 };
    assert_eq!(receive_answer(owner), Some((3, terminated)));
}

/// Children of this process, zombies included. There is no other test in it: nextest gives each its own.
fn children() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("there is /proc");
    let lists = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().expect("a pid")).collect::<Vec<_>>()).collect()
}
