//! Many at once, of every awkward shape, and nothing left of them.

use std::time::Duration;

use exec_core::{ExitCause, Exit, Io, Signal, TerminalSize, ExitStatus};
use futures_util::StreamExt;

use super::terminate::KINDS;
use crate::bench::{Bench, process_id};
use crate::witness::eventually;

/// How many children, and how many of them at a time.
const CHILDREN: usize = 300;
const AT_A_TIME: usize = 30;

/// Signals that kill, in turn.
const DEADLY: [i32; 8] = [1, 2, 3, 6, 9, 11, 13, 15];

/// 300 children of every awkward shape: each ends as its shape says, and nothing of them is left.
pub async fn three_hundred_awkward_children_end_as_they_should_and_leave_nothing(bench: &Bench) {
    futures_util::stream::iter(0..CHILDREN).for_each_concurrent(AT_A_TIME, |number| play(bench, number)).await;
    let listed = bench.processes().list().await.expect("the list is there");
    assert_eq!(listed.len(), CHILDREN);
    assert!(listed.iter().all(|info| info.head.closed && !info.stdin_open));
    for info in &listed {
        assert_eq!(bench.processes().forget(&info.id).await, Ok(()));
    }
    let scratch = bench.scratch();
    eventually("nobody works in the scratch folder any more", || inhabitants(&scratch).is_empty()).await;
}

/// Processes that are forgotten leave no descriptor behind in this program.
pub async fn forgotten_processes_leave_no_descriptor_behind(bench: &Bench) {
    let mut before = None;
    for round in 0..6 {
        for number in 0..10 {
            let id = process_id(&format!("{round}-{number}"));
            let script = "flood stdout 100000 1 9000 ; err x ; exit 0";
            let mut command = bench.command(script);
            command.io = match number % 3 {
                0 => Io::Pty(TerminalSize::default()),
                1 => Io::Pipes { stdin: true },
                _ => Io::Pipes { stdin: false },
            };
            bench.launch(id.as_str(), command).await.transcript().await;
            assert_eq!(bench.processes().forget(&id).await, Ok(()));
        }
        // The first round fills pools and caches; what comes after must not add to them.
        let most = *before.get_or_insert_with(descriptors);
        eventually(&format!("at most {most} descriptors are open"), || descriptors() <= most).await;
    }
}

/// Starts and ends at the same time do not disturb each other.
pub async fn many_quick_processes_at_once_all_deliver(bench: &Bench) {
    futures_util::stream::iter(0..200)
        .for_each_concurrent(20, |number| async move {
            let script = format!("say {number} ; err {number} ; exit {}", number % 250);
            let transcript = bench.run(&format!("{number}"), &script).await;
            assert_eq!(transcript.stdout(), format!("{number}\n"));
            assert_eq!(transcript.stderr(), format!("{number}\n"));
            assert_eq!(transcript.exit().status, ExitStatus::Code(number % 250));
        })
        .await;
}

/// One child in the shape of its number.
async fn play(bench: &Bench, number: usize) {
    let name = format!("child-{number}");
    let turn = number / 12;
    match number % 12 {
        0 | 1 => leaves_kin_behind(bench, &name, KINDS[turn % KINDS.len()], number % 2 == 1).await,
        2 => is_terminated_with_kin(bench, &name, KINDS[turn % KINDS.len()]).await,
        3 => prints_after_its_leader(bench, &name).await,
        4 => stops_itself(bench, &name).await,
        5 => {
            let signal = DEADLY[turn % DEADLY.len()];
            let exit = bench.run(&name, &format!("signal-self {signal}")).await.exit();
            assert_eq!(super::signal_of(exit), Some(signal), "{name}");
        }
        shape => {
            let (script, code) = [
                ("close-stdout ; close-stderr ; exit 4", 4),
                ("exec [ exec [ say again ; exit 5 ] ]", 5),
                ("bytes1 300 ; exit 6", 6),
                ("exit 0", 0),
                ("close-stdin ; flood stderr 300000 1 70000 ; exit 7", 7),
                ("hold-stdout 30 ; close-stdout ; exit 8", 8),
            ][shape - 6];
            let transcript = bench.run(&name, script).await;
            assert_own(transcript.exit(), code, &name);
        }
    }
}

