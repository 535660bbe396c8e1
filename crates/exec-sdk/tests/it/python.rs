//! The Python package: its own tests, the behaviours of every SDK, and the snippets of its page.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The package as `pip` would install it, made of the sources and the library of this build.
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
