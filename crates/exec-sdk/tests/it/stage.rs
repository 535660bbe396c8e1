//! What an SDK is tried against, and how its tests are run: a server, a proxy that cuts every so often, and a way for the
//! tests to have it cut at a moment of theirs.

use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use exec_server::serve::{self, ListenOptions, ListenUrl, Listener, Server, ServerOptions};
use exec_testkit::far::Far;
use exec_testkit::proxy::CuttingProxy;
use exec_testkit::runner::run_test;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// No SDK's tests take this long unless something hangs. Less than what nextest allows, which would show nothing of them.
const DEADLINE: Duration = Duration::from_secs(170);

/// How often the proxy cuts by itself, while it is told to. Longer than it takes to connect again, even on a busy machine.
const CUT_EVERY: Duration = Duration::from_millis(300);

/// Runs the tests of an SDK.
pub(crate) fn run_against_a_server(name: &str, tests: Command) {
    run_test(name, DEADLINE, Box::pin(run(tests)));
}

async fn run(mut tests: Command) {
    let machine = Arc::new(exec_server::open_local().await.expect("this machine can be set up"));
    let server = Server::start(machine.clone(), ServerOptions::default()).await.expect("a server can begin");
    let address = ListenUrl::WebSocket("127.0.0.1:0".parse().expect("an address"));
    let listener = Listener::bind(&address, ListenOptions::default()).await.expect("the loopback has a free port");
    let url = listener.url();
    let address = url.trim_start_matches("ws://").trim_end_matches('/').parse().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let mut serving = JoinSet::new();
    serving.spawn(async move { serve::run(&server, listener, async { drop(stopped.await) }).await });

    let proxy = Arc::new(CuttingProxy::start(address).await);
    let control = TcpListener::bind("127.0.0.1:0").await.expect("the loopback has a free port");
    tests.env("EXEC_SERVER_TEST_CONTROL", control.local_addr().expect("it is bound").to_string());
    tests.env("EXEC_SERVER_TEST_URL", format!("ws://{}", proxy.address()));
    tests.env("EXEC_SERVER_TEST_DIRECT_URL", &url);
    tests.env("EXEC_SERVER_CONFORMANCE", root().join("sdk/conformance"));
    let mut helpers = JoinSet::new();
    helpers.spawn(obey(control, Arc::clone(&proxy)));

    // What they say goes where this test's words go, so that it is seen even if they hang.
    let status = tests.kill_on_drop(true).status().await.expect("the tests can be started");
    assert!(status.success(), "{status}");

    helpers.shutdown().await;
    assert!(proxy.counts().connections > 1, "nothing was cut");
    drop(stop);
    serving.join_next().await.expect("it serves").expect("without a panic").expect("and without an error");
    machine.end().await;
}

/// Does what the tests ask for, and cuts often in between if they want that.
async fn obey(control: TcpListener, proxy: Arc<CuttingProxy>) {
    let mut cutting = false;
    let mut moments = tokio::time::interval(CUT_EVERY);
    loop {
        let connection = tokio::select! {
            accepted = control.accept() => accepted.expect("the loopback works").0,
            _ = moments.tick(), if cutting => {
                proxy.cut();
                continue;
            }
        };
        let mut connection = BufReader::new(connection);
        let mut words = String::new();
        if connection.read_line(&mut words).await.is_err() {
            continue;
        }
        match words.trim() {
            "cut" => proxy.cut(),
            "block" => proxy.block(),
            "unblock" => proxy.unblock(),
            "cut often" => cutting = true,
            "leave alone" => cutting = false,
            other => panic!("the proxy cannot {other:?}"),
        }
        let _ = connection.write_all(b"ok").await;
    }
}

/// Runs a program of an SDK that works on the machine behind ssh and says, line by line, what it wants to have killed
/// there. Returns what it said.
pub(crate) fn run_while_killing(mut program: std::process::Command, far: &Far) -> Vec<String> {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
    let mut answers = child.stdin.take().expect("piped");
    let mut asked = Vec::new();
    for line in std::io::BufReader::new(child.stdout.take().expect("piped")).lines() {
        let line = line.expect("a pipe can be read");
        match line.as_str() {
            "ssh" => far.kill_ssh(),
            "server" => far.kill_server(),
            _ => {}
        }
        // After its last line it reads no more.
        let _ = answers.write_all(b"done\n");
        asked.push(line);
    }
    assert!(child.wait().expect("it is our child").success());
    assert!(far.cached_binary().exists(), "another binary was sent");
    asked
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a crate is in the workspace")
}

/// Where cargo has put the libraries of this build.
pub(crate) fn library(name: &str) -> PathBuf {
    let library = profile_directory().join(name);
    assert!(library.exists(), "{} is missing: build it with `cargo xtask test`", library.display());
    library
}

/// For what is fetched once and kept, such as the packages that tests need.
fn kept_directory() -> PathBuf {
    let directory = profile_directory().parent().expect("a profile is in the target directory").join("sdk");
    std::fs::create_dir_all(&directory).expect("the target directory can be written");
    directory
}

/// The directory of that name for what is fetched; `install` fills it if it has not been filled with these packages yet.
pub(crate) fn installed_once(name: &str, packages: &str, install: impl FnOnce(&Path)) -> PathBuf {
    let directory = kept_directory().join(name);
    let lock =
        File::create(kept_directory().join(format!("{name}.lock"))).expect("the target directory can be written");
    lock.lock().expect("one test at a time makes it");
    let installed = directory.join("installed");
    if std::fs::read_to_string(&installed).is_ok_and(|found| found == packages) {
        return directory;
    }
    if directory.exists() {
        std::fs::remove_dir_all(&directory).expect("the target directory can be written");
    }
    std::fs::create_dir(&directory).expect("the target directory can be written");
    install(&directory);
    std::fs::write(&installed, packages).expect("the target directory can be written");
    directory
}

/// Fails with what the command said if it fails.
pub(crate) fn run_to_its_end(command: &mut std::process::Command) {
    let done = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}:\n{stdout}{stderr}");
}

fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    test.parent().and_then(Path::parent).expect("tests are in PROFILE/deps").to_owned()
}

/// Copies a directory of plain files.
pub(crate) fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory can be made");
    for entry in std::fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it can be listed");
        if entry.file_type().expect("it has a type").is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a file can be copied");
        }
    }
}
