//! Listing and forgetting processes.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use exec_core::{Io, Signal, TerminalSize};
use exec_env::process::{ProcessError, ProcessReason, ProcessVerb, ReadQuery, WaitCondition};

use crate::test_environment::{TestEnvironment, process_id, write_id};

pub async fn the_list_tells_all_of_a_process(env: &TestEnvironment) {
    let before = SystemTime::now();
    let mut command = env.command("say hello ; cat-count ; wait-forever");
    command.io = Io::Pipes { stdin: true };
    command.label = vec![0, 255, b'x'];
    let argv = command.argv.clone();
    let process = env.start_command("p", command).await;
    process.reader_at_line("hello").await;

    let info = process.info().await;
    assert_eq!((&info.id, info.pid), (&process.id, process.pid));
    assert_eq!((info.argv, info.cwd), (argv, env.scratch()));
    assert_eq!((info.tty, info.stdin_open), (false, true));
    assert_eq!(info.label, [0, 255, b'x']);
    // Wire and kernel may keep whole milliseconds or ticks only.
    let slack = Duration::from_millis(20);
    assert!(info.started >= before - slack && info.started <= SystemTime::now() + slack);
    assert_eq!(info.head, process.read_now().await.head);
    assert_eq!((info.head.next_seq, info.head.held_bytes), (2, 6));

    process.close_stdin().await;
    assert!(!process.info().await.stdin_open);
    process.kill().await;
    process.wait(WaitCondition::Closed).await.expect("it was killed");
    let head = process.info().await.head;
    assert!(head.closed && head.exit.is_some(), "{head:?}");
}

pub async fn the_list_is_in_the_order_of_start_and_keeps_closed_ones(env: &TestEnvironment) {
    let names = ["c", "a", "", "b", "ü with spaces"];
    for name in names {
        env.run(name, "exit 0").await;
    }
    let terminal = env.start_on_terminal("last", "wait-forever").await;
    let listed = env.processes().list().await.expect("the list is there");
    let found: Vec<&str> = listed.iter().map(|info| info.id.as_str()).collect();
    assert_eq!(found, ["c", "a", "", "b", "ü with spaces", "last"]);
    assert!(listed[..5].iter().all(|info| info.head.closed && !info.tty));
    assert!(listed[5].tty && !listed[5].head.closed);
    assert_eq!(listed[5].pid, terminal.pid);
}

pub async fn an_empty_environment_lists_nothing(env: &TestEnvironment) {
    assert_eq!(env.processes().list().await, Ok(Vec::new()));
}

/// The new process has a log, a stdin and write ids of its own.
pub async fn a_forgotten_id_can_be_used_again(env: &TestEnvironment) {
    for round in 0..3 {
        let process = env.start_with_stdin("p", "cat").await;
        process.write("same key", format!("round {round}\n")).await;
        process.close_stdin().await;
        let log = process.read_to_end().await;
        assert_eq!(log.stdout(), format!("round {round}\n"));
        assert_eq!(env.processes().forget(&process.id).await, Ok(()));
        assert_eq!(env.processes().list().await, Ok(Vec::new()));
    }
}

pub async fn forgetting_a_running_process_ends_its_tree(env: &TestEnvironment) {
    let process = env.start("p", "daemonise [ ignore-term ; wait-forever ] ; say ready ; wait-forever").await;
    let mut reader = process.reader().await;
    let descendant = reader.wait_for_descendant().await;
    let leader = process.os_process();
    assert_eq!(env.processes().forget(&process.id).await, Ok(()));
    leader.wait_until_gone().await;
    descendant.wait_until_gone().await;
}

pub async fn every_verb_says_that_an_id_is_unknown(env: &TestEnvironment) {
    env.run("forgotten", "exit 0").await;
    let forgotten = process_id("forgotten");
    assert_eq!(env.processes().forget(&forgotten).await, Ok(()));
    for id in [forgotten, process_id("never there")] {
        let unknown = |verb| ProcessError::new(verb, &id, ProcessReason::UnknownProcess);
        let all = env.processes();
        let read = all.read(&id, ReadQuery::default()).await;
        assert_eq!(read, Err(unknown(ProcessVerb::Read)));
        let follow = all.follow(&id, 0).await.err();
        assert_eq!(follow, Some(unknown(ProcessVerb::Follow)));
        let write = all.write(&id, write_id("1"), Bytes::from_static(b"x"));
        assert_eq!(write.await, Err(unknown(ProcessVerb::Write)));
        let close = all.close_stdin(&id).await;
        assert_eq!(close, Err(unknown(ProcessVerb::CloseStdin)));
        let resize = all.resize(&id, TerminalSize::default()).await;
        assert_eq!(resize, Err(unknown(ProcessVerb::Resize)));
        let signal = all.signal(&id, Signal::Terminate).await;
        assert_eq!(signal, Err(unknown(ProcessVerb::Signal)));
        let terminate = all.terminate(&id, Duration::ZERO).await;
        assert_eq!(terminate, Err(unknown(ProcessVerb::Terminate)));
        let wait = all.wait(&id, WaitCondition::Exited, None).await;
        assert_eq!(wait, Err(unknown(ProcessVerb::Wait)));
        let forget = all.forget(&id).await;
        assert_eq!(forget, Err(unknown(ProcessVerb::Forget)));
    }
}
