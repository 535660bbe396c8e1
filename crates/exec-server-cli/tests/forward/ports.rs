//! Ports and sockets, here and there.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

use crate::server::{Server, Transport};
use crate::{Forwarding, Killed, Signal, answering, ask, curl, free_port, support};

#[test]
fn a_web_server_there_is_one_here() {
    let server = Server::start(Transport::WebSocket);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(folder.path().join("large"), &content).expect("the folder is ours");
    let port = free_port();
    let web = Command::new("python3")
        .args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _web = Killed(web.expect("python3 is installed"));
    // It waits until the port answers, and prints a URL for it.
    let mut forwarding = Forwarding::to(&server, &["--open", &port.to_string()]);
    let opened = forwarding.event();
    let url = opened["url"].as_str().unwrap_or_else(|| panic!("{opened}"));
    assert_eq!(opened["connect"], format!("localhost:{port}"));
    let fetched = curl(&[&format!("{url}large")]);
    assert!(fetched.status.success() && fetched.stdout == content, "{:?}", fetched.stderr);
    assert_eq!(forwarding.end(), Some(0));
}

#[test]
fn several_are_forwarded_at_once_and_each_direction_ends_for_itself() {
    for transport in [Transport::WebSocket, Transport::Unix] {
        let server = Server::start(transport);
        let (one, other) = (answering(), answering());
        let mut forwarding = Forwarding::to(&server, &[&format!("0:{one}"), &format!("127.0.0.1:0:127.0.0.1:{other}")]);
        for _ in 0..2 {
            let address = forwarding.listening();
            let said: Vec<u8> = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
            assert!(ask(&address, &said).expect("both ends end well") == said);
            assert_eq!(ask(&address, b"").expect("both ends end well"), b"");
        }
        assert_eq!(forwarding.end(), Some(0));
    }
}

#[test]
fn an_environment_is_named_before_a_colon() {
    let server = Server::start(Transport::Unix);
    server.name("build");
    let port = answering();
    let mut forwarding = Forwarding::start(&mut server.command(&["forward", "build:", &format!("0:{port}")]));
    let address = forwarding.listening();
    assert_eq!(ask(&address, b"hello").expect("both ends end well"), b"hello");
}

#[test]
fn a_terminal_that_is_closed_takes_the_socket_with_it_unless_nohup_has_made_us_ignore_that() {
    let server = Server::start(Transport::Unix);
    let here = server.home.path().join("here.sock");
    let pair = format!("{}:{}", here.display(), server.home.path().join("there.sock").display());
    let mut forwarding = Forwarding::to(&server, &[&pair]);
    assert_eq!(forwarding.listening(), here.display().to_string());
    assert_eq!(forwarding.end_by(Signal::HUP), Some(0));
    assert!(!here.exists(), "the socket goes with its listener");

    let binary = server.command(&[]).get_program().display().to_string();
    let script = format!("trap '' HUP; exec {binary} forward --connect {} {pair} \"$@\"", server.url);
    let mut shell = Command::new("sh");
    support::unconfigured(&mut shell);
    let mut forwarding = Forwarding::start(shell.args(["-c", &script, "sh"]));
    assert_eq!(forwarding.listening(), here.display().to_string());
    forwarding.signal(Signal::HUP);
    let listener = UnixListener::bind(server.home.path().join("there.sock")).expect("the folder is ours");
    let near = UnixStream::connect(&here).expect("it still listens");
    let (mut far, _) = listener.accept().expect("it still carries");
    far.write_all(b"carried").expect("the connection lives");
    let mut heard = [0; 7];
    (&near).read_exact(&mut heard).expect("the connection lives");
    assert_eq!(&heard, b"carried");
    assert_eq!(forwarding.end(), Some(0));
}

#[test]
fn a_unix_socket_here_leads_to_one_there_and_socat_talks_through_it() {
    let server = Server::start(Transport::Unix);
    let (here, there) = (server.home.path().join("here.sock"), server.home.path().join("there.sock"));
    let listener = UnixListener::bind(&there).expect("the folder is ours");
    let pair = format!("{}:{}", here.display(), there.display());
    let mut forwarding = Forwarding::to(&server, &[&pair]);
    assert_eq!(forwarding.listening(), here.display().to_string());
    let mut socat = Command::new("socat")
        .args(["-t", "30", "-", &format!("UNIX-CONNECT:{}", here.display())])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("socat is installed");
    socat.stdin.take().expect("piped").write_all(b"question").expect("socat reads");
    let (mut far, _) = listener.accept().expect("socat has connected");
    let mut heard = String::new();
    far.read_to_string(&mut heard).expect("an end, and no error");
    far.write_all(b"answer").expect("only one direction has ended");
    drop(far);
    let output = socat.wait_with_output().expect("it is our child");
    assert_eq!((heard.as_str(), output.stdout.as_slice()), ("question", &b"answer"[..]));
    assert_eq!(forwarding.end(), Some(0));
    assert!(!here.exists(), "the socket goes with its listener");
}

#[test]
fn what_connects_there_comes_here() {
    let server = Server::start(Transport::WebSocket);
    let here = answering();
    let socket = server.home.path().join("reverse.sock");
    let pairs = [format!("0:{here}"), format!("{}:localhost:{here}", socket.display())];
    let mut forwarding = Forwarding::to(&server, &["-R", &pairs[0], "-R", &pairs[1]]);
    let address = forwarding.listening();
    assert_eq!(ask(&address, b"from there").expect("both ends end well"), b"from there");
    assert_eq!(forwarding.listening(), socket.display().to_string());
    let mut caller = UnixStream::connect(&socket).expect("it listens");
    caller.write_all(b"from a socket").expect("it is connected");
    caller.shutdown(std::net::Shutdown::Write).expect("it is connected");
    let mut heard = String::new();
    caller.read_to_string(&mut heard).expect("an end, and no error");
    assert_eq!(heard, "from a socket");
    assert_eq!(forwarding.end(), Some(0));
    assert!(ask(&address, b"").is_err() && !socket.exists(), "the session has ended, and its listeners");
}

#[test]
fn a_program_that_nobody_waits_for_is_told_of() {
    let server = Server::start(Transport::Unix);
    let port = free_port().to_string();
    let output = server.finish(&["forward", "--connect", &server.url, "--open", &port, "--wait", "200ms"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains(&format!("nothing answers at localhost:{port} there")), "{said}");
}
