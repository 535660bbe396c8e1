//! Several observers of one process: one from the start, one who comes late, one who only looks now and then.
//!
//! All of them read the same log, each at its own place. None of them can take anything away from another.
//!
//!     cargo run -p exec-server --example observers

use std::error::Error;

use exec_server::process::{ReadQuery, WaitCondition};
use exec_server::{Bytes, Command, Entry, EntryBody, Environment, Io, ProcessId, Processes, Seq, WriteId};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let machine = exec_server::open_local().await?;
    let processes = machine.processes();

    // It goes on when it is told to, so that the order of events below is certain.
    let id = ProcessId::new("observed")?;
    let script = "echo one; echo two >&2; read go; echo three; echo four";
    let command = Command { io: Io::Pipes { stdin: true }, ..Command::new(["/bin/sh", "-c", script], "/") };
    processes.start(&id, command).await?;
    processes.wait(&id, WaitCondition::Output { regex: "two".to_owned(), after: 0 }, None).await?;

    // Whoever comes late asks for what was there before (after 0), or only for what is new (after the head).
    let head = processes.read(&id, ReadQuery::default()).await?.head;
    let newest: Seq = head.next_seq - 1;
    println!("the log has {newest} entries when the late observer comes");
    let from_the_start = observe(processes, &id, 0);
    let from_now_on = observe(processes, &id, newest);
    let one_by_one = look_now_and_then(processes, &id);
    let go_on = async {
        processes.write(&id, WriteId::new("go")?, Bytes::from("\n")).await?;
        Ok::<_, Box<dyn Error>>(())
    };
    let (all, late, polled, told) = tokio::join!(from_the_start, from_now_on, one_by_one, go_on);
    let (all, late, polled) = (all?, late?, polled?);
    told?;

    println!("from the start: {}", text(&all));
    println!("from then on:   {}", text(&late));
    println!("now and then:   {}", text(&polled));
    assert_eq!(text(&all), "one two three four");
    assert_eq!(text(&late), "three four");
    assert_eq!(polled, all);
    assert_eq!(late, all[newest as usize..]);

    // The log stays when the process is gone: somebody who comes now still reads all of it.
    assert_eq!(observe(processes, &id, 0).await?, all);
    machine.end().await;
    println!("all observers saw the same");
    Ok(())
}

/// Waits for every entry after `after`, until nothing can follow.
async fn observe(processes: &dyn Processes, id: &ProcessId, after: Seq) -> Result<Vec<Entry>, Box<dyn Error>> {
    let mut seen = Vec::new();
    let mut follower = processes.follow(id, after).await?;
    while let Some(page) = follower.next(64 * 1024).await? {
        assert_eq!(page.gap, None);
        seen.extend(page.entries);
    }
    Ok(seen)
}

/// Needs nothing between its looks but the last seq it has seen.
async fn look_now_and_then(processes: &dyn Processes, id: &ProcessId) -> Result<Vec<Entry>, Box<dyn Error>> {
    let mut seen: Vec<Entry> = Vec::new();
    loop {
        let after = seen.last().map_or(0, |entry| entry.seq);
        let wait = std::time::Duration::from_secs(10);
        let page = processes.read(id, ReadQuery { after, max_bytes: Some(1), wait }).await?;
        assert_eq!(page.gap, None);
        seen.extend(page.entries);
        if matches!(seen.last(), Some(Entry { body: EntryBody::Closed, .. })) {
            return Ok(seen);
        }
    }
}

/// What was printed, in one line.
fn text(entries: &[Entry]) -> String {
    let mut printed = Vec::new();
    for entry in entries {
        if let EntryBody::Output { bytes, .. } = &entry.body {
            printed.extend_from_slice(bytes);
        }
    }
    String::from_utf8_lossy(&printed).split_whitespace().collect::<Vec<_>>().join(" ")
}
