//! What other users of the machine, and the programs that we start ourselves, can do to a server: as little as possible.
//!
//! Root may do everything, so as root these tests serve as another user.

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::support::{Running, code, exec_server, finish, stderr, stdout};

/// Nobody in particular.
const OTHER_USER: u32 = 65_534;

/// A user without rights, with a folder and a copy of the binary that this user can reach.
pub(crate) struct OrdinaryUser {
    folder: tempfile::TempDir,
    uid: Option<u32>,
}

impl OrdinaryUser {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let uid = rustix::process::geteuid().is_root().then_some(OTHER_USER);
        std::fs::copy(env!("CARGO_BIN_EXE_exec-server"), folder.path().join("exec-server")).expect("there is space");
        chown(folder.path(), uid, uid).expect("root may do this, and for others nothing changes");
        Self { folder, uid }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("HOME", self.folder.path()).env("EXEC_SERVER_HOME", self.folder.path()).stdin(Stdio::null());
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        command
    }

    pub(crate) fn uid(&self) -> u32 {
        self.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw())
    }

    pub(crate) fn exec_server(&self, args: &[&str]) -> Command {
        let mut command = self.command(self.path("exec-server"));
        command.args(args);
        command
    }
}

#[test]
fn programs_cannot_look_into_the_server_or_its_keeper_and_all_works_for_an_ordinary_user() {
    let user = OrdinaryUser::new();
    let (state, socket) = (user.path("state").display().to_string(), format!("unix://{}", user.path("s").display()));
    let serve = |secret: &str| {
        let mut command = user.exec_server(&["serve", "--listen", &socket, "--state-dir", &state]);
        let mut server = Running::start(command.env("MY_SECRET", secret));
        assert_eq!(server.line(), socket);
        server
    };
    let server = serve("hidden");
    let detached = finish(&mut user.exec_server(&[
        "run",
        "--connect",
        &socket,
        "--detach",
        "--quiet",
        "--no-stdin",
        "--",
        "sh",
        "-c",
        "echo $PPID; cat /proc/self/environ /proc/$$/environ >/dev/null || echo blind; exec sleep 1000",
    ]));
    assert!(detached.status.success(), "{detached:?}");
    let id = stdout(&detached).trim_end().to_owned();
    let mut following = Running::start(&mut user.exec_server(&["logs", "--follow", &id]));
    let keeper = following.line();
    for pid in [server.pid().as_raw_nonzero().to_string(), keeper] {
        for file in ["environ", "mem", "maps", "fd/0"] {
            let looking = finish(user.command("cat").arg(format!("/proc/{pid}/{file}")));
            assert!(!looking.status.success(), "{file} of {pid} can be read: {looking:?}");
        }
    }
    // Its children can be looked at, and a server that is killed is followed by one that finds everything.
    server.signal(rustix::process::Signal::KILL);
    server.abandon();
    following.signal(rustix::process::Signal::KILL);
    following.abandon();
    let server = serve("");
    let listed = finish(&mut user.exec_server(&["ps", "--json"]));
    assert!(stdout(&listed).contains("\"running\""), "{listed:?}");
    let killed = finish(&mut user.exec_server(&["kill", &id]));
    assert!(killed.status.success(), "{killed:?}");
    let logs = finish(&mut user.exec_server(&["logs", &id]));
    assert!(!stdout(&logs).contains("blind"), "{logs:?}");
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.end().2, 0);
}

/// As where another program of the container makes processes without an end. Root has no such limit.
#[test]
fn a_server_that_can_start_no_more_threads_still_reads_files() {
    let user = OrdinaryUser::new();
    let socket = format!("unix://{}", user.path("s").display());
    let mut server = Running::start(&mut user.exec_server(&["serve", "--listen", &socket]));
    assert_eq!(server.line(), socket);
    std::fs::write(user.path("file"), "still here").expect("the folder is ours");
    let pid = server.pid().as_raw_nonzero().to_string();
    let limited = finish(user.command("prlimit").args(["--nproc=0:0", "--pid", &pid]));
    assert!(limited.status.success(), "{limited:?}");
    let file = format!(":{}", user.path("file").display());
    for _ in 0..3 {
        let read = finish(&mut user.exec_server(&["fs", "cat", "--connect", &socket, &file]));
        assert_eq!((stdout(&read), code(&read)), ("still here", 0), "{}", stderr(&read));
    }
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.end().2, 0);
}

#[test]
fn the_keeper_has_none_of_the_variables_of_its_owner() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let socket = format!("unix://{}", folder.path().join("s").display());
    let mut server = Running::start(exec_server(&["serve", "--listen", &socket]).env("MY_SECRET", "hidden"));
    assert_eq!(server.line(), socket);
    let script = "tr '\\0' '\\n' < /proc/$PPID/environ";
    let output = finish(&mut exec_server(&["run", "--connect", &socket, "--", "sh", "-c", script]));
    assert!(!stdout(&output).contains("MY_SECRET"), "{output:?}");
    server.signal(rustix::process::Signal::TERM);
    server.end();
}

fn refusal(args: &[&str]) -> String {
    let output = finish(&mut exec_server(&[&["serve"], args].concat()));
    assert_ne!(code(&output), 0, "{output:?}");
    stderr(&output).to_owned()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn a_state_folder_that_others_could_have_prepared_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (state, link) = (folder.path().join("state"), folder.path().join("link"));
    std::fs::create_dir(&state).expect("the folder is ours");
    std::fs::write(state.join("keeper.log"), "").expect("the folder is ours");
    std::os::unix::fs::symlink(&state, &link).expect("the folder is ours");
    let refused = |path: &Path| refusal(&["--state-dir", &path.display().to_string()]);
    assert!(refused(&link).contains("is a link"), "{}", refused(&link));
    set_mode(&state, 0o777);
    let told = refused(&state);
    assert!(told.contains("could be written to by others") && told.contains("keeper.log"), "{told}");
    set_mode(&state, 0o700);
    set_mode(&state.join("keeper.log"), 0o666);
    assert!(refused(&state).contains("could be written to by others"));
}

#[test]
fn a_fifo_in_the_state_folder_does_not_hold_up_the_start() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let state = folder.path().join("state");
    for place in ["", "sessions", "writes"] {
        let below = state.join(place);
        std::fs::create_dir_all(&below).expect("the folder is ours");
        let made = Command::new("mkfifo").args(["-m", "600"]).arg(below.join("0123456789abcdef")).status();
        assert!(made.expect("mkfifo is everywhere").success());
        set_mode(&below, 0o700);
    }
    let args = ["serve", "--listen", "ws://127.0.0.1:0", "--state-dir", &state.display().to_string()];
    let mut server = Running::start(&mut exec_server(&args));
    assert!(server.line().starts_with("ws://"));
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.end().2, 0);
}

#[test]
fn an_address_that_others_can_reach_needs_a_token_or_the_word_insecure() {
    let told = refusal(&["--listen", "ws://0.0.0.0:0"]);
    assert!(told.contains("--ws-auth") && told.contains("--insecure-no-auth"), "{told}");
    let mut server = Running::start(&mut exec_server(&["serve", "--listen", "ws://0.0.0.0:0", "--insecure-no-auth"]));
    assert!(server.line().starts_with("ws://0.0.0.0:"));
    server.signal(rustix::process::Signal::TERM);
    let (_, told, code) = server.end();
    assert_eq!(code, 0);
    assert!(told.contains("may run programs here"), "{told}");
}
