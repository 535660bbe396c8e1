//! Resources that an actor uses: processor time, memory, processes, files, ports.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::stdio::stdout;
use rustix::time::{ClockId, clock_gettime};

use crate::ActorState;
use crate::output::line;
use crate::program::{VerbCall, fail};

pub(crate) fn run(state: &mut ActorState, call: &VerbCall) -> bool {
    match call.verb.as_str() {
        "spin" => spin(Duration::from_millis(call.number(0))),
        // Every page is written, or the kernel would not count it.
        "rss" => state.allocations.push(vec![1; call.number(0)]),
        "fork-many" => fork_many(call.number(0)),
        "open-many" => open_many(call.number(0)),
        "write-file" => write_file(call.argument(0), call.number(1)),
        "listen" => listen(state, call.number(0)),
        _ => return false,
    }
    true
}

/// Burns this much processor time, however long that takes on a busy machine.
fn spin(cost: Duration) {
    let spent = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::try_from(time).unwrap_or_default()
    };
    let end = spent() + cost;
    while spent() < end {
        std::hint::spin_loop();
    }
}

/// Starts descendants that wait to be killed, as many as the machine lets it, and prints how many there are.
fn fork_many(count: usize) {
    let myself = std::env::current_exe().unwrap_or_else(|error| fail(&format!("cannot find my own program: {error}")));
    let start = |_| Command::new(&myself).arg("wait-forever").stdin(Stdio::null()).spawn().ok();
    let made = (0..count).map_while(start).count();
    line(stdout(), format!("made {made}").as_bytes());
}

/// Opens a file again and again, as often as the machine lets it, and prints how often that was.
fn open_many(count: usize) {
    let opened: Vec<File> = (0..count).map_while(|_| File::open("/dev/null").ok()).collect();
    line(stdout(), format!("opened {}", opened.len()).as_bytes());
}

/// Writes a file of this many bytes.
fn write_file(path: &OsStr, bytes: usize) {
    let written = File::create(path).and_then(|mut file| file.write_all(&vec![b'x'; bytes]));
    match written {
        Ok(()) => line(stdout(), b"written"),
        Err(error) => line(stdout(), format!("not written: {error}").as_bytes()),
    }
}

fn listen(state: &mut ActorState, port: u16) {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .and_then(|listener| Ok((listener.local_addr()?.port(), listener)));
    match bound {
        Ok((port, listener)) => {
            state.listeners.push(listener);
            line(stdout(), format!("port {port}").as_bytes());
        }
        Err(error) => fail(&format!("cannot listen on port {port}: {error}")),
    }
}
