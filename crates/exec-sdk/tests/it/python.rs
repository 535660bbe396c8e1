//! The Python package: its own tests, the behaviours of every SDK, the snippets of its page, and a machine behind ssh.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use exec_testkit::far::{self, Far};

use crate::stage::{copy_directory, kept_directory, library, root, run_against_a_server};

/// What the tests import, and the type checker that reads the stubs.
const PACKAGES: [&str; 2] = ["pytest==9.2.0", "mypy==2.4.1"];

#[test]
fn the_python_package_shows_every_behaviour() {
    let package = Package::lay_out();
    let mut tests = tokio::process::Command::new(python());
    tests
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "faulthandler_timeout=60"])
        .arg(root().join("sdk/python/tests"));
    tests.env("PYTHONPATH", package.0.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    tests.env("EXEC_SERVER_PAGE", root().join("docs/python.md"));
    run_against_a_server("python", tests);
}

/// The program of an SDK works there, and says when it wants to be disturbed.
#[test]
fn over_ssh_nothing_is_lost_when_ssh_and_the_server_there_are_killed() {
    let package = Package::lay_out();
    package.add_binary();
    // Nothing of ours is there yet: the binary of the package is sent.
    let far = Far::empty();
    let mut program = package.program(&far);
    program.arg(root().join("sdk/python/tests/over_ssh.py")).arg("ssh://far");
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python can be started");
    let mut answers = child.stdin.take().expect("piped");
    let mut asked = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
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
    assert_eq!(asked, ["ssh", "server", "ssh", "ssh", "server", "all"]);
    assert!(far.cached_binary().exists(), "another binary was sent");
}

#[test]
fn without_a_binary_to_send_people_are_told_how_to_name_one() {
    let package = Package::lay_out();
    let far = Far::empty();
    let connect = |argument: &str| {
        let script = format!("import exec_server; exec_server.connect('ssh://far'{argument}).run('true', check=True)");
        package.program(&far).args(["-c", &script]).output().expect("Python can be started")
    };
    let refused = connect("");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("ConnectError"), "{said}");
    assert!(said.contains("no exec-server here to send") && said.contains("`server_binary`"), "{said}");
    let named = connect(&format!(", server_binary={:?}", far::binary()));
    assert!(named.status.success(), "{}", String::from_utf8_lossy(&named.stderr));
    let named = connect(", server_binary='/etc/passwd'");
    let said = String::from_utf8_lossy(&named.stderr);
    assert!(said.contains("/etc/passwd is no Linux program"), "{said}");
}

/// The package as `pip install --target` would install it, made of the sources and the library of this build.
struct Package(tempfile::TempDir);

impl Package {
    fn lay_out() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let package = directory.path().join("exec_server");
        copy_directory(&root().join("sdk/python/exec_server"), &package);
        let native = package.join("_native.abi3.so");
        std::fs::copy(library("libexec_server_python.so"), native).expect("the library can be copied");
        Self(directory)
    }

    /// The command that `pip` installs with the package.
    fn add_binary(&self) {
        let scripts = self.0.path().join("bin");
        std::fs::create_dir(&scripts).expect("the directory is ours");
        std::fs::copy(far::binary(), scripts.join("exec-server")).expect("the binary can be copied");
    }

    /// A Python that has the package, as a client of that machine. Nothing but the package brings an exec-server.
    fn program(&self, far: &Far) -> Command {
        let mut python = far.program(&python());
        python.env("PYTHONPATH", self.0.path()).env("PYTHONDONTWRITEBYTECODE", "1");
        // This machine may have one installed.
        python.env("PATH", far.path("client"));
        python
    }
}

/// A Python with [`PACKAGES`], made once.
fn python() -> PathBuf {
    let environment = kept_directory().join("venv");
    let python = environment.join("bin/python");
    let lock = File::create(kept_directory().join("venv.lock")).expect("the target directory can be written");
    lock.lock().expect("one test at a time makes it");
    let installed = environment.join("installed");
    if std::fs::read_to_string(&installed).is_ok_and(|packages| packages == PACKAGES.join(" ")) {
        return python;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment));
    run(pip(&python).args(PACKAGES));
    std::fs::write(&installed, PACKAGES.join(" ")).expect("the target directory can be written");
    python
}

fn pip(python: &Path) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip
}

fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    assert!(done.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&done.stderr));
}
