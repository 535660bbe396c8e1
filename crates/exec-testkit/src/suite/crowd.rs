//! Many processes at once, of every awkward kind, and nothing left of them.

use std::time::Duration;

use exec_core::{Exit, ExitCause, ExitStatus, Io, Signal, TerminalSize};
use futures_util::StreamExt;

use super::terminate::KINDS;
use crate::os_process::{OsProcess, eventually};
use crate::test_environment::{TestEnvironment, process_id};

/// How many children, and how many of them at a time.
const CHILDREN: usize = 300;
const AT_A_TIME: usize = 30;

const DEADLY: [i32; 8] = [1, 2, 3, 6, 9, 11, 13, 15];

pub async fn three_hundred_awkward_children_end_as_they_should_and_leave_nothing(env: &TestEnvironment) {
    futures_util::stream::iter(0..CHILDREN).for_each_concurrent(AT_A_TIME, |number| run_child(env, number)).await;
    let listed = env.processes().list().await.expect("the list is there");
    assert_eq!(listed.len(), CHILDREN);
    assert!(listed.iter().all(|info| info.head.closed && !info.stdin_open));
    for info in &listed {
        assert_eq!(env.processes().forget(&info.id).await, Ok(()));
    }
    let scratch = env.scratch();
    eventually("no process works in the scratch directory any more", || pids_working_in(&scratch).is_empty()).await;
}

pub async fn forgotten_processes_leave_no_descriptor_behind(env: &TestEnvironment) {
    let mut before = None;
    for round in 0..6 {
        for number in 0..10 {
            let id = process_id(&format!("{round}-{number}"));
            let script = "flood stdout 100000 1 9000 ; err x ; exit 0";
            let mut command = env.command(script);
            command.io = match number % 3 {
                0 => Io::Pty(TerminalSize::default()),
                1 => Io::Pipes { stdin: true },
                _ => Io::Pipes { stdin: false },
            };
            env.start_command(id.as_str(), command).await.read_to_end().await;
            assert_eq!(env.processes().forget(&id).await, Ok(()));
        }
        // The first round fills pools and caches; what comes after must not add to them.
        let most = *before.get_or_insert_with(descriptors);
        eventually(&format!("at most {most} descriptors are open"), || descriptors() <= most).await;
    }
}

pub async fn many_quick_processes_at_once_all_deliver(env: &TestEnvironment) {
    futures_util::stream::iter(0..200)
        .for_each_concurrent(20, |number| async move {
            let script = format!("say {number} ; err {number} ; exit {}", number % 250);
            let log = env.run(&format!("{number}"), &script).await;
            assert_eq!(log.stdout(), format!("{number}\n"));
            assert_eq!(log.stderr(), format!("{number}\n"));
            assert_eq!(log.exit().status, ExitStatus::Code(number % 250));
        })
        .await;
}

/// One child of the kind that its number chooses.
async fn run_child(env: &TestEnvironment, number: usize) {
    let name = format!("child-{number}");
    let turn = number / 12;
    match number % 12 {
        0 | 1 => leaves_descendant_behind(env, &name, KINDS[turn % KINDS.len()], number % 2 == 1).await,
        2 => is_terminated_with_descendant(env, &name, KINDS[turn % KINDS.len()]).await,
        3 => prints_after_its_leader(env, &name).await,
        4 => stops_itself(env, &name).await,
        5 => {
            let signal = DEADLY[turn % DEADLY.len()];
            let exit = env.run(&name, &format!("signal-self {signal}")).await.exit();
            assert_eq!(super::signal_of(exit), Some(signal), "{name}");
        }
        kind => {
            let (script, code) = [
                ("close-stdout ; close-stderr ; exit 4", 4),
                ("exec [ exec [ say again ; exit 5 ] ]", 5),
                ("bytes1 300 ; exit 6", 6),
                ("exit 0", 0),
                ("close-stdin ; flood stderr 300000 1 70000 ; exit 7", 7),
                ("hold-stdout 30 ; close-stdout ; exit 8", 8),
            ][kind - 6];
            let log = env.run(&name, script).await;
            assert_own(log.exit(), code, &name);
        }
    }
}

