//! The npm package: its own tests, the behaviours of every SDK, the snippets of its page, and a machine behind ssh.

use std::path::{Path, PathBuf};
use std::process::Command;

use exec_testkit::far::{self, Far};

use crate::stage::{
    copy_directory, installed_once, library, root, run_against_a_server, run_to_its_end, run_while_killing,
};

#[test]
fn the_npm_package_shows_every_behaviour() {
    let package = Package::lay_out();
    let mut tests = tokio::process::Command::new("node");
    tests.args(["--test", "--test-reporter=spec"]).arg(package.path().join("dist-tests"));
    tests.env("EXEC_SERVER_PAGE", root().join("docs/typescript.md")).env("EXEC_SERVER_TSC", compiler());
    run_against_a_server("typescript", tests);
}

#[test]
fn over_ssh_nothing_is_lost_when_ssh_and_the_server_there_are_killed() {
    let package = Package::lay_out();
    let binary = package.path().join("bin/exec-server");
    std::fs::create_dir(package.path().join("bin")).expect("the directory is ours");
    std::fs::copy(far::binary(), binary).expect("the binary can be copied");
    // Nothing of ours is there yet: the binary of the package is sent.
    let far = Far::empty();
    let mut program = far.program("node".as_ref());
    program.arg(package.path().join("dist-tests/over_ssh.js")).arg("ssh://far");
    assert_eq!(run_while_killing(program, &far), ["ssh", "server", "ssh", "all"]);
}

/// The package as `npm` would install it, made of the sources and the library of this build, with its tests.
struct Package(tempfile::TempDir);

impl Package {
    fn lay_out() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let sources = root().join("sdk/typescript");
        for name in ["lib", "tests"] {
            copy_directory(&sources.join(name), &directory.path().join(name));
        }
        for name in ["package.json", "tsconfig.json"] {
            std::fs::copy(sources.join(name), directory.path().join(name)).expect("a file can be copied");
        }
        let native = directory.path().join("native");
        std::fs::create_dir(&native).expect("the directory is new");
        std::fs::copy(library("libexec_server_node.so"), native.join("exec_server.node"))
            .expect("a file can be copied");
        std::os::unix::fs::symlink(npm_packages(), directory.path().join("node_modules")).expect("the name is free");
        for project in [".", "tests"] {
            run_to_its_end(Command::new(compiler()).args(["-p", project]).current_dir(directory.path()));
        }
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn compiler() -> PathBuf {
    npm_packages().join(".bin/tsc")
}

/// What the package is compiled with, fetched once.
fn npm_packages() -> PathBuf {
    let manifest = root().join("sdk/typescript/package.json");
    let wanted = std::fs::read_to_string(&manifest).expect("the package has a manifest");
    let directory = installed_once("npm", &wanted, |directory| {
        std::fs::copy(&manifest, directory.join("package.json")).expect("the target directory can be written");
        let mut npm = Command::new("npm");
        run_to_its_end(npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock"]).current_dir(directory));
    });
    directory.join("node_modules")
}
