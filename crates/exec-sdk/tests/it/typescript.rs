//! The npm package: its own tests, the behaviours of every SDK, and the snippets of its page.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stage::{copy_directory, installed_once, library, root, run_against_a_server, run_to_its_end};

/// The compiler, and the types of what Node has.
const PACKAGES: [&str; 2] = ["typescript@7.0.2", "@types/node@20.19.43"];

#[test]
fn the_npm_package_shows_every_behaviour() {
    let package = Package::lay_out();
    let mut tests = tokio::process::Command::new("node");
    tests.args(["--test", "--test-reporter=spec"]).arg(package.path().join("dist-tests"));
    tests.env("EXEC_SERVER_PAGE", root().join("docs/typescript.md")).env("EXEC_SERVER_TSC", compiler());
    run_against_a_server("typescript", tests);
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
        let packages = npm_packages().join("node_modules");
        std::os::unix::fs::symlink(packages, directory.path().join("node_modules")).expect("the name is free");
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
    npm_packages().join("node_modules/.bin/tsc")
}

/// A directory with [`PACKAGES`], made once.
fn npm_packages() -> PathBuf {
    installed_once("npm", &PACKAGES, |directory| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--prefix"]).arg(directory).args(PACKAGES);
        run_to_its_end(&mut npm);
    })
}