/// `exited` is told although kin lives on; terminate ends it.
async fn leaves_kin_behind(bench: &Bench, name: &str, kind: &str, on_terminal: bool) {
    // On a terminal the kernel hangs up on the session when its leader ends; ignoring that is part of the shape.
    let script = format!("{kind} [ ignore-hup ; ignore-term ; say settled ; wait-forever ] ; exit 3");
    let mut command = bench.command(&script);
    if on_terminal {
        command.io = Io::Pty(TerminalSize::default());
    }
    let process = bench.launch(name, command).await;
    let mut reader = process.reader().await;
    let kin = reader.line_after("pid ").await;
    assert_own(reader.exited().await, 3, name);
    let kin = crate::witness::Witness::from_line(&format!("pid {kin}"));
    let terminated = process.kill().await;
    assert_eq!((terminated.was_running, terminated.left), (false, 0), "{name}");
    if let Some(kin) = kin {
        assert!(!kin.is_alive(), "{name}: {kin:?} outlived terminate");
        kin.leaves().await;
    } else {
        // The hang-up may have come before the actor could ignore it.
        assert!(on_terminal, "{name}: kin ended by itself");
    }
    reader.to_the_end().await;
}

async fn is_terminated_with_kin(bench: &Bench, name: &str, kind: &str) {
    let script = format!("{kind} [ ignore-term ; wait-forever ] ; ignore-term ; wait-forever");
    let process = bench.start(name, &script).await;
    let mut reader = process.reader().await;
    let kin = reader.descendant().await;
    let terminated = process.terminate(Duration::from_millis(20)).await;
    assert_eq!((terminated.was_running, terminated.left), (true, 0), "{name}");
    assert!(!kin.is_alive(), "{name}: {kin:?} outlived terminate");
    kin.leaves().await;
    let exit = reader.to_the_end().await.exit();
    assert_eq!(exit.cause, ExitCause::Terminated, "{name}");
}

async fn prints_after_its_leader(bench: &Bench, name: &str) {
    let gate = bench.gate(name);
    let script = format!("fork [ {} ; say late ] ; exit 6", gate.wait());
    let process = bench.start(name, &script).await;
    let mut reader = process.reader().await;
    assert_own(reader.exited().await, 6, name);
    gate.open_once();
    let transcript = reader.to_the_end().await;
    assert!(transcript.stdout().ends_with("late\n"), "{name}");
}

async fn stops_itself(bench: &Bench, name: &str) {
    let process = bench.start(name, "stop-self ; say on ; exit 9").await;
    process.witness().comes_to('T').await;
    process.signal(Signal::Continue).await;
    let transcript = process.transcript().await;
    assert_eq!(transcript.stdout(), "on\n", "{name}");
    assert_own(transcript.exit(), 9, name);
}

fn assert_own(exit: Exit, code: i32, name: &str) {
    let expected = (ExitStatus::Code(code), ExitCause::Own);
    assert_eq!((exit.status, exit.cause), expected, "{name}");
}

/// Pids whose working directory is `folder`. A zombie has none; those are sworn to by their witnesses.
fn inhabitants(folder: &std::path::Path) -> Vec<String> {
    let table = std::fs::read_dir("/proc").expect("this is Linux");
    table
        .filter_map(Result::ok)
        .filter(|row| std::fs::read_link(row.path().join("cwd")).is_ok_and(|cwd| cwd == folder))
        .map(|row| row.file_name().to_string_lossy().into_owned())
        .collect()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("this is Linux").count()
}
