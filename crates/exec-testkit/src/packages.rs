//! Clients of others, installed from their registries into the cache of the user, as Codex is.
//!
//! Tests run in many processes at once. A file lock lets one of them install, into a folder that gets the name all look for
//! when it is complete; so nobody ever sees half an installation. Without npm or Python a test is skipped, which it
//! prints; any other failure fails it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with `node_modules` of these packages, each with its version.
pub fn npm(name: &str, packages: &[&str]) -> Option<PathBuf> {
    installed(name, "npm", |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--loglevel", "error", "--prefix"]).arg(folder).args(packages);
        vec![npm]
    })
}

/// A folder with a virtual environment that has these packages, each with its version: `bin/python` in it.
pub fn python(name: &str, packages: &[&str]) -> Option<PathBuf> {
    installed(name, "python3", |folder| {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv"]).arg(folder);
        // pip is run by its module: the scripts of an environment name the folder it was made in.
        let mut pip = Command::new(folder.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
        vec![venv, pip]
    })
}

fn installed(name: &str, program: &str, steps: impl Fn(&Path) -> Vec<Command>) -> Option<PathBuf> {
    let home = cache().join(name);
    if home.exists() {
        return Some(home);
    }
    if Command::new(program).arg("--version").output().is_err() {
        eprintln!("SKIPPED: {program} is not installed");
        return None;
    }
    std::fs::create_dir_all(cache()).expect("the cache folder can be made");
    let lock = std::fs::File::create(cache().join(format!(".lock-{name}"))).expect("the cache is ours");
    lock.lock().expect("a file can be locked");
    if home.exists() {
        return Some(home);
    }
    let staging = tempfile::Builder::new().prefix(".new-").tempdir_in(cache()).expect("the cache is ours");
    for mut step in steps(staging.path()) {
        let done = step.output().unwrap_or_else(|error| panic!("cannot run {step:?}: {error}"));
        assert!(done.status.success(), "{step:?} failed: {}", String::from_utf8_lossy(&done.stderr));
    }
    std::fs::rename(staging.keep(), &home).expect("nobody else has the lock");
    Some(home)
}

fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("exec-server-tests")
}
