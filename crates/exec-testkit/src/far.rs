//! A machine behind ssh: a throw-away sshd on the loopback with keys of its own, a home that is a folder of the test, and the
//! client that goes there. Everything ends with the test.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::binaries::exec_server;

/// Only a guard: nothing that is waited for takes so long, on a busy machine either.
const HANG: Duration = Duration::from_secs(60);

/// A machine behind ssh, as far as its clients can tell.
pub struct Far {
    folder: tempfile::TempDir,
    port: u16,
    sshd: Option<Child>,
}

/// How the far side differs from an ordinary one.
#[derive(Default)]
pub struct FarOptions {
    /// A line of sshd's configuration.
    pub sshd: String,
    /// Programs that come first on its PATH: name and script.
    pub programs: &'static [(&'static str, &'static str)],
    /// The whole PATH there, if it is not the usual one.
    pub only_programs: bool,
}

impl Far {
    /// With our binary in its place already.
    pub fn ready() -> Self {
        let far = Self::empty();
        far.bring_binary();
        far
    }

    /// With nothing of ours.
    pub fn empty() -> Self {
        Self::with(&FarOptions::default())
    }

    pub fn with(options: &FarOptions) -> Self {
        let folder = tempfile::Builder::new().prefix("xssh").tempdir().expect("a folder can be made");
        let mut far = Self { folder, port: 0, sshd: None };
        for name in ["home", "own", "bin", "client"] {
            std::fs::create_dir(far.path(name)).expect("the folder is ours");
        }
        for (name, script) in options.programs {
            far.add_program("bin", name, script);
        }
        for key in ["host_key", "client_key"] {
            let mut keygen = Command::new("ssh-keygen");
            let made = keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(far.path(key)).status();
            assert!(made.expect("openssh-client is there").success(), "ssh-keygen makes keys");
        }
        std::fs::copy(far.path("client_key.pub"), far.path("authorized_keys")).expect("both are ours");
        // sshd of root wants this folder, and does not make it.
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir_all("/run/sshd").expect("root may make it");
        }
        far.start_sshd(options);
        far.write_client_configuration();
        far
    }

    fn start_sshd(&mut self, options: &FarOptions) {
        let path = match options.only_programs {
            true => self.path("bin").display().to_string(),
            false => format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", self.path("bin").display()),
        };
        let deadline = Instant::now() + HANG;
        loop {
            // Somebody else may take the port before sshd does; then it ends, and another is chosen.
            let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
            let configuration = format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
                 UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
                 PrintMotd no\nPrintLastLog no\nMaxStartups 100\n\
                 SetEnv HOME={} PATH={path} XDG_CACHE_HOME= XDG_STATE_HOME= EXEC_SERVER_HOME=\n{}\n",
                self.path("host_key").display(),
                self.path("authorized_keys").display(),
                self.home().display(),
                options.sshd,
            );
            std::fs::write(self.path("sshd_config"), configuration).expect("the folder is ours");
            let log = std::fs::File::create(self.path("sshd.log")).expect("the folder is ours");
            let mut sshd = Command::new("/usr/sbin/sshd");
            sshd.args(["-D", "-e", "-f"]).arg(self.path("sshd_config")).stdin(Stdio::null()).stderr(log);
            let mut child = sshd.spawn().expect("sshd can be started: `cargo xtask setup` installs it");
            loop {
                assert!(Instant::now() < deadline, "sshd does not listen: {}", self.sshd_log());
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    self.port = port;
                    self.sshd = Some(child);
                    return;
                }
                if child.try_wait().expect("it is our child").is_some() {
                    assert!(self.sshd_log().contains("already in use"), "{}", self.sshd_log());
                    break;
                }
                // not a wait: sshd tells nobody when it listens, so it is asked again.
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    fn sshd_log(&self) -> String {
        std::fs::read_to_string(self.path("sshd.log")).unwrap_or_default()
    }

    /// ssh reads the configuration of the account that runs the test, whatever HOME says; so an `ssh` of our own comes first.
    fn write_client_configuration(&self) {
        let key = std::fs::read_to_string(self.path("host_key.pub")).expect("just made");
        std::fs::write(self.path("known_hosts"), format!("[127.0.0.1]:{} {key}", self.port)).expect("ours");
        let configuration = format!(
            "Host far\n  HostName 127.0.0.1\n  Port {}\nHost *\n  UserKnownHostsFile {}\n  GlobalKnownHostsFile none\n  \
             IdentityFile {}\n  IdentitiesOnly yes\n  IdentityAgent none\n",
            self.port,
            self.path("known_hosts").display(),
            self.path("client_key").display(),
        );
        std::fs::write(self.path("ssh_config"), configuration).expect("the folder is ours");
        let script = format!("exec /usr/bin/ssh -F {} \"$@\"", self.path("ssh_config").display());
        self.add_program("client", "ssh", &script);
    }

    /// A program of the far side (`bin`) or of the client's (`client`).
    pub fn add_program(&self, folder: &str, name: &str, script: &str) {
        let path = self.path(folder).join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the folder is ours");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Puts the binary where an earlier visit would have left it.
    pub fn bring_binary(&self) {
        let path = self.cached_binary();
        std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("the home is ours");
        if std::fs::hard_link(binary(), &path).is_err() {
            std::fs::copy(binary(), &path).expect("the home is ours");
        }
    }

    pub fn cached_binary(&self) -> PathBuf {
        let digest = Command::new("sha256sum").arg(binary()).output().expect("coreutils are there").stdout;
        let digest = String::from_utf8(digest).expect("text").split(' ').next().expect("a digest").to_owned();
        self.home().join(".cache/exec-server").join(digest).join("exec-server")
    }

    /// The client, with these arguments.
    pub fn client(&self, args: &[&str]) -> Command {
        let mut command = self.program(binary());
        command.args(args).stdin(Stdio::null());
        command
    }

    /// Another program of the client's side: `ssh://far` leads it here, and nothing of the machine that runs the test does.
    pub fn program(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        for name in ["CODEX_HOME", "EXEC_SERVER_URL", "CODEX_EXEC_SERVER_URL", "XDG_STATE_HOME", "EXEC_SERVER_BINARY"] {
            command.env_remove(name);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(self.path("client")).chain(std::env::split_paths(&path)));
        command.env("PATH", path.expect("no colon in it")).env("HOME", self.path("own"));
        command.env("EXEC_SERVER_HOME", self.path("own"));
        command
    }

    /// The client with these arguments, to its end.
    pub fn finish(&self, args: &[&str]) -> Output {
        self.client(args).output().expect("the binary can be started")
    }

    /// `exec-server ssh far -- sh -c SCRIPT`, to its end.
    pub fn shell(&self, script: &str) -> Output {
        self.finish(&["ssh", "far", "--", "sh", "-c", script])
    }

    /// The same with input.
    pub fn finish_with_input(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = self.client(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.as_mut().expect("the binary can be started");
        let mut stdin = child.stdin.take().expect("piped");
        std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input).expect("the binary reads its stdin"));
            let mut out = Vec::new();
            let mut err = Vec::new();
            let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
            let errors = scope.spawn(move || std::io::copy(&mut { stderr }, &mut err).map(|_| err));
            std::io::copy(&mut { stdout }, &mut out).expect("a pipe can be read");
            let stderr = errors.join().expect("no panic").expect("a pipe can be read");
            Output { status: child.wait().expect("it is our child"), stdout: out, stderr }
        })
    }

    /// The server of the account there.
    pub fn servers(&self) -> Vec<Pid> {
        processes_with(&format!("unix://{}/", self.home().join(".local").display()))
    }

    /// The ssh of each client, also one that is just being started.
    pub fn ssh_clients(&self) -> Vec<Pid> {
        processes_with(&self.path("ssh_config").display().to_string())
    }

    /// Kills them as the kernel would.
    pub fn kill_ssh(&self) {
        wait_until("there is an ssh", || !self.ssh_clients().is_empty());
        for ssh in self.ssh_clients() {
            // It may have ended by itself since.
            let _ = kill_process(ssh, Signal::KILL);
        }
    }

    /// Kills the server there as the kernel would.
    pub fn kill_server(&self) {
        // The last one may have been killed a moment ago.
        wait_until("there is one server", || self.servers().len() == 1);
        let servers = self.servers();
        kill_process(servers[0], Signal::KILL).expect("it runs");
        wait_until("the server is gone", || !is_running(servers[0]));
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // TERM ends a server with all that it runs.
        for server in [self.servers(), processes_with(&format!("unix://{}", self.path("own").display()))].concat() {
            let _ = kill_process(server, Signal::TERM);
            wait_until("the server has ended", || !is_running(server));
        }
        if let Some(mut sshd) = self.sshd.take() {
            let _ = sshd.kill();
            let _ = sshd.wait();
        }
        // Whoever is left has our folder in its words or variables: a keeper whose server was killed, what it ran.
        let needle = self.folder.path().display().to_string();
        for left in processes_with(&needle).into_iter().chain(processes_with_variable(&needle)) {
            let _ = kill_process(left, Signal::KILL);
        }
    }
}

