//! `--tty` and `attach`, on a real terminal: the test plays the user.

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::server::{Server, Transport};
use super::support::{code, exec_server, finish, stdout, unconfigured};

/// A terminal with an `exec-server` on it.
pub(crate) struct Fixture {
    screen: OwnedFd,
    /// Held so that the terminal keeps its state when the binary is gone.
    slave: OwnedFd,
    child: Child,
    seen: String,
}

impl Fixture {
    /// With `exec-server run --tty`.
    fn start(args: &[&str]) -> Self {
        Self::open(&[&["run", "--tty"], args].concat(), "/nonexistent".as_ref())
    }

    pub(crate) fn open(args: &[&str], home: &std::path::Path) -> Self {
        Self::open_sized(args, home, 33, 101)
    }

    pub(crate) fn open_sized(args: &[&str], home: &std::path::Path, rows: u16, cols: u16) -> Self {
        let screen =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("there are terminals");
        grantpt(&screen).and_then(|()| unlockpt(&screen)).expect("it is ours");
        let name = ptsname(&screen, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(&name, flags, Mode::empty()).expect("it is unlocked");
        resize(&screen, rows, cols);
        let stdio = || Stdio::from(slave.try_clone().expect("there are descriptors"));
        // Makes it the controlling terminal, so that the kernel signals a new size.
        let mut command = Command::new("setsid");
        unconfigured(&mut command);
        let child = command
            .args(["--ctty", "--wait", env!("CARGO_BIN_EXE_exec-server")])
            .args(args)
            .env("EXEC_SERVER_HOME", home)
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .expect("util-linux is there");
        Self { screen, slave, child, seen: String::new() }
    }

    pub(crate) fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.slave).expect("it is a terminal").local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    pub(crate) fn press(&self, keys: &str) {
        let count = rustix::io::write(&self.screen, keys.as_bytes()).expect("the terminal takes keys");
        assert_eq!(count, keys.len());
    }

