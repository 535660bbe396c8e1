//! The SDKs of E2B against our server, in debug mode and with the API: see `sdk/` for what they check, docs/e2b.md for the table.

use std::path::{Path, PathBuf};

use exec_testkit::packages;
use tokio::process::Command;

use crate::support::{Account, E2bProcess};

/// Known to work; docs/e2b.md names them.
const PYTHON_SDK: &str = "2.63.0";
const JS_SDK: &str = "2.51.0";

/// How an SDK finds the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// One sandbox, which needs neither API nor key.
    Debug,
    Api,
}

impl Mode {
    async fn start(self, account: &Account) -> E2bProcess {
        match self {
            Self::Debug => account.start(&[]).await,
            Self::Api => account.start(&["--no-debug"]).await,
        }
    }
}

fn scripts(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2b").join(folder)
}

fn python() -> Option<PathBuf> {
    let folder = packages::python(&format!("e2b-python-{PYTHON_SDK}"), &[&format!("e2b=={PYTHON_SDK}")])?;
    Some(folder.join("bin/python"))
}

/// Scripts find their packages in the folders above them.
fn node(account: &Account) -> Option<PathBuf> {
    let folder = packages::npm(&format!("e2b-js-{JS_SDK}"), &[&format!("e2b@{JS_SDK}")])?;
    std::os::unix::fs::symlink(folder.join("node_modules"), account.path().join("node_modules")).expect("it is new");
    for name in ["sdk", "snippets"] {
        let copies = account.path().join(name);
        std::fs::create_dir(&copies).expect("it is new");
        for entry in std::fs::read_dir(scripts(name)).expect("it is there").flatten() {
            std::fs::copy(entry.path(), copies.join(entry.file_name())).expect("it is a file");
        }
    }
    Some(account.path().join("sdk"))
}

async fn run(mut command: Command, server: &E2bProcess, mode: Mode) {
    for variable in ["E2B_DOMAIN", "E2B_ACCESS_TOKEN", "E2B_DEBUG", "HTTP_PROXY", "http_proxy"] {
        command.env_remove(variable);
    }
    command.env("E2B_SANDBOX_URL", format!("http://{}", server.envd)).env("PYTHONDONTWRITEBYTECODE", "1");
    match mode {
        Mode::Debug => command.env("E2B_DEBUG", "true"),
        Mode::Api => command.env("E2B_API_URL", format!("http://{}", server.api)).env("E2B_API_KEY", &server.key),
    };
    let done = command.kill_on_drop(true).output().await.expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}\n{err}", done.status);
    assert!(out.contains("ok "), "nothing was checked: {out}");
}

async fn run_python(script: &str, arguments: &[&Path], mode: Mode) {
    let Some(python) = python() else { return };
    let account = Account::new();
    let server = mode.start(&account).await;
    let mut command = Command::new(python);
    command.arg(scripts("sdk").join(script)).args(arguments).current_dir(account.path());
    run(command, &server, mode).await;
}

async fn run_js(script: &str, arguments: &[&str], mode: Mode) {
    let account = Account::new();
    let Some(scripts) = node(&account) else { return };
    let server = mode.start(&account).await;
    let mut command = Command::new("node");
    command.arg(scripts.join(script)).args(arguments).current_dir(account.path());
    run(command, &server, mode).await;
}

#[tokio::test]
async fn the_python_sdk_in_debug_mode() {
    run_python("sync_checks.py", &[], Mode::Debug).await;
}

#[tokio::test]
async fn the_python_sdk_with_the_api() {
    run_python("sync_checks.py", &[], Mode::Api).await;
}

#[tokio::test]
async fn the_asynchronous_python_sdk_in_debug_mode() {
    run_python("async_checks.py", &[], Mode::Debug).await;
}

#[tokio::test]
async fn the_asynchronous_python_sdk_with_the_api() {
    run_python("async_checks.py", &[], Mode::Api).await;
}

#[tokio::test]
async fn the_javascript_sdk_in_debug_mode() {
    run_js("checks.mjs", &[], Mode::Debug).await;
}

#[tokio::test]
async fn the_javascript_sdk_with_the_api() {
    run_js("checks.mjs", &[], Mode::Api).await;
}

#[tokio::test]
async fn snippets_of_the_documentation_in_python() {
    run_python("run_snippets.py", &[&scripts("snippets")], Mode::Api).await;
}

#[tokio::test]
async fn snippets_of_the_documentation_in_javascript() {
    run_js("run_snippets.mjs", &["snippets"], Mode::Api).await;
}