/// The binary under test, without what only debuggers read: it is sent and hashed again and again.
pub fn binary() -> &'static Path {
    static BINARY: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    BINARY.get_or_init(|| {
        let built = exec_server();
        let metadata = std::fs::metadata(&built).expect("it was built");
        let modified = metadata.modified().expect("a time").duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let test = std::env::current_exe().expect("a test knows its own path");
        let kept = test.ancestors().nth(3).expect("tests are in TARGET/PROFILE/deps").join("tmp/ssh");
        let folder = kept.join(format!("{}-{}", metadata.len(), modified.as_nanos()));
        let stripped = folder.join("exec-server");
        if !stripped.exists() {
            std::fs::create_dir_all(&folder).expect("the folder is for us");
            // Those of earlier builds are of no use. Other tests may do the same at this moment.
            let others = std::fs::read_dir(&kept).expect("just made").flatten().map(|entry| entry.path());
            others.filter(|other| *other != folder).for_each(|other| drop(std::fs::remove_dir_all(other)));
            let temporary = folder.join(format!("new-{}", std::process::id()));
            let strip = Command::new("strip").arg("-o").arg(&temporary).arg(&built).status();
            assert!(strip.expect("binutils are there").success(), "strip works");
            // Whoever comes first: a binary that is replaced while it runs has no path any more.
            let _ = std::fs::hard_link(&temporary, &stripped);
            std::fs::remove_file(&temporary).expect("it is ours");
        }
        stripped
    })
}

