//! The Python package: its own tests, the behaviours of every SDK, the snippets of its page, and a machine behind ssh.

use std::path::PathBuf;
use std::process::Command;

use exec_testkit::far::{self, Far};

use crate::stage::{
    copy_directory, installed_once, library, root, run_against_a_server, run_to_its_end, run_while_killing,
};

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
    assert_eq!(run_while_killing(program, &far), ["ssh", "server", "ssh", "ssh", "server", "all"]);
}

/// The engines are stand-ins of their names, which run the command in a home of its own. No real one is here.
#[test]
fn a_container_gets_the_binary_of_the_package_too() {
    let package = Package::lay_out();
    package.add_binary();
    let far = Far::empty();
    let run = format!("exec /usr/bin/env -i HOME={} PATH=/usr/bin:/bin \"$@\"", far.home().display());
    far.add_program("client", "docker", &format!("shift 3; {run}"));
    far.add_program("client", "podman", &format!("shift 3; {run}"));
    far.add_program("client", "kubectl", &format!("shift 4; {run}"));
    let script = "import exec_server\n\
                  for url in ('docker://web', 'podman://web', 'kubectl://web'):\n  \
                    with exec_server.connect(url) as env: print(env.run('echo $HOME').stdout, end='')";
    let ran = package.program(&far).args(["-c", script]).output().expect("Python can be started");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(said, format!("{}\n", far.home().display()).repeat(3), "{}", String::from_utf8_lossy(&ran.stderr));
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
    let environment = installed_once("venv", &PACKAGES.join(" "), |directory| {
        run_to_its_end(Command::new("python3").args(["-m", "venv"]).arg(directory));
        let mut pip = Command::new(directory.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
        run_to_its_end(&mut pip);
    });
    environment.join("bin/python")
}
