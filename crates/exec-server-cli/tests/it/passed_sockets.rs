//! `serve --listen fd://`: sockets that a service manager has bound. A shell stands in for it: it has the listening socket
//! as its stdin, puts it where systemd does, and becomes the server.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::support::{code, exec_server, stderr, stdout, unconfigured};

const PASS: &str =
    r#"exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=x exec "$0" serve --listen fd:// "$@""#;

/// The command that becomes a server with this as its socket 3.
fn passing(socket: OwnedFd, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", PASS, env!("CARGO_BIN_EXE_exec-server")]).args(args).stdin(Stdio::from(socket));
    unconfigured(&mut command);
    command
}

/// The server and the URL that it prints.
fn serve(socket: OwnedFd, args: &[&str]) -> (Child, String) {
    let mut child = passing(socket, args).stdout(Stdio::piped()).spawn().expect("there is a shell");
    let mut url = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut url).expect("a server says where it listens");
    (child, url.trim_end().to_owned())
}

fn end(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is our child and not waited for");
    assert!(child.wait().expect("it is our child").success());
}

fn run_there(url: &str, script: &str) -> std::process::Output {
    let mut command = exec_server(&["run", "--connect", url, "--", "sh", "-c", script]);
    unconfigured(&mut command);
    command.output().expect("the binary can be started")
}

#[test]
fn a_unix_socket_that_was_passed_is_served_and_stays_when_the_server_ends() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("s");
    let socket = UnixListener::bind(&path).expect("the folder is ours");
    let (server, url) = serve(socket.try_clone().expect("there are descriptors").into(), &[]);
    assert_eq!(url, format!("unix://{}", path.display()));
    let output = run_there(&url, "echo ${LISTEN_FDS-none} ${LISTEN_PID-none} ${LISTEN_FDNAMES-none}; ls /proc/self/fd");
    // The socket is not inherited by what runs there: only the three streams, and the folder that ls reads.
    assert_eq!(stdout(&output), "none none none\n0\n1\n2\n3\n", "{output:?}");
    end(server);
    assert!(path.exists(), "the service manager still listens there");
    let (server, url) = serve(socket.into(), &[]);
    assert_eq!(stdout(&run_there(&url, "echo again")), "again\n");
    end(server);
}

#[test]
fn a_tcp_socket_that_was_passed_is_judged_as_one_of_our_own() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
    let expected = format!("ws://{}", socket.local_addr().expect("it is bound"));
    let (server, url) = serve(socket.into(), &[]);
    assert_eq!(url, expected);
    assert_eq!(stdout(&run_there(&url, "echo here")), "here\n");
    end(server);

    let everywhere = TcpListener::bind("0.0.0.0:0").expect("there is a free port");
    let output = passing(everywhere.into(), &[]).output().expect("there is a shell");
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(stderr(&output).contains("without authentication"), "{output:?}");
}

#[test]
fn what_is_no_listening_socket_is_refused_in_words() {
    let (reader, writer) = std::io::pipe().expect("there are descriptors");
    let output = passing(reader.into(), &[]).output().expect("there is a shell");
    drop(writer);
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(stderr(&output).contains("a socket that was passed to us"), "{output:?}");

    let (one, mut other) = std::os::unix::net::UnixStream::pair().expect("there are descriptors");
    let output = passing(one.into(), &[]).output().expect("there is a shell");
    assert!(stderr(&output).contains("ListenStream="), "{output:?}");
    assert_eq!(other.read(&mut [0]).expect("the other end is closed"), 0);

    let mut alone = exec_server(&["serve", "--listen", "fd://"]);
    let output = alone.env_remove("LISTEN_FDS").output().expect("the binary can be started");
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(stderr(&output).contains("there are none"), "{output:?}");
}
