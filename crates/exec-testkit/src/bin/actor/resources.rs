//! Resources that an actor uses: processor time, memory, processes, files, ports.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
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
        "say-to" => {
            let variable = std::env::var(call.word(0)).unwrap_or_else(|_| fail("the variable is not set"));
            say_to(variable.rsplit('/').next().unwrap_or_default(), &call.word(1));
        }
        "send-datagram" => {
            let variable = std::env::var(call.word(0)).unwrap_or_else(|_| fail("the variable is not set"));
            send_datagram(variable.rsplit('/').next().unwrap_or_default(), &unescaped(&call.word(1)));
        }
        "say-to-address" => say_to(&call.word(0), &call.word(1)),
        _ => return false,
    }
    true
}

/// Says a text, in which `\\r`, `\\n` and `\\xNN` are bytes, and prints in one line all that is heard until the other side is
/// done. The time of the answer is left out.
fn say_to(address: &str, text: &str) {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return line(stdout(), b"nobody listens");
    };
    let _ = stream.write_all(&unescaped(text));
    let mut heard = Vec::new();
    // Whoever closes with something of ours unread resets the connection; what it said before counts.
    let _ = stream.read_to_end(&mut heard);
    let heard = heard.escape_ascii().to_string();
    let without_date: Vec<&str> = heard.split(r"\r\n").filter(|header| !header.starts_with("date: ")).collect();
    line(stdout(), without_date.join(r"\r\n").as_bytes());
}

/// Asks a proxy (SOCKS5) for a relay of datagrams, sends it one, and prints what comes back, or that the relay has ended.
fn send_datagram(address: &str, datagram: &[u8]) {
    let bound = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| Ok((socket.local_addr()?.port(), socket)));
    let (port, socket) = bound.unwrap_or_else(|error| fail(&format!("no socket: {error}")));
    let Ok(mut stream) = TcpStream::connect(address) else {
        return line(stdout(), b"nobody listens");
    };
    let mut answer = [0; 12];
    let request = [&[5, 1, 0, 5, 3, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat();
    if stream.write_all(&request).and_then(|()| stream.read_exact(&mut answer)).is_err() || answer[3] != 0 {
        return line(stdout(), b"no relay");
    }
    let relay = u16::from_be_bytes([answer[10], answer[11]]);
    let _ = socket.send_to(datagram, (Ipv4Addr::LOCALHOST, relay));
    let (heard, first) = std::sync::mpsc::sync_channel(2);
    let ended = heard.clone();
    std::thread::spawn(move || {
        let _ = stream.read(&mut [0]);
        let _ = ended.send("the relay has ended".to_owned());
    });
    std::thread::spawn(move || {
        let mut answer = [0; 2048];
        let length = socket.recv(&mut answer).unwrap_or_default();
        let _ = heard.send(answer[..length].escape_ascii().to_string());
    });
    line(stdout(), first.recv().unwrap_or_default().as_bytes());
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (byte, rest) = match part.split_at_checked(1) {
            Some(("r", rest)) => (b'\r', rest),
            Some(("n", rest)) => (b'\n', rest),
            Some(("x", rest)) if rest.len() >= 2 => {
                (u8::from_str_radix(&rest[..2], 16).unwrap_or_else(|_| fail("no hex digits")), &rest[2..])
            }
            _ => fail("no such escape"),
        };
        bytes.push(byte);
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
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
