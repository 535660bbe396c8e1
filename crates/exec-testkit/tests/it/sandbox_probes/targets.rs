//! What the probes attack, and the servers that run them: files, sockets and a process out of the sandbox, all of the
//! account that the sandboxed process has, so that nothing but the sandbox stands between them.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use exec_client::{Options as ClientOptions, RemoteEnvironment, TargetDial};
use exec_testkit::TestEnvironment;
use exec_testkit::binaries::exec_server;
use exec_transport::{ConnectOptions, Target};

use crate::environments;

const PROBER: &str = env!("CARGO_BIN_EXE_prober");
/// Not `/tmp`: that is writable in some policies.
const BASE: &str = "/var/tmp";
/// Nobody in particular.
const OTHER_USER: u32 = 65_534;

/// Whom the sandboxed process belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// Whoever runs the tests; root, where they matter most.
    Own,
    /// A user without rights.
    Ordinary,
}

impl Account {
    /// `None` if nothing has to be changed.
    fn uid(self) -> Option<u32> {
        let becomes_another = self == Self::Ordinary && rustix::process::geteuid().is_root();
        becomes_another.then_some(OTHER_USER)
    }
}

pub(crate) struct ProbeTargets {
    pub(crate) account: Account,
    directory: tempfile::TempDir,
    /// `KEY=VALUE`, as the prober takes them.
    keys: Vec<String>,
    /// A process out of every sandbox.
    outsider: Child,
    /// They listen as long as they are held.
    _sockets: (TcpListener, UdpSocket, [UnixListener; 2], [UnixDatagram; 2]),
}

impl ProbeTargets {
    pub(crate) fn new(account: Account) -> Self {
        let directory = tempfile::Builder::new().prefix("exec-probes-").tempdir_in(BASE);
        let directory = directory.expect("a temporary directory can be made");
        let path = |name: &str| directory.path().join(name);
        for name in ["outside", "workspace", "secret", "bin", "sockets"] {
            fs::create_dir(path(name)).expect("the directory is ours");
            chown(path(name), account.uid(), account.uid()).expect("root may do this, and for others nothing changes");
        }
        chown(directory.path(), account.uid(), account.uid()).expect("as above");
        link_or_copy(Path::new(PROBER), &path("bin/prober"));
        let mut keys: Vec<String> =
            ["outside", "workspace", "secret"].map(|name| format!("{name}={}", path(name).display())).to_vec();
        prepare(account, &path("bin/prober"), &keys);
        let namespace = fs::read_link("/proc/self/ns/pid").expect("the kernel has namespaces");
        keys.push(format!("pid-namespace={}", namespace.display()));
        if account.uid().is_some() {
            let copy = path("bin/setuid");
            fs::copy(PROBER, &copy).expect("there is space");
            fs::set_permissions(&copy, Permissions::from_mode(0o4755)).expect("it is ours");
            keys.push(format!("setuid={}", copy.display()));
        }
        let outsider = as_account(account, Path::new("/bin/sleep"))
            .arg("600")
            .current_dir(path("secret"))
            .stdin(File::open(path("secret/secret")).expect("it was prepared"))
            .env("SECRET", "yes")
            .spawn()
            .expect("the program is there");
        keys.push(format!("pid={}", outsider.id()));
        let sockets = listen(&path("sockets"), &mut keys);
        Self { account, directory, keys, outsider, _sockets: sockets }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn prober(&self) -> PathBuf {
        self.path("bin/prober")
    }

    /// All keys; those in `others` have other values.
    pub(crate) fn keys(&self, others: &[(&str, String)]) -> Vec<String> {
        let is_replaced = |key: &String| others.iter().any(|(name, _)| key.split('=').next() == Some(name));
        let kept = self.keys.iter().filter(|key| !is_replaced(key)).cloned();
        kept.chain(others.iter().map(|(name, value)| format!("{name}={value}"))).collect()
    }

    /// Makes the files of other targets than those of [`Self::new`].
    pub(crate) fn prepare(&self, keys: &[String]) {
        prepare(self.account, &self.prober(), keys);
    }

    /// Everything that the kernel tells of what must not change: a probe may lie, and this does not.
    pub(crate) fn facts(&self) -> BTreeMap<PathBuf, Facts> {
        let mut facts = BTreeMap::new();
        for name in ["outside", "secret", "workspace/.git", "workspace/project"] {
            collect(&self.path(name), &mut facts);
        }
        facts
    }

    /// This machine, without a server between.
    pub(crate) async fn local(&self) -> TestEnvironment {
        environments::keeper_as_thread().await
    }

    /// A real server of this account, on a host that lacks what the conditions say.
    pub(crate) async fn serve(&self, conditions: &[&str]) -> Daemon {
        Daemon::start(self, conditions).await
    }
}

impl Drop for ProbeTargets {
    fn drop(&mut self) {
        let _ = self.outsider.kill();
        let _ = self.outsider.wait();
    }
}

/// A real `exec-server serve`, and an environment that is connected to it.
pub(crate) struct Daemon {
    pub(crate) environment: TestEnvironment,
    /// Its sockets are here, too: `daemon.sock` and `keeper.sock`.
    pub(crate) state: PathBuf,
    /// Of the loopback; without authentication.
    pub(crate) port: String,
    child: ServerProcess,
}

impl Daemon {
    async fn start(targets: &ProbeTargets, conditions: &[&str]) -> Self {
        let (program, state) = (targets.path("bin/exec-server"), targets.path("state"));
        link_or_copy(&exec_server(), &program);
        let socket = state.join("daemon.sock");
        fs::create_dir(&state).expect("the directory is ours");
        chown(&state, targets.account.uid(), targets.account.uid()).expect("root may do this");
        fs::set_permissions(&state, Permissions::from_mode(0o700)).expect("it is ours");
        // The conditions come first: some of them only root can make.
        let mut command = Command::new(targets.prober());
        command.arg("under").args(conditions).arg("--");
        if let Some(uid) = targets.account.uid() {
            command.args(["setpriv", "--clear-groups", "--reuid", &uid.to_string(), "--regid", &uid.to_string()]);
        }
        command.arg(&program).args(["serve", "--listen", &format!("unix://{}", socket.display())]);
        command.args(["--listen", "ws://127.0.0.1:0", "--state-dir"]).arg(&state);
        command.current_dir("/").env("HOME", targets.directory.path()).env("SECRET", "yes");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the prober can be run");
        let mut child = ServerProcess(child);
        let mut lines = BufReader::new(child.0.stdout.take().expect("it was asked for")).lines();
        let mut line = || lines.next().expect("the server prints where it listens").expect("it is text");
        assert_eq!(line(), format!("unix://{}", socket.display()));
        // Not by the unix socket: a client trusts only servers of its own user there.
        let url = line();
        let port = url.rsplit(':').next().expect("a URL has a port").to_owned();
        let target: Target = url.parse().expect("what is listened on can be connected to");
        let options = ClientOptions { give_up: Some(Duration::from_secs(50)), ..ClientOptions::default() };
        let dial = TargetDial::new(target, ConnectOptions::default());
        let environment = RemoteEnvironment::open(Arc::new(dial), options).await.expect("the server answers");
        let environment = TestEnvironment::new(Arc::new(environment), environments::ACTOR);
        Self { environment, state, port, child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }
}

struct ServerProcess(Child);

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Asked to end, it ends everything that it started.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// The files that are not what they were: other facts, new or gone.
pub(crate) fn changes<'a>(
    before: &'a BTreeMap<PathBuf, Facts>,
    after: &'a BTreeMap<PathBuf, Facts>,
) -> Vec<&'a PathBuf> {
    let gone = before.keys().filter(|path| !after.contains_key(*path));
    let other = after.iter().filter(|(path, facts)| before.get(*path) != Some(facts)).map(|(path, _)| path);
    gone.chain(other).collect()
}

