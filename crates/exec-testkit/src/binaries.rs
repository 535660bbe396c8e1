//! Where the binaries of this workspace are.
//!
//! Cargo tells an integration test only about binaries of its own package. `exec-server` belongs to another one, so it
//! is looked for where cargo puts all of them, and built if it is not there. It is not built again if it is: `cargo
//! xtask test` does that first, for the whole workspace at once, and building it alone would choose other features for
//! what it is made of and compile all that twice.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The binary `exec-server`, of the same build as the test that asks.
pub fn exec_server() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

/// `EXEC_SERVER_BIN` names another one to judge.
fn build() -> PathBuf {
    if let Some(chosen) = std::env::var_os("EXEC_SERVER_BIN") {
        return PathBuf::from(chosen);
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile_directory = test.parent().and_then(|deps| deps.parent()).expect("tests are in PROFILE/deps");
    let binary = profile_directory.join("exec-server");
    if binary.exists() {
        return binary;
    }
    let target = profile_directory.parent().expect("the folder of a profile is in the target folder");
    let release = profile_directory.file_name().is_some_and(|name| name == "release");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--locked", "-p", "exec-server-cli", "--bin", "exec-server"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", target);
    if release {
        command.arg("--release");
    }
    let done = command.output().expect("cargo is there, it has built this test");
    assert!(done.status.success(), "cannot build exec-server:\n{}", String::from_utf8_lossy(&done.stderr));
    binary
}
