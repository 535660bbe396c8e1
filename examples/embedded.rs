//! This machine, without any server: start programs, stream their output, write to stdin, wait, kill.
//!
//!     cargo run -p exec-server --example embedded

use std::error::Error;
use std::time::Duration;

use exec_server::process::{WaitCondition, Waited, Written};
use exec_server::{Bytes, Command, EntryBody, Environment, ExitCause, Io, ProcessId, Processes, Stream, WriteId};

/// How much output one page brings at most, in bytes.
const PAGE_BYTES: usize = 64 * 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let machine = exec_server::open_local().await?;
    let processes = machine.processes();
    start_and_stream(processes).await?;
    write_to_stdin(processes).await?;
    wait_for_output(processes).await?;
    kill_the_whole_tree(processes).await?;
    machine.end().await;
    println!("done");
    Ok(())
}

/// Output arrives while the program runs, stdout and stderr apart and yet in one order.
async fn start_and_stream(processes: &dyn Processes) -> Result<(), Box<dyn Error>> {
    let id = ProcessId::new("streaming")?;
    let script = "echo compiling; echo 'warning: unused' >&2; exit 3";
    let started = processes.start(&id, shell(script)).await?;
    println!("started {id} as pid {}", started.pid);

    let (mut stdout, mut stderr, mut code) = (Vec::new(), Vec::new(), None);
    let mut follower = processes.follow(&id, 0).await?;
    while let Some(page) = follower.next(PAGE_BYTES).await? {
        for entry in page.entries {
            println!("  {} {:?}", entry.seq, entry.body);
            match entry.body {
                EntryBody::Output { stream: Stream::Stderr, bytes } => stderr.extend(bytes),
                EntryBody::Output { bytes, .. } => stdout.extend(bytes),
                EntryBody::Exited(exit) => code = Some(exit.shell_code()),
                EntryBody::Closed => println!("  nothing can follow"),
            }
        }
    }
    assert_eq!((&stdout[..], &stderr[..], code), (&b"compiling\n"[..], &b"warning: unused\n"[..], Some(3)));
    Ok(())
}

/// A write carries an id of the caller's. Whoever is in doubt repeats it, and the bytes still arrive once.
async fn write_to_stdin(processes: &dyn Processes) -> Result<(), Box<dyn Error>> {
    let id = ProcessId::new("adding")?;
    let command = Command { io: Io::Pipes { stdin: true }, ..shell("read a; read b; echo $((a + b))") };
    processes.start(&id, command).await?;
    for (key, line) in [("first", "40\n"), ("second", "2\n"), ("second", "2\n")] {
        let written = processes.write(&id, WriteId::new(key)?, Bytes::from(line)).await?;
        assert_eq!(written, Written::Accepted);
    }
    processes.close_stdin(&id).await?;

    let waited = processes.wait(&id, WaitCondition::Output { regex: "[0-9]+".to_owned(), after: 0 }, None).await?;
    let Waited::Matched { text, .. } = waited else {
        return Err(format!("expected a number, not {waited:?}").into());
    };
    println!("40 + 2 = {}", String::from_utf8_lossy(&text));
    assert_eq!(&text[..], b"42");
    Ok(())
}

/// Waits for what a person would look for on the screen, and not for time.
async fn wait_for_output(processes: &dyn Processes) -> Result<(), Box<dyn Error>> {
    let id = ProcessId::new("service")?;
    processes.start(&id, shell("sleep 0.1; echo ready on port 80; exec sleep 1000")).await?;
    let ready = WaitCondition::Output { regex: "ready on port ([0-9]+)".to_owned(), after: 0 };
    let waited = processes.wait(&id, ready, Some(Duration::from_secs(30))).await?;
    println!("the service says: {waited:?}");
    assert!(matches!(waited, Waited::Matched { .. }));
    processes.forget(&id).await?; // ends it, and lets go of its log and its id
    Ok(())
}

/// `terminate` ends the leader and everything it started, in the background and in other sessions too.
async fn kill_the_whole_tree(processes: &dyn Processes) -> Result<(), Box<dyn Error>> {
    let id = ProcessId::new("tree")?;
    processes.start(&id, shell("sleep 1000 & setsid sleep 1000 & echo started; wait")).await?;
    processes.wait(&id, WaitCondition::Output { regex: "started".to_owned(), after: 0 }, None).await?;

    let grace = Duration::from_secs(2); // between SIGTERM and SIGKILL
    let terminated = processes.terminate(&id, grace).await?;
    println!("terminated: {terminated:?}");
    assert_eq!((terminated.was_running, terminated.left), (true, 0));

    let waited = processes.wait(&id, WaitCondition::Closed, None).await?;
    assert!(matches!(waited, Waited::Closed(exit) if exit.cause == ExitCause::Terminated));
    Ok(())
}

fn shell(script: &str) -> Command {
    Command::new(["/bin/sh", "-c", script], "/")
}