/// What the kernel tells of a file, except when it was last read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    mode: u32,
    owner: (u32, u32),
    links: u64,
    changed: (i64, i64),
    contents: Option<Vec<u8>>,
}

fn collect(path: &Path, facts: &mut BTreeMap<PathBuf, Facts>) {
    let found = fs::symlink_metadata(path).expect("what was listed is there");
    let contents = found.is_file().then(|| fs::read(path).expect("it is ours to read"));
    let owner = (found.uid(), found.gid());
    let changed = (found.ctime(), found.ctime_nsec());
    facts.insert(path.to_owned(), Facts { mode: found.mode(), owner, links: found.nlink(), changed, contents });
    if found.is_dir() {
        for entry in fs::read_dir(path).expect("it is ours to list") {
            collect(&entry.expect("it can be listed").path(), facts);
        }
    }
}

/// The name of every probe, and its group.
pub(crate) fn probes() -> BTreeMap<String, String> {
    let listed = Command::new(PROBER).arg("list").output().expect("the prober can be run").stdout;
    let listed = String::from_utf8(listed).expect("names are text");
    let lines = listed.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(group, name)| (name.to_owned(), group.to_owned())).collect()
}

/// Runs the prober out of every sandbox, under conditions.
pub(crate) fn prober_under(conditions: &[&str], arguments: &[&str]) -> String {
    let mut command = Command::new(PROBER);
    command.arg("under").args(conditions).arg("--").args(arguments).stdin(Stdio::null());
    let output = command.output().expect("the prober can be run");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

pub(crate) fn prober_itself() -> &'static str {
    PROBER
}

fn as_account(account: Account, program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some(uid) = account.uid() {
        command.uid(uid).gid(uid);
    }
    command
}

fn prepare(account: Account, prober: &Path, keys: &[String]) {
    let prepared = as_account(account, prober).arg("prepare").args(keys).output().expect("the prober can be run");
    assert!(prepared.status.success(), "{}", String::from_utf8_lossy(&prepared.stderr));
}

/// Where another user can reach it. Binaries of tests are large.
fn link_or_copy(from: &Path, to: &Path) {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).expect("there is space");
    }
}

fn listen(directory: &Path, keys: &mut Vec<String>) -> (TcpListener, UdpSocket, [UnixListener; 2], [UnixDatagram; 2]) {
    let tcp = TcpListener::bind("127.0.0.1:0").expect("there is a loopback");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("there is a loopback");
    let (path, name) = (directory.join("socket"), format!("exec-probes-{}", std::process::id()));
    let datagram_path = directory.join("socket.datagram");
    let stream = UnixListener::bind(&path).expect("the directory is ours");
    let datagram = UnixDatagram::bind(&datagram_path).expect("the directory is ours");
    for path in [&path, &datagram_path] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).expect("it is ours");
    }
    let address = |name: &str| SocketAddr::from_abstract_name(name).expect("the name is short");
    let abstract_stream = UnixListener::bind_addr(&address(&name)).expect("the name is ours");
    let abstract_datagram = UnixDatagram::bind_addr(&address(&format!("{name}.datagram"))).expect("the name is ours");
    keys.push(format!("tcp={}", tcp.local_addr().expect("it is bound").port()));
    keys.push(format!("udp={}", udp.local_addr().expect("it is bound").port()));
    keys.push(format!("socket={}", path.display()));
    keys.push(format!("abstract={name}"));
    (tcp, udp, [stream, abstract_stream], [datagram, abstract_datagram])
}