    /// Reads the screen until `wanted` is on it, and drops everything up to its end.
    pub(crate) fn until(&mut self, wanted: &str) -> String {
        loop {
            if let Some(at) = self.seen.find(wanted) {
                let rest = self.seen.split_off(at + wanted.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let mut block = [0; 4096];
            match rustix::io::read(&self.screen, &mut block) {
                Ok(count) => self.seen.push_str(std::str::from_utf8(&block[..count]).expect("this test prints ASCII")),
                Err(Errno::INTR) => {}
                Err(errno) => panic!("{errno} before {wanted:?} came: {:?}", self.seen),
            }
        }
    }

    /// Waits for the end and returns the code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.child.wait().expect("it is our child").code()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is our child");
    }
}

fn resize(screen: &OwnedFd, rows: u16, cols: u16) {
    let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(screen, size).expect("it is a terminal");
}

#[test]
fn the_childs_terminal_has_our_size_and_follows_it() {
    let script = "stty size; trap 'stty size; exit 9' WINCH; echo ready; while :; do sleep 0.02; done";
    let mut fixture = Fixture::start(&["--", "sh", "-c", script]);
    assert_eq!(fixture.until("ready\r\n"), "33 101\r\nready\r\n");
    resize(&fixture.screen, 20, 60);
    fixture.until("20 60\r\n");
    assert_eq!(fixture.end(), Some(9));
}

#[test]
fn our_terminal_is_raw_meanwhile_and_restored_after() {
    let mut fixture = Fixture::start(&["--", "sh", "-c", "echo ready; read x; exit 3"]);
    assert!(!tcgetattr(&fixture.slave).expect("it is a terminal").local_modes.is_empty());
    fixture.until("ready\r\n");
    fixture.press("x\r");
    assert_eq!(fixture.end(), Some(3));
    assert!(!fixture.is_raw());
}

#[test]
fn keys_go_through_as_they_are_and_ctrl_c_is_for_the_child() {
    let script = "trap 'echo interrupted; exit 8' INT; echo ready; while :; do sleep 0.02; done";
    let mut fixture = Fixture::start(&["--", "sh", "-c", script]);
    fixture.until("ready\r\n");
    fixture.press("\x03");
    fixture.until("interrupted\r\n");
    assert_eq!(fixture.end(), Some(8));
    assert!(!fixture.is_raw());
}

#[test]
fn ctrl_d_ends_a_shell() {
    let mut fixture = Fixture::start(&["--", "sh", "-i"]);
    fixture.press("echo a$((1+1))z; exec sh -c 'echo go; cat; exit 4'\r");
    fixture.until("a2z\r\n");
    fixture.until("go\r\n");
    fixture.press("\x04");
    assert_eq!(fixture.end(), Some(4));
}

#[test]
fn the_terminal_is_restored_when_the_child_is_killed_times_out_or_cannot_start() {
    let mut killed = Fixture::start(&["--", "sh", "-c", "echo ready; exec sleep 1000"]);
    killed.until("ready\r\n");
    assert!(killed.is_raw());
    killed.signal(Signal::TERM);
    killed.until("ended by SIGTERM");
    assert_eq!(killed.end(), Some(143));
    assert!(!killed.is_raw());

    let mut late = Fixture::start(&["--timeout", "200ms", "--", "sleep", "1000"]);
    late.until("its time limit");
    assert_eq!(late.end(), Some(124));
    assert!(!late.is_raw());

    let mut missing = Fixture::start(&["--", "no-such-program-anywhere"]);
    missing.until("was not found");
    assert_eq!(missing.end(), Some(127));
    assert!(!missing.is_raw());
}

#[test]
fn a_terminal_that_hangs_up_ends_a_shell() {
    let mut fixture = Fixture::start(&["--", "sh", "-c", "echo ready; cat"]);
    fixture.until("ready\r\n");
    let Fixture { screen, slave, mut child, .. } = fixture;
    drop(slave);
    drop(screen);
    assert_eq!(child.wait().expect("it is our child").code(), Some(129), "128 + SIGHUP");
}

#[test]
fn without_a_terminal_of_ours_the_child_has_one_all_the_same() {
    let output =
        finish(&mut exec_server(&["run", "--tty", "--no-stdin", "--", "sh", "-c", "test -t 1; echo $?; stty size"]));
    assert_eq!((stdout(&output), code(&output)), ("0\r\n24 80\r\n", 0));
}

#[test]
fn the_end_of_a_piped_stdin_is_typed_even_after_half_a_line() {
    for text in ["whole\n", "half"] {
        let mut running = super::support::Running::start(
            Command::new("sh")
                .args(["-c", &format!("printf '{text}' | {} run --tty -- cat", env!("CARGO_BIN_EXE_exec-server"))]),
        );
        let first = running.line();
        assert!(first.starts_with(text.trim_end()), "{first:?}");
        assert_eq!(running.end().2, 0);
    }
}

#[test]
fn ctrl_backslash_d_leaves_a_far_terminal_and_another_attach_finds_it() {
    let server = Server::start(Transport::WebSocket);
    let id = server.detach(&["--tty"], "stty size; while read x; do stty size; echo got-$x; done");
    let mut fixture = Fixture::open(&["attach", &id], server.home.path());
    fixture.until("Ctrl-\\ d leaves it running");
    fixture.until("24 80\r\n");
    fixture.press("one\r");
    fixture.until("33 101\r\n");
    fixture.until("got-one\r\n");
    assert!(fixture.is_raw());
    fixture.press("\x1cd");
    fixture.until(&format!("left {id} running"));
    assert_eq!(fixture.end(), Some(0));
    assert!(!fixture.is_raw());

    let mut fixture = Fixture::open(&["attach", "--quiet", &id], server.home.path());
    fixture.until("got-one\r\n");
    resize(&fixture.screen, 20, 60);
    fixture.press("two\r");
    fixture.until("got-two\r\n");
    fixture.press("\x04");
    assert_eq!(fixture.end(), Some(0));
}

#[test]
fn a_terminal_that_hangs_up_leaves_an_attached_process_running() {
    let server = Server::start(Transport::Unix);
    let id = server.detach(&["--tty"], "echo ready; cat");
    let mut fixture = Fixture::open(&["attach", &id], server.home.path());
    fixture.until("ready\r\n");
    let Fixture { screen, slave, mut child, .. } = fixture;
    drop(slave);
    drop(screen);
    assert_eq!(child.wait().expect("it is our child").code(), Some(0));
    assert_eq!(server.only_process()["state"].as_str(), Some("running"));
}

#[test]
fn a_program_without_a_terminal_is_left_by_ctrl_backslash_alone() {
    let server = Server::start(Transport::Unix);
    let id = server.detach(&[], "trap 'echo quit' QUIT; echo ready; cat");
    let mut fixture = Fixture::open(&["attach", &id], server.home.path());
    fixture.until("ready\r\n");
    fixture.press("\x1c");
    fixture.until(&format!("left {id} running"));
    assert_eq!(fixture.end(), Some(0));
    assert_eq!(server.only_process()["state"].as_str(), Some("running"));
}