/// `exited` is reported although a descendant lives on; terminate ends that.
async fn leaves_descendant_behind(env: &TestEnvironment, name: &str, kind: &str, on_terminal: bool) {
    // On a terminal the kernel hangs up on the session when its leader ends; ignoring that is part of the case.
    let script = format!("{kind} [ ignore-hup ; ignore-term ; say settled ; wait-forever ] ; exit 3");
    let mut command = env.command(&script);
    if on_terminal {
        command.io = Io::Pty(TerminalSize::default());
    }
    let process = env.start_command(name, command).await;
    let mut reader = process.reader().await;
    let pid = reader.wait_for_text_after("pid ").await;
    assert_own(reader.wait_for_exit().await, 3, name);
    let descendant = pid.parse().ok().and_then(OsProcess::of);
    let terminated = process.kill().await;
    assert_eq!((terminated.was_running, terminated.left), (false, 0), "{name}");
    if let Some(descendant) = descendant {
        assert!(!descendant.is_alive(), "{name}: {descendant:?} outlived terminate");
        descendant.wait_until_gone().await;
    } else {
        // The hang-up may have come before the actor could ignore it.
        assert!(on_terminal, "{name}: the descendant ended by itself");
    }
    reader.read_to_end().await;
}

async fn is_terminated_with_descendant(env: &TestEnvironment, name: &str, kind: &str) {
    let script = format!("{kind} [ ignore-term ; wait-forever ] ; ignore-term ; wait-forever");
    let process = env.start(name, &script).await;
    let mut reader = process.reader().await;
    let descendant = reader.wait_for_descendant().await;
    let terminated = process.terminate(Duration::from_millis(20)).await;
    assert_eq!((terminated.was_running, terminated.left), (true, 0), "{name}");
    assert!(!descendant.is_alive(), "{name}: {descendant:?} outlived terminate");
    descendant.wait_until_gone().await;
    let exit = reader.read_to_end().await.exit();
    assert_eq!(exit.cause, ExitCause::Terminated, "{name}");
}

async fn prints_after_its_leader(env: &TestEnvironment, name: &str) {
    let semaphore = env.semaphore(name);
    let script = format!("fork [ {} ; say late ] ; exit 6", semaphore.acquire());
    let process = env.start(name, &script).await;
    let mut reader = process.reader().await;
    assert_own(reader.wait_for_exit().await, 6, name);
    semaphore.release();
    let log = reader.read_to_end().await;
    assert!(log.stdout().ends_with("late\n"), "{name}");
}

async fn stops_itself(env: &TestEnvironment, name: &str) {
    let process = env.start(name, "stop-self ; say on ; exit 9").await;
    process.os_process().wait_for_state('T').await;
    process.signal(Signal::Continue).await;
    let log = process.read_to_end().await;
    assert_eq!(log.stdout(), "on\n", "{name}");
    assert_own(log.exit(), 9, name);
}

fn assert_own(exit: Exit, code: i32, name: &str) {
    let expected = (ExitStatus::Code(code), ExitCause::Own);
    assert_eq!((exit.status, exit.cause), expected, "{name}");
}

/// Pids whose working directory is `directory`. A zombie has none; those are checked one by one.
fn pids_working_in(directory: &std::path::Path) -> Vec<String> {
    let table = std::fs::read_dir("/proc").expect("this is Linux");
    table
        .filter_map(Result::ok)
        .filter(|row| std::fs::read_link(row.path().join("cwd")).is_ok_and(|cwd| cwd == directory))
        .map(|row| row.file_name().to_string_lossy().into_owned())
        .collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("this is Linux").count()
}
