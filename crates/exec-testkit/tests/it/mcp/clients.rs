//! The clients of others: the official SDKs of Python and TypeScript, and the conformance suite of the protocol.

use std::path::{Path, PathBuf};

use exec_testkit::binaries;
use tokio::process::Command;

use super::http::listen;
use super::server::Account;
use crate::durability::support::run;
use exec_testkit::packages;

const PYTHON_SDK: &str = "2.3.0";
/// Its first line, which knows the versions with a handshake, and its second one, which knows 2026-07-28, too.
const TYPESCRIPT_SDKS: [&str; 2] = ["@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0"];
/// In which ways they speak; sdk.mjs says what each is.
const TYPESCRIPT_MODES: [&str; 4] = ["v1", "legacy", "auto", "2026-07-28"];
const CONFORMANCE: &str = "0.1.16";
/// The suite needs a newer Node than many machines have; npm has it, too.
const NODE: &str = "22.23.3";

/// Scenarios that judge any server. The others call tools, prompts and resources that only a server made for the suite has.
const SCENARIOS: [&str; 7] = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
];

/// The packages of npm, in one folder.
fn node_modules() -> Option<PathBuf> {
    let [first, second] = TYPESCRIPT_SDKS;
    let version = |sdk: &str| sdk.rsplit('@').next().unwrap_or_default().to_owned();
    let name = format!("mcp-npm-{}-{}-{CONFORMANCE}-{NODE}", version(first), version(second));
    let suite = format!("@modelcontextprotocol/conformance@{CONFORMANCE}");
    Some(packages::npm(&name, &[first, second, &suite, &format!("node@{NODE}")])?.join("node_modules"))
}

async fn must_succeed(mut command: Command) -> String {
    let done = command.output().await.expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?} ended with {}:\n{out}\n{err}", done.status);
    format!("{out}{err}")
}

/// The script that is a client, where it finds its packages.
fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let script = folder.join(name);
    std::fs::write(&script, text).expect("the folder is ours");
    script
}

#[test]
fn the_python_sdk_works_with_and_without_a_handshake() {
    let Some(python) = packages::python(&format!("mcp-python-{PYTHON_SDK}"), &[&format!("mcp=={PYTHON_SDK}")]) else {
        return;
    };
    run(async {
        let account = Account::new();
        let script = script(account.path(), "client.py", include_str!("client.py"));
        for mode in ["legacy", "2026-07-28"] {
            let mut client = account.command(python.join("bin/python"));
            client.arg(&script).arg(binaries::exec_server()).arg(mode);
            assert_eq!(must_succeed(client).await, "ok\n");
        }
    });
}

#[test]
fn the_python_sdk_asks_its_user_with_and_without_a_handshake() {
    let Some(python) = packages::python(&format!("mcp-python-{PYTHON_SDK}"), &[&format!("mcp=={PYTHON_SDK}")]) else {
        return;
    };
    run(async {
        let (account, outside) = (Account::new(), super::sandbox::outside());
        let script = script(account.path(), "approval.py", include_str!("approval.py"));
        for mode in ["legacy", "2026-07-28"] {
            let mut client = account.command(python.join("bin/python"));
            client.arg(&script).arg(binaries::exec_server()).arg(mode).arg(outside.path());
            assert_eq!(must_succeed(client).await, "ok\n");
        }
    });
}

#[test]
fn the_typescript_sdks_work_on_stdio_and_http_in_every_version() {
    let Some(modules) = node_modules() else { return };
    run(async {
        let account = Account::new();
        let script = typescript(&account, &modules, "client.mjs", include_str!("client.mjs"));
        let (mut server, address) = listen(&account, &[]).await;
        for mode in TYPESCRIPT_MODES {
            for place in [binaries::exec_server().display().to_string(), format!("http://{address}/mcp")] {
                let mut client = account.command("node");
                client.arg(&script).arg(mode).arg(place);
                assert_eq!(must_succeed(client).await, "ok\n", "{mode}: it warns of nothing");
            }
        }
        server.kill().await.expect("it is our child");
    });
}

#[test]
fn the_typescript_sdks_ask_their_user_in_every_version() {
    let Some(modules) = node_modules() else { return };
    run(async {
        let (account, outside) = (Account::new(), super::sandbox::outside());
        let script = typescript(&account, &modules, "approval.mjs", include_str!("approval.mjs"));
        for mode in TYPESCRIPT_MODES {
            let mut client = account.command("node");
            client.arg(&script).arg(mode).arg(binaries::exec_server()).arg(outside.path());
            assert_eq!(must_succeed(client).await, "ok\n", "{mode}");
        }
    });
}

/// The script, beside the packages and the module that it imports.
fn typescript(account: &Account, modules: &Path, name: &str, text: &str) -> PathBuf {
    std::os::unix::fs::symlink(modules, account.path().join("node_modules")).expect("it is new");
    script(account.path(), "sdk.mjs", include_str!("sdk.mjs"));
    script(account.path(), name, text)
}

#[test]
fn the_conformance_suite_finds_no_fault_where_it_can_judge() {
    let Some(modules) = node_modules() else { return };
    run(async {
        let account = Account::new();
        let (mut server, address) = listen(&account, &[]).await;
        let mut client = account.command(modules.join("node/bin/node"));
        client.arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"));
        client.args(["server", "--url", &format!("http://{address}/mcp"), "--output-dir", "results"]);
        let done = client.output().await.expect("it starts");
        let told = String::from_utf8_lossy(&done.stdout);
        for scenario in SCENARIOS {
            let passed = format!("\n✓ {scenario}: ");
            assert!(told.contains(&passed), "{scenario} fails:\n{told}\n{}", String::from_utf8_lossy(&done.stderr));
        }
        server.kill().await.expect("it is our child");
    });
}