/// Reads until what was seen is enough.
pub fn read_until(screen: &mut impl Read, is_enough: impl Fn(&str) -> bool) -> String {
    let mut seen = String::new();
    while !is_enough(&seen) {
        let mut piece = [0; 1024];
        let read = screen.read(&mut piece).expect("a pipe can be read");
        assert!(read > 0, "it ended: {seen}");
        seen += &String::from_utf8_lossy(&piece[..read]);
    }
    seen
}

pub fn code(output: &Output) -> i32 {
    output.status.code().expect("the binary ends by itself, never by a signal")
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("this test prints text")
}

pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("this test prints text")
}

pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + HANG;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        // not a wait: processes of others tell nobody when they come and go, so /proc is asked again.
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn is_running(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, after)| !after.trim_start().starts_with(['Z', 'X']))
}

fn processes_with(words: &str) -> Vec<Pid> {
    all_processes().filter(|pid| proc_file_contains(*pid, "cmdline", words) && is_server(*pid)).collect()
}

fn is_server(pid: Pid) -> bool {
    // A shell or a test that was given the words is none.
    proc_file_contains(pid, "cmdline", "exec-server")
}

fn processes_with_variable(words: &str) -> Vec<Pid> {
    let own = rustix::process::getpid();
    all_processes().filter(|pid| *pid != own && proc_file_contains(*pid, "environ", words)).collect()
}

fn proc_file_contains(pid: Pid, file: &str, words: &str) -> bool {
    let text = std::fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero())).unwrap_or_default();
    String::from_utf8_lossy(&text).contains(words)
}

fn all_processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").expect("Linux").flatten();
    entries.filter_map(|entry| Pid::from_raw(OsStr::to_str(&entry.file_name())?.parse().ok()?))
}
